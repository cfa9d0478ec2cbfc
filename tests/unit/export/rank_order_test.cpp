#include <catch2/catch.hpp>
#include <cstdio>
#include <map>
#include <sstream>
#include <string>

#include "base/error.hpp"
#include "export/exporter.hpp"
#include "export/rank_text.hpp"
#include "topology/reader.hpp"

namespace rackrail::exporting {

namespace {

/// Racks of two hosts with two GPUs each; a leaf per NIC number where they are rails.
topology::Topology racks(int count, bool are_rails) {
  return topology::read_cluster_text(
             "racks.yaml",
             "name: racks\n"
             "node_types:\n"
             "  box:\n"
             "    gpus: 2\n"
             "    device_class: A100\n"
             "    pcie: { bandwidth: 31.5 GB/s, latency: 500 ns }\n"
             "    nics: { count: 2, bandwidth: 200 Gbit/s, latency: 1 us, devices: [mlx5_0, "
             "mlx5_1] }\n"
             "racks: { count: " +
                 std::to_string(count) +
                 ", hosts: 2 }\n"
                 "network:\n"
                 "  wiring: " +
                 (are_rails ? "rail-optimised" : "leaf-spine") +
                 "\n"
                 "  spine: { count: 4, bandwidth: 200 Gbit/s, latency: 1 us }\n")
      .topology;
}

std::map<std::string, std::string> files_of(const char* kind, const topology::Topology& cluster) {
  std::map<std::string, std::string> files;
  for (const ExportedFile& file : exporter_of(kind).write({cluster}, {})) {
    files[file.name] = file.content;
  }
  return files;
}

/// What a shell script prints where `hostname` and `torchrun` say what they are given.
std::string output_of(std::string script, const std::string& host) {
  script.erase(script.find("exec torchrun"), 5);  // a shell has no function of that name
  const std::string command =
      "hostname() { echo " + host + "; }; torchrun() { echo \"$@\"; }; " + script;
  std::string quoted = "sh -c '";
  for (const char c : command) {
    quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  }
  std::FILE* pipe = popen((quoted + "' rank train.py 2>&1").c_str(), "r");
  REQUIRE(pipe != nullptr);
  std::string text;
  for (int c = std::fgetc(pipe); c != EOF; c = std::fgetc(pipe)) {
    text += static_cast<char>(c);
  }
  pclose(pipe);
  return text;
}

}  // namespace

TEST_CASE("hostfiles have the hosts in the order of ranks", "[export]") {
  const auto files = files_of("rank-order", racks(2, false));
  CHECK(files.at("hostfile.openmpi") ==
        "host0 slots=2\nhost1 slots=2\nhost2 slots=2\nhost3 slots=2\n");
  CHECK(files.at("hostfile.slurm") == "host0\nhost0\nhost1\nhost1\nhost2\nhost2\nhost3\nhost3\n");
}

TEST_CASE("the script for torchrun knows its host by the short name and by the long one",
          "[export]") {
  const std::string script = files_of("rank-order", racks(2, false)).at("torchrun.sh");
  CHECK(output_of(script, "host2.cluster.example") ==
        "--nnodes=4 --node-rank=2 --nproc-per-node=2 --master-addr=host0 --master-port=29500 "
        "train.py\n");
  CHECK(output_of(script, "host0").find("--node-rank=0") != std::string::npos);
  CHECK(output_of(script, "host22") == "host22 is none of the 4 hosts of this job\n");
}

TEST_CASE("an order that no launcher can start is refused", "[export]") {
  const topology::Topology cluster =
      topology::read_cluster_text("mixed.csv",
                                  "source,target,bandwidth,latency\n"
                                  "gpu0,s,1 GB/s,1 us\ngpu1,s,1 GB/s,1 us\ngpu2,s,1 GB/s,1 us\n"
                                  "vertex,role,host\n"
                                  "gpu0,rank,a\ngpu1,rank,b\ngpu2,rank,a\n")
          .topology;
  CHECK_THROWS_AS(host_slots(cluster), ConfigError);
}

TEST_CASE("names that a shell would read otherwise are refused", "[export]") {
  for (const char* name : {"n`id`1", "n1;reboot", "$HOME", "a b", "-n", "n1\nn2", ""}) {
    CAPTURE(name);
    const std::vector<HostSlots> hosts{{name, 1}};
    CHECK_THROWS_AS(require_plain_names(hosts), ConfigError);
  }
  const std::vector<HostSlots> plain{{"gpu-01.rack_2.example", 1}};
  CHECK_NOTHROW(require_plain_names(plain));
}

TEST_CASE("a node with its domain knows itself by the name without it", "[export]") {
  const std::vector<HostSlots> hosts{{"n1.a.example", 1}, {"n2.a.example", 1}};
  CHECK(output_of(torchrun_script(hosts), "n2").find("--node-rank=1") != std::string::npos);
  CHECK(output_of(torchrun_script(hosts), "n2.a.example").find("--node-rank=1") !=
        std::string::npos);
}

TEST_CASE("Kubernetes gets a label for each tier of hosts, the outermost level first", "[export]") {
  const auto files = files_of("kueue", racks(2, false));
  CHECK(files.at("labels.sh")
            .find("kubectl label --overwrite node host2 fabric.topograph.run/tier-0=group1\n") !=
        std::string::npos);
  CHECK(files.at("topology.yaml")
            .find("  - nodeLabel: fabric.topograph.run/tier-0\n"
                  "  - nodeLabel: kubernetes.io/hostname\n") != std::string::npos);
  CHECK(
      files.at("annotations.yaml").find("podset-preferred-topology: fabric.topograph.run/tier-0") !=
      std::string::npos);
  CHECK_THROWS_AS(files_of("kueue", racks(1, false)), ConfigError);
}

TEST_CASE("NCCL's settings follow from adapters, rails and uplinks", "[export]") {
  const std::string rails = files_of("nccl-env", racks(2, true)).at("nccl.env");
  CHECK(rails.find("export NCCL_IB_HCA==mlx5_0,mlx5_1\n") != std::string::npos);
  CHECK(rails.find("export NCCL_CROSS_NIC=0\n") != std::string::npos);
  CHECK(rails.find("export NCCL_IB_QPS_PER_CONNECTION=4\n") != std::string::npos);
  const std::string leaves = files_of("nccl-env", racks(2, false)).at("nccl.env");
  CHECK(leaves.find("NCCL_CROSS_NIC") == std::string::npos);
  CHECK(leaves.find("NCCL_IB_HCA") != std::string::npos);
}

}  // namespace rackrail::exporting
