// `rocm-smi --showtopo` and `amd-smi topology` → Topology.
#include "topology/readers/rocm_topology.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "topology/readers/formats.hpp"
#include "topology/readers/gpu_guess.hpp"
#include "topology/readers/nccl_cluster.hpp"
#include "topology/readers/nccl_rates.hpp"

namespace rackrail::topology {
namespace {

/// The least weight of a pair with xGMI is that of one hop.
std::optional<std::int64_t> weight_of_hop(const RocmTopology& rocm) {
  std::optional<std::int64_t> least;
  for (const RocmPair& pair : rocm.pairs) {
    if (pair.is_xgmi && pair.weight && *pair.weight > 0) {
      least = std::min(least.value_or(*pair.weight), *pair.weight);
    }
  }
  return least;
}

bool is_direct(const RocmPair& pair, std::optional<std::int64_t> hop) {
  return pair.is_xgmi && (!hop || !pair.weight || *pair.weight < 2 * *hop);
}

/// Of PCIe pairs, 2 hops are over one CPU and 3 over two.
std::size_t cpu_of(const RocmTopology& rocm, std::size_t gpu, NcclMachine& machine) {
  if (!rocm.numa[gpu].empty()) {
    const auto cpu = std::ranges::find(machine.cpus, rocm.numa[gpu]);
    if (cpu == machine.cpus.end()) machine.cpus.push_back(rocm.numa[gpu]);
    return static_cast<std::size_t>(std::ranges::find(machine.cpus, rocm.numa[gpu]) -
                                    machine.cpus.begin());
  }
  for (std::size_t other = 0; other < gpu; ++other) {
    const RocmPair& pair = rocm.at(gpu, other);
    if (pair.is_xgmi || pair.hops.value_or(0) < 3) return machine.devices[other].cpu;
  }
  machine.cpus.emplace_back();
  return machine.cpus.size() - 1;
}

NcclMachine rocm_machine(const RocmTopology& rocm, std::vector<std::string>& notes) {
  NcclMachine machine;
  machine.socket_rate = default_socket_rate();
  const std::optional<std::int64_t> hop = weight_of_hop(rocm);
  bool has_far_pairs = false;
  for (std::size_t i = 0; i < rocm.gpus.size(); ++i) {
    PciDevice gpu;
    gpu.role = PciDevice::Role::kGpu;
    gpu.is_described = true;
    gpu.label = rocm.gpus[i];
    gpu.bus_id = normalised_bus_id(rocm.gpus[i]);
    gpu.number = static_cast<std::int64_t>(i);
    gpu.where = "row " + rocm.gpus[i];
    gpu.cpu = cpu_of(rocm, i, machine);
    for (std::size_t j = 0; j < rocm.gpus.size(); ++j) {
      const RocmPair& pair = rocm.at(i, j);
      has_far_pairs = has_far_pairs || (pair.is_xgmi && !is_direct(pair, hop));
      if (i == j || !is_direct(pair, hop)) continue;
      GpuLink link;
      link.kind = GpuLink::Kind::kXgmi;
      link.target = normalised_bus_id(rocm.gpus[j]);
      link.each = pair.bandwidth;
      gpu.links.push_back(std::move(link));
    }
    machine.devices.push_back(std::move(gpu));
  }
  if (machine.cpus.size() > 1) {
    notes.emplace_back("the file does not name a known CPU: 10 GB/s assumed between sockets");
  }
  if (has_far_pairs) {
    notes.push_back(
        fmt::format("XGMI of a weight above {} passes another GPU: no link of its own", *hop));
  }
  return machine;
}

/// By how many GPUs xGMI joins, and how: 8 of MI300X each to each, MI250X with pairs that have no
/// link of their own, bridges of 2 or 4 MI100.
GpuGuess rocm_guess(const RocmTopology& rocm) {
  GpuGuess guess;
  guess.named = rocm.gpu_model;
  const std::optional<std::int64_t> hop = weight_of_hop(rocm);
  std::size_t xgmi = 0;
  std::size_t direct = 0;
  for (const RocmPair& pair : rocm.pairs) {
    xgmi += pair.is_xgmi ? 1 : 0;
    direct += is_direct(pair, hop) ? 1 : 0;
  }
  if (xgmi == 0) return guess;
  const std::size_t all = rocm.gpus.size() * (rocm.gpus.size() - 1);
  if (direct < xgmi) {
    guess.likeliest = "MI250X";
    guess.evidence = "xGMI over other GPUs";
  } else if (direct == all && rocm.gpus.size() > 4) {
    guess.likeliest = "MI300X";
    guess.evidence = fmt::format("xGMI between each two of {} GPUs", rocm.gpus.size());
  } else {
    guess.likeliest = "MI100";
    guess.evidence = "xGMI between few GPUs";
  }
  return guess;
}

class RocmTopologyReader : public Reader {
 public:
  std::string_view format() const override { return "rocm-topo"; }

  bool accepts(const std::filesystem::path& /*path*/, std::string_view content) const override {
    return has_rocm_topology(content);
  }

  ReadResult read(const std::filesystem::path& path, std::string_view content,
                  const ReadOptions& options) const override {
    const RocmTopology rocm = parse_rocm_topology(path.string(), content);
    NcclFile file;
    NcclMachine machine = rocm_machine(rocm, file.notes);
    const bool has_links = std::ranges::any_of(
        machine.devices, [](const PciDevice& device) { return !device.links.empty(); });
    if (has_links) file.notes.emplace_back("one xGMI link between two GPUs assumed");
    assume_gpus(machine, overlay_of(options), rocm_guess(rocm), file.notes);
    file.machines.push_back(std::move(machine));
    return cluster_of_machines(path, std::move(file), options);
  }
};

}  // namespace

std::unique_ptr<Reader> make_rocm_topology_reader() {
  return std::make_unique<RocmTopologyReader>();
}

}  // namespace rackrail::topology
