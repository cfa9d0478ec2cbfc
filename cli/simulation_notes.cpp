#include "cli/simulation_notes.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <boost/algorithm/string/case_conv.hpp>
#include <map>
#include <set>
#include <string_view>
#include <tuple>

#include "base/parse_units.hpp"
#include "cli/table.hpp"
#include "explore/nearest.hpp"
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

void note_gpus_without_class(const Topology& cluster, std::vector<std::string>& notes) {
  if (const auto gpus = ranks_without_class(cluster, NodeKind::kGpu); !gpus.empty()) {
    notes.push_back(
        fmt::format("{} no device class, so codecs and sums are as slow as on one CPU core; {}",
                    one_and_more(gpus, "GPU"), kNameTheClass));
  }
}

/// Empty where the profile does not say on what.
std::string profiled_on(const plan::Workload& workload) {
  return workload.device_class.empty()
             ? std::string()
             : fmt::format("compute times are those of the {} that '{}' was profiled on",
                           workload.device_class, workload.name);
}

/// All known classes: first those that are part of the name, then the closest, in any case.
std::vector<std::string_view> likeliest_classes(const std::string& name) {
  const std::string wanted = boost::to_lower_copy(name);
  std::vector<std::tuple<bool, std::size_t, std::string_view>> order;
  for (const plan::DeviceClass& known : plan::device_classes()) {
    const std::string lower = boost::to_lower_copy(std::string(known.name));
    order.emplace_back(wanted.find(lower) == std::string::npos,
                       explore::edit_distance(wanted, lower), known.name);
  }
  std::ranges::sort(order);
  std::vector<std::string_view> names;
  for (const auto& [is_apart, distance, known] : order) {
    names.push_back(known);
  }
  return names;
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

std::optional<std::string> plan_without_class_note(const Topology& cluster,
                                                   const plan::Workload& workload) {
  if (ranks_without_class(cluster, NodeKind::kGpu).empty()) {
    return unscaled_compute_note(cluster, workload);
  }
  const std::string compute = profiled_on(workload);
  return fmt::format(
      "{} no device class: {}{}codecs and sums are as slow as on one CPU core, several times too "
      "slow "
      "for a GPU, which adds to the gap to the bound; {}",
      one_and_more(ranks_without_class(cluster), "rank"), compute, compute.empty() ? "" : ", and ",
      kNameTheClass);
}

std::vector<std::string> unknown_class_warnings(const Topology& cluster) {
  std::map<std::string, std::vector<std::string>> unknown;  // ranks by class
  for (std::size_t r = 0; r < cluster.rank_count(); ++r) {
    const Node& node = cluster.node(cluster.node_of(Rank(r)));
    if (!node.device_class.empty() && plan::find_device_class(node.device_class) == nullptr &&
        !plan::is_measured(cluster, Rank(r))) {
      unknown[node.device_class].push_back(node.name);
    }
  }
  std::vector<std::string> warnings;
  for (const auto& [name, ranks] : unknown) {
    warnings.push_back(fmt::format(
        "{} the unknown device class '{}', so codecs and sums are as slow as on one CPU "
        "core, several times too slow for a GPU; known classes, likeliest first: {}",
        one_and_more(ranks, "rank"), name, fmt::join(likeliest_classes(name), ", ")));
  }
  return warnings;
}

std::vector<std::string> warn_of_unknown_classes(const Session& session, const Topology& cluster) {
  std::vector<std::string> warnings = unknown_class_warnings(cluster);
  for (const std::string& warning : warnings) {
    session.note("warning: " + warning);
  }
  return warnings;
}

std::vector<std::string> say_notes(const Session& session, const Topology& cluster,
                                   std::vector<std::string> notes) {
  std::vector<std::string> all = warn_of_unknown_classes(session, cluster);
  for (std::string& note : notes) {
    session.note("note: " + note);
    all.push_back(std::move(note));
  }
  return all;
}

std::vector<std::string> simulation_notes(const Topology& cluster, sim::NetworkLevel level) {
  std::vector<std::string> notes;
  note_uncharged_cores(cluster, notes);
  note_gpus_without_class(cluster, notes);
  note_unknown_bursts(cluster, level, notes);
  return notes;
}

std::vector<std::string> notes_on_plan(const plan::Plan& plan, const plan::Workload& workload,
                                       const Topology& cluster, sim::NetworkLevel level) {
  std::vector<std::string> notes = simulation_notes(cluster, level);
  if (auto note = unscaled_compute_note(cluster, workload)) {
    notes.push_back(*std::move(note));
  }
  if (const std::int64_t steps = plan.compression_warmup_steps; steps > 0) {
    notes.push_back(
        fmt::format("times are of steps with compression; the first {} send FP32 and take {}",
                    steps, to_string(plan.prediction.warmup_step_time)));
  }
  return notes;
}

}  // namespace rackrail::cli
