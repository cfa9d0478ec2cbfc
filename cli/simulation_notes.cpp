#include "cli/simulation_notes.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/parse_units.hpp"
#include "cli/table.hpp"
#include "plan/cost_model.hpp"
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
        "what messages cost the CPU is left out on {} ({}…), where they take {} of the cores at "
        "full "
        "rate; give these machines their 'cores' in the cluster file to include it",
        machines.size() == 1 ? "1 machine" : fmt::format("{} machines", machines.size()),
        *machines.begin(), percent(share)));
  }
}

/// Names of ranks without a device class, of one kind of vertex or any.
std::vector<std::string> ranks_without_class(const Topology& cluster,
                                             std::optional<NodeKind> kind = std::nullopt) {
  std::vector<std::string> names;
  for (std::size_t r = 0; r < cluster.rank_count(); ++r) {
    const Node& node = cluster.node(cluster.node_of(Rank(r)));
    if (node.device_class.empty() && kind.value_or(node.kind) == node.kind) {
      names.push_back(node.name);
    }
  }
  return names;
}

constexpr const char* kNameTheClass =
    "name the class with --device-class (such as A100) or in the cluster file";

/// "codecs and sums run at the rates of H100".
std::string default_rates() {
  return fmt::format("codecs and sums run at the rates of {}", plan::default_gpu().name);
}

/// Empty where the profile does not say on what.
std::string profiled_on(const plan::Workload& workload) {
  return workload.device_class.empty()
             ? std::string()
             : fmt::format("compute times are those of the {} that '{}' was profiled on",
                           workload.device_class, workload.name);
}

void note_unknown_bursts(const Topology& cluster, sim::NetworkLevel level,
                         std::vector<std::string>& notes) {
  if (level == sim::NetworkLevel::kPacket && topology::longest_burst_time(cluster) > Duration()) {
    notes.emplace_back(
        "--network packet ignores the bursts of links: each packet is sent at the link's "
        "bandwidth");
  }
}

}  // namespace

std::optional<std::string> unscaled_compute_note(const Topology& cluster,
                                                 const plan::Workload& workload) {
  const std::vector<std::string> without_class = ranks_without_class(cluster);
  if (workload.device_class.empty() || without_class.empty()) {
    return std::nullopt;
  }
  return fmt::format("{} no device class: {}; {}", one_and_more(without_class, "rank"),
                     profiled_on(workload), kNameTheClass);
}

std::optional<std::string> gpus_without_class_note(const Topology& cluster) {
  const std::vector<std::string> gpus = ranks_without_class(cluster, NodeKind::kGpu);
  if (gpus.empty()) {
    return std::nullopt;
  }
  return fmt::format("{} no device class: {}; {}", one_and_more(gpus, "GPU"), default_rates(),
                     kNameTheClass);
}

std::optional<std::string> without_class_note(const Topology& cluster,
                                              const plan::Workload& workload) {
  const std::optional<std::string> gpus = gpus_without_class_note(cluster);
  const std::string compute = profiled_on(workload);
  if (!gpus || compute.empty()) {
    return gpus ? gpus : unscaled_compute_note(cluster, workload);
  }
  return fmt::format("{} no device class: {}, and {}; {}",
                     one_and_more(ranks_without_class(cluster), "rank"), compute, default_rates(),
                     kNameTheClass);
}

std::optional<std::string> unknown_class_note(const Topology& cluster) {
  std::map<std::string, std::vector<std::string>> unknown;  // ranks by class
  std::map<std::string, std::string> taken_as;
  for (std::size_t r = 0; r < cluster.rank_count(); ++r) {
    const Node& node = cluster.node(cluster.node_of(Rank(r)));
    if (!node.device_class.empty() && node.figures == nullptr &&
        plan::find_device_class(node.device_class) == nullptr &&
        !plan::is_measured(cluster, Rank(r))) {
      unknown[node.device_class].push_back(node.name);
      taken_as.emplace(node.device_class, plan::device_class_of(node).name);
    }
  }
  if (unknown.empty()) {
    return std::nullopt;
  }
  std::vector<std::string> parts;
  for (const auto& [name, ranks] : unknown) {
    parts.push_back(fmt::format("{} the unknown device class '{}', taken as {}",
                                one_and_more(ranks, "rank"), name, taken_as.at(name)));
  }
  return fmt::format("{}; 'device_classes' in the cluster file may give other figures",
                     fmt::join(parts, "; "));
}

std::vector<std::string> say_notes(const Session& session, const Topology& cluster,
                                   std::vector<std::string> notes) {
  if (auto note = unknown_class_note(cluster)) {
    notes.insert(notes.begin(), *std::move(note));
  }
  for (const std::string& note : notes) {
    session.note("note: " + note);
  }
  return notes;
}

std::vector<std::string> simulation_notes(const Topology& cluster, sim::NetworkLevel level,
                                          const plan::Workload* workload) {
  std::vector<std::string> notes;
  note_uncharged_cores(cluster, notes);
  if (auto note = workload == nullptr ? gpus_without_class_note(cluster)
                                      : without_class_note(cluster, *workload)) {
    notes.push_back(*std::move(note));
  }
  note_unknown_bursts(cluster, level, notes);
  return notes;
}

std::vector<std::string> notes_on_plan(const plan::Plan& plan, const plan::Workload& workload,
                                       const Topology& cluster, sim::NetworkLevel level) {
  std::vector<std::string> notes = simulation_notes(cluster, level, &workload);
  if (const std::int64_t steps = plan.compression_warmup_steps; steps > 0) {
    notes.push_back(
        fmt::format("times are of steps with compression; the first {} send FP32 and take {}",
                    steps, to_string(plan.prediction.warmup_step_time)));
  }
  return notes;
}

}  // namespace rackrail::cli
