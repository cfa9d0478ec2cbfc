// What scripts/gpu-check runs: holds the codecs on a GPU against those on the CPU, measures them
// against a copy by the device, and prints both as JSON.
//
// A kernel that hangs or takes the process down must not take along what was found before: with
// --output, the file is written anew before each codec, and says which is "under_way".
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <filesystem>
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

struct Options {
  std::string output;
  std::size_t verified = (std::size_t{1} << 24U) + 12'345;  // more than fills a GPU
  std::size_t timed = std::size_t{1} << 28U;
  std::uint64_t seed =
      static_cast<std::uint64_t>(std::chrono::system_clock::now().time_since_epoch().count());
  std::vector<unsigned> blocks{4096, 32, 8};
  std::vector<plan::Codec> codecs;
};

std::vector<plan::Codec> codecs_with_kernels() {
  std::vector<plan::Codec> codecs;
  for (const plan::Codec& codec : plan::all_codecs()) {
    if (runtime::has_cuda_codec(codec)) {
      codecs.push_back(codec);
    }
  }
  return codecs;
}

/// What is printed in the end, or lies in the output file all along.
class Report {
 public:
  Report(const std::string& device, const Options& options)
      : options_(options),
        json_{{"device", device},
              {"cuda", build_config::kCudaVersion},
              {"revision", build_config::kGitRevision},
              {"codecs", nlohmann::json::array()},
              {"verification", nlohmann::json::array()},
              {"timings", nlohmann::json::array()}} {
    for (const plan::Codec& codec : options.codecs) {
      json_["codecs"].push_back(plan::to_string(codec));
    }
  }

  void begin(const plan::Codec& codec) {
    json_["under_way"] = plan::to_string(codec);
    save();
  }
  void end() {
    json_.erase("under_way");
    if (options_.output.empty()) {
      std::cout << json_.dump(2) << '\n';
    } else {
      save();
    }
  }

  void add(const Verification& each) {
    all_good_ = all_good_ && each.problem.empty();
    json_["verification"].push_back({{"codec", each.codec},
                                     {"what", each.what},
                                     {"elements", options_.verified},
                                     {"seed", options_.seed},
                                     {"good", each.problem.empty()},
                                     {"problem", each.problem}});
  }
  /// All of these thread blocks per multiprocessor, in the place of those that were there.
  void set(unsigned blocks, const std::vector<Timing>& timings) {
    nlohmann::json& rows = json_["timings"];
    std::erase_if(rows.get_ref<nlohmann::json::array_t&>(), [&](const nlohmann::json& row) {
      return row["blocks_per_multiprocessor"] == blocks;
    });
    // What a copy reaches at its best is what the memory can do: by the slower of the copies before
    // and after, noise in a copy would be taken for speed of a codec.
    const Timing& last =
        timings.back().what == timings.front().what ? timings.back() : timings.front();
    const double copy = std::max(timings.front().bandwidth(), last.bandwidth());
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
      rows.push_back(row);
    }
  }

  bool all_good() const { return all_good_; }

 private:
  /// Whole or not at all, whenever the process ends.
  void save() const {
    if (options_.output.empty()) {
      return;
    }
    const std::string beside = options_.output + ".new";
    std::ofstream file(beside);
    file << json_.dump(2) << '\n';
    std::error_code failed;
    if (file.close(); file) {
      std::filesystem::rename(beside, options_.output, failed);
    }
    if (!file || failed) {
      throw RuntimeFailure("cannot write " + options_.output);
    }
  }

  const Options& options_;
  nlohmann::json json_;
  bool all_good_ = true;
};

void verify(const Options& options, Report& report) {
  for (const plan::Codec& codec : options.codecs) {
    report.begin(codec);
    try {
      for (const Verification& each : verify_codec(codec, options.verified, options.seed)) {
        report.add(each);
      }
    } catch (const std::exception& error) {
      report.add({plan::to_string(codec), "all", error.what()});
    }
  }
}

void measure(const Options& options, Report& report) {
  for (const unsigned blocks : options.blocks) {
    report.set(blocks, time_codecs(options.codecs, options.timed, options.seed, blocks,
                                   [&](const plan::Codec& codec, const auto& so_far) {
                                     report.set(blocks, so_far);
                                     report.begin(codec);
                                   }));
  }
}

int run(int argc, char** argv) {
  Options options;
  std::vector<std::string> names;
  CLI::App app{"Checks and measures rackrail's codecs on a GPU; prints JSON"};
  app.add_option("--output", options.output, "The JSON goes into this file");
  app.add_option("--verify", options.verified, "Elements to verify with; 0: none");
  app.add_option("--time", options.timed, "Elements to measure with; 0: none");
  app.add_option("--blocks", options.blocks, "Thread blocks per multiprocessor to measure with");
  app.add_option("--codec", names, "These alone; else all that there are");
  app.add_option("--seed", options.seed, "Of the gradients; another one each time unless given");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  for (const std::string& name : names) {
    options.codecs.push_back(plan::parse_codec(name));
  }
  if (names.empty()) {
    options.codecs = codecs_with_kernels();
  }
  const runtime::CudaStatus status = runtime::cuda_status();
  if (status.unavailable) {
    std::cerr << "gpu_check: " << *status.unavailable << '\n';
    return 1;
  }
  Report report(status.detail, options);
  if (options.verified != 0) {
    verify(options, report);
  }
  if (options.timed != 0) {
    measure(options, report);
  }
  report.end();
  return report.all_good() ? 0 : 1;
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
