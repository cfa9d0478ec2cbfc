// The YAML files beside the cluster's: workloads (CSV, too), training, what goes wrong. Each reader
// is given the same text; those that it is not for refuse it at its first key.
#include "plan/workload.hpp"
#include "runtime/trainer/config.hpp"
#include "sim/scenario.hpp"
#include "tests/fuzz/fuzz.hpp"
#include "topology/reader.hpp"

namespace {

rackrail::topology::Topology hosts(int count) {
  return rackrail::topology::read_cluster_text(
             "hosts.yaml",
             "name: h\nnode_types: { h: { rank: host, nics: { link: tcp } } }\n"
             "racks: { hosts: " +
                 std::to_string(count) + " }\n")
      .topology;
}

}  // namespace

std::vector<std::string> rackrail::fuzz::seeds() {
  return {
      "name: s\nsteps: 3\nslow_devices:\n  - { ranks: [0, 1], factor: 1.5, first_step: 1 }\n"
      "links:\n  - { tier: host, from: 1 s, until: 2 s, bandwidth: 10 Mbit/s }\n"
      "  - { link: host0→tor0, flapping: { every: 100 ms, for: 5 ms }, from: 4 s, until: 5 s }\n"
      "background:\n  - { from: 0, to: 3, message: 1 MB, every: 10 ms }\n",
      "tensor,elements,ready_gap_us\na,1000,5\nb,7,0.5\n",
      "name,parameters,bytes_per_parameter,forward_us,backward_us\nconv,100,4,1.5,3\n"};
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace rackrail;
  const std::string content(fuzz::text_of(data, size));
  plan::Workload workload;
  if (fuzz::accepted([&] { workload = plan::read_workload_text(content, "w.yaml"); })) {
    const std::string written = plan::to_yaml(workload);
    const plan::Workload again = plan::read_workload_text(written, "w.yaml");
    fuzz::require(again.digest() == workload.digest() && plan::to_yaml(again) == written,
                  "another workload when written and read again");
  }
  fuzz::accepted([&] { trainer::parse_training_config(content, "t.yaml").digest(); });
  static const topology::Topology kClusters[] = {hosts(1), hosts(4)};
  for (const topology::Topology& cluster : kClusters) {
    fuzz::accepted([&] { sim::parse_scenario("s.yaml", content, cluster); });
  }
  return 0;
}
