// What scripts/gpu-check runs: holds the codecs on a GPU against those on the CPU, measures them
// against a copy by the device, and prints both as JSON.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdint>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>

#include "base/build_config.hpp"
#include "base/error.hpp"
#include "bench/gpu/timing.hpp"
#include "bench/gpu/verification.hpp"
#include "runtime/cuda/factory.hpp"

namespace rackrail::bench {
namespace {

nlohmann::json verification_json(std::size_t elements, std::uint64_t seed, bool& all_good) {
  nlohmann::json list = nlohmann::json::array();
  for (const Verification& each : verify_codecs(elements, seed)) {
    all_good = all_good && each.problem.empty();
    list.push_back({{"codec", each.codec},
                    {"what", each.what},
                    {"elements", elements},
                    {"seed", seed},
                    {"good", each.problem.empty()},
                    {"problem", each.problem}});
  }
  return list;
}

nlohmann::json timing_json(std::size_t elements, std::uint64_t seed, unsigned blocks) {
  nlohmann::json list = nlohmann::json::array();
  const std::vector<Timing> timings = time_codecs(elements, seed, blocks);
  // The slower of the copies before and after: their difference is noise.
  const double copy = std::min(timings.front().bandwidth(), timings.back().bandwidth());
  for (const Timing& each : timings) {
    nlohmann::json row = {{"what", each.what},
                          {"elements", each.elements},
                          {"blocks_per_multiprocessor", blocks},
                          {"bytes_per_element", each.bytes_per_element},
                          {"median_s", each.median_seconds},
                          {"fastest_s", each.fastest_seconds},
                          {"bytes_per_s", each.bandwidth()},
                          {"share_of_copy", each.bandwidth() / copy}};
    if (each.target) {
      row["target"] = *each.target;
      row["reached"] = each.bandwidth() >= *each.target * copy;
    }
    list.push_back(row);
  }
  return list;
}

int run(int argc, char** argv) {
  CLI::App app{"Checks and measures rackrail's codecs on a GPU; prints JSON"};
  std::string output;
  std::size_t verified = (std::size_t{1} << 26U) + 12'345;
  std::size_t timed = std::size_t{1} << 28U;
  auto seed =
      static_cast<std::uint64_t>(std::chrono::system_clock::now().time_since_epoch().count());
  std::vector<unsigned> blocks{32, 8, 4096};
  app.add_option("--output", output, "The JSON goes into this file");
  app.add_option("--verify", verified, "Elements to verify with; 0: none");
  app.add_option("--time", timed, "Elements to measure with; 0: none");
  app.add_option("--blocks", blocks, "Thread blocks per multiprocessor to measure with");
  app.add_option("--seed", seed, "Of the gradients; another one each time unless given");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }

  const runtime::CudaStatus status = runtime::cuda_status();
  if (status.unavailable) {
    std::cerr << "gpu_check: " << *status.unavailable << '\n';
    return 1;
  }
  bool all_good = true;
  nlohmann::json report = {{"device", status.detail},
                           {"cuda", build_config::kCudaVersion},
                           {"revision", build_config::kGitRevision},
                           {"verification", nlohmann::json::array()},
                           {"timings", nlohmann::json::array()}};
  if (verified != 0) {
    report["verification"] = verification_json(verified, seed, all_good);
  }
  if (timed != 0) {
    for (const unsigned count : blocks) {
      for (const nlohmann::json& row : timing_json(timed, seed, count)) {
        report["timings"].push_back(row);
      }
    }
  }
  if (output.empty()) {
    std::cout << report.dump(2) << '\n';
  } else {
    std::ofstream file(output);
    file << report.dump(2) << '\n';
    if (!file.flush()) {
      throw RuntimeFailure("cannot write " + output);
    }
  }
  return all_good ? 0 : 1;
}

}  // namespace
}  // namespace rackrail::bench

int main(int argc, char** argv) {
  try {
    return rackrail::bench::run(argc, argv);
  } catch (const std::exception& error) {
    std::cerr << "gpu_check: " << error.what() << '\n';
    return 1;
  }
}
