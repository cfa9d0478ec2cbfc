#include "sim/nccl/calibrate.hpp"

#include <catch2/catch.hpp>

#include <cmath>
#include <filesystem>
#include <string>

#include "base/error.hpp"
#include "base/file.hpp"
#include "topology/reader.hpp"

namespace rackrail::sim::nccl::calibrate_test {

TEST_CASE("the simplex finds the minimum of known functions", "[nccl]") {
  const auto rosenbrock = [](const std::vector<double>& x) {
    const double bend = x[1] - x[0] * x[0];
    return (1 - x[0]) * (1 - x[0]) + 100 * bend * bend;
  };
  std::vector<double> at = minimise(rosenbrock, {-1.2, 1}, 0.5, 400);
  at = minimise(rosenbrock, at, 0.1, 400);
  CHECK(at[0] == Approx(1).margin(0.03));
  CHECK(at[1] == Approx(1).margin(0.06));
  int calls = 0;
  const auto counted = [&](const std::vector<double>& x) {
    ++calls;
    return std::abs(x[0]) + std::abs(x[1] - 3) + x[2] * x[2];
  };
  minimise(counted, {5, 5, 5}, 1, 60);
  CHECK(calls <= 60 + 5);
}

TEST_CASE("times that the model made give its parameters back, on other counts too", "[nccl]") {
  const topology::Topology cluster = topology::read_cluster("a100-8x8").topology;
  Parameters truth = usual_parameters();
  truth.launch_s = 33e-6;
  truth.link_efficiency = 0.77;
  truth.slice_overhead_s = 1.6e-6;
  truth.pass_share = 0.35;
  truth.tail_share = 0.6;
  std::vector<Measured> cases;
  for (const std::size_t gpus : {2U, 4U}) {
    const Machine machine(cluster, 1, gpus);
    for (std::int64_t mebi = 8; mebi <= 1024; mebi = mebi * 5 / 4) {
      Measured one;
      one.gpus_per_node = gpus;
      one.size = Bytes(mebi << 20);
      one.seconds = all_reduce(machine, one.size, {}, truth).time.seconds();
      cases.push_back(one);
    }
  }
  const Fit result = fit(cluster, cases, usual_parameters());
  CHECK(result.rms_log_error < 0.005);
  CHECK(result.fitted.size() == 5);  // nothing of the network or of NVLS
  CHECK(result.parameters.network_efficiency == usual_parameters().network_efficiency);
  CHECK(result.parameters.link_efficiency == Approx(truth.link_efficiency).epsilon(0.02));
  CHECK(result.parameters.launch_s == Approx(truth.launch_s).epsilon(0.1));
  for (const std::size_t gpus : {3U, 7U}) {
    const Machine machine(cluster, 1, gpus);
    for (const std::int64_t mebi : {8, 60, 300, 1000}) {
      CAPTURE(gpus, mebi);
      const Bytes size(mebi << 20);
      CHECK(all_reduce(machine, size, {}, result.parameters).time.seconds() ==
            Approx(all_reduce(machine, size, {}, truth).time.seconds()).epsilon(0.02));
    }
  }
  CHECK_THROWS_AS(fit(cluster, {}, usual_parameters()), ConfigError);
}

TEST_CASE("parameters survive their file, and the file is checked", "[nccl]") {
  const auto file = std::filesystem::temp_directory_path() / "rackrail-nccl-parameters-test.yaml";
  Parameters parameters = usual_parameters();
  parameters.launch_s = 12.5e-6;
  parameters.nvls_tree_chunk = Bytes(64 << 10);
  write_file_atomically(file, to_yaml(parameters, "test", "first line\nsecond line"));
  const Parameters back = read_parameters(file);
  for (const ParameterInfo& info : parameter_table()) {
    CAPTURE(info.name);
    CHECK(back.*info.member == Approx(parameters.*info.member).epsilon(1e-3));
  }
  CHECK(back.nvls_tree_chunk == parameters.nvls_tree_chunk);
  for (const std::string bad : {"launch: 3", "launch: 2 s", "link_efficiency: 1.5", "unknown: 1",
                                "channels: 0", "nvls_tree_chunk: 1 MiB"}) {
    CAPTURE(bad);
    write_file_atomically(file, bad + "\n");
    CHECK_THROWS_AS(read_parameters(file), ConfigError);
  }
  std::filesystem::remove(file);
}

}  // namespace rackrail::sim::nccl::calibrate_test
