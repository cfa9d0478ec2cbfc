#include "cli/simulation_notes.hpp"

#include <fmt/format.h>

#include <map>
#include <set>

#include "cli/table.hpp"
#include "plan/device_class.hpp"

namespace rackrail::cli {

namespace {

using topology::Node;
using topology::NodeKind;
using topology::Topology;

/// "gpu0 has", "gpu0 and 2 more GPUs have".
std::string one_and_more(const std::vector<std::string>& names, const char* kind) {
  const std::size_t more = names.size() - 1;
  return more == 0 ? names.front() + " has"
                   : fmt::format("{} and {} more {}{} have", names.front(), more, kind,
                                 more == 1 ? "" : "s");
}

/// Machines of ranks that have a processor.
std::set<std::string> machines_with_processor(const Topology& cluster) {
  std::set<std::string> machines;
  for (std::size_t r = 0; r < cluster.rank_count(); ++r) {
    if (cluster.processor_of(Rank(r))) {
      const Node& node = cluster.node(cluster.node_of(Rank(r)));
      machines.insert(node.host.empty() ? node.name : node.host);
    }
  }
  return machines;
}

void note_uncharged_cores(const Topology& cluster, std::vector<std::string>& notes) {
  const std::set<std::string> charged = machines_with_processor(cluster);
  std::map<double, std::set<std::string>> uncharged;  // machines by share of their cores
  for (std::size_t i = 0; i < cluster.link_count(); ++i) {
    const topology::Link& link = cluster.link(LinkId(i));
    for (const NodeId end : {link.from, link.to}) {
      const Node& node = cluster.node(end);
      const bool is_machine = !node.host.empty() || cluster.rank_of(end).has_value();
      const std::string& machine = node.host.empty() ? node.name : node.host;
      if (link.cpu_share > 0 && link.kind != topology::LinkKind::kShared && is_machine &&
          !charged.contains(machine)) {
        uncharged[link.cpu_share].insert(machine);
      }
    }
  }
  for (const auto& [share, machines] : uncharged) {
    notes.push_back(fmt::format(
        "messages cost {} of the cores at full rate on {} ({}…), which is not charged: give the "
        "machines their 'cores'",
        percent(share),
        machines.size() == 1 ? "1 machine" : fmt::format("{} machines", machines.size()),
        *machines.begin()));
  }
}

void note_unknown_devices(const Topology& cluster, std::vector<std::string>& notes) {
  std::map<std::string, std::vector<std::string>> unknown;  // GPUs by class
  for (std::size_t r = 0; r < cluster.rank_count(); ++r) {
    const Node& node = cluster.node(cluster.node_of(Rank(r)));
    if (node.kind == NodeKind::kGpu && plan::find_device_class(node.device_class) == nullptr) {
      unknown[node.device_class].push_back(node.name);
    }
  }
  for (const auto& [name, gpus] : unknown) {
    notes.push_back(
        fmt::format("{} {}: codecs and additions at the rates of one CPU core; name the class with "
                    "--device-class or in the cluster file",
                    one_and_more(gpus, "GPU"),
                    name.empty() ? "no device class" : "the unknown device class '" + name + "'"));
  }
}

void note_unknown_bursts(const Topology& cluster, sim::NetworkLevel level,
                         std::vector<std::string>& notes) {
  if (level == sim::NetworkLevel::kPacket && topology::longest_burst_time(cluster) > Duration()) {
    notes.emplace_back(
        "links that let a burst pass at once do not at the packet level: they send each packet at "
        "their bandwidth");
  }
}

}  // namespace

std::optional<std::string> unscaled_compute_note(const Topology& cluster,
                                                 const plan::Workload& workload) {
  if (workload.device_class.empty()) {
    return std::nullopt;
  }
  std::vector<std::string> without_class;
  for (std::size_t r = 0; r < cluster.rank_count(); ++r) {
    const Node& node = cluster.node(cluster.node_of(Rank(r)));
    if (node.device_class.empty()) {
      without_class.push_back(node.name);
    }
  }
  if (without_class.empty()) {
    return std::nullopt;
  }
  return fmt::format(
      "{} no device class: compute times are those of the {} on which '{}' was profiled; name the "
      "class with --device-class or in the cluster file",
      one_and_more(without_class, "rank"), workload.device_class, workload.name);
}

std::vector<std::string> simulation_notes(const Topology& cluster, sim::NetworkLevel level) {
  std::vector<std::string> notes;
  note_uncharged_cores(cluster, notes);
  note_unknown_devices(cluster, notes);
  note_unknown_bursts(cluster, level, notes);
  return notes;
}

}  // namespace rackrail::cli
