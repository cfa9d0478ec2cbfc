#include "cli/debug_log_text.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <vector>

#include "base/parse_units.hpp"
#include "base/text.hpp"
#include "cli/table.hpp"

namespace rackrail::cli {

namespace {

using namespace sim::measured;

constexpr std::size_t kNamesShown = 8;

/// "a, b, c and 5 more".
template <typename Names>
std::string some(const Names& names) {
  std::vector<std::string> shown;
  for (const auto& name : names) {
    if (shown.size() == kNamesShown) {
      break;
    }
    shown.push_back(fmt::format("{}", name));
  }
  std::string text = fmt::format("{}", fmt::join(shown, ", "));
  if (shown.size() < names.size()) {
    text += fmt::format(" and {} more", names.size() - shown.size());
  }
  return text;
}

std::string ranks_text(const DebugLog& log) {
  if (log.ranks == 0) {
    return "not said";
  }
  std::string text = counted(static_cast<std::int64_t>(log.ranks), "rank");
  if (log.nodes > 0) {
    text += " on " + counted(static_cast<std::int64_t>(log.nodes), "host");
  }
  if (!log.ranks_that_wrote.empty() && log.ranks_that_wrote.size() < log.ranks) {
    text += fmt::format("; {} wrote this log",
                        counted(static_cast<std::int64_t>(log.ranks_that_wrote.size()), "rank"));
  }
  if (log.communicators > 1) {
    text += fmt::format("; the largest of {} communicators", log.communicators);
  }
  return text;
}

std::string channels_text(const ChannelCounts& counts) {
  std::string text = fmt::format("{} collective", counts.collective);
  for (const auto& [name, count] : {std::pair("NVLS", counts.nvls),
                                    {"CollNet", counts.collnet},
                                    {"peer-to-peer", counts.peer_to_peer}}) {
    if (count) {
      text += fmt::format(", {} {}", *count, name);
    }
  }
  return text;
}

std::string gdr_text(const DebugLog& log) {
  const std::size_t with = log.connections_with_gdr();
  const std::size_t without = log.connections_without_gdr();
  if (with + without > 0) {
    return without == 0 ? fmt::format("used by all {} connections over the network", with)
           : with == 0
               ? fmt::format("not used by any of {} connections over the network", without)
               : fmt::format("used by {} of {} connections over the network", with, with + without);
  }
  if (!log.gdr_enabled.empty() || !log.gdr_disabled.empty()) {
    return fmt::format(
        "enabled for {}, disabled for {}; no connection over the network in this log",
        log.gdr_enabled.size(), log.gdr_disabled.size());
  }
  return "no connection over the network in this log";
}

std::vector<std::string> nic_names(const DebugLog& log) {
  std::vector<std::string> names;
  for (const Nic& nic : log.nics) {
    names.push_back(fmt::format("{} ({})", nic.name, nic.kind));
  }
  return names;
}

/// Levels below the root, of the ranks that the log has.
std::optional<std::size_t> depth_of(const std::map<std::size_t, TreeNode>& tree) {
  std::size_t deepest = 0;
  for (const auto& [rank, node] : tree) {
    std::size_t depth = 0;
    for (std::optional<std::size_t> at = node.parent; at; ++depth) {
      const auto above = tree.find(*at);
      if (above == tree.end() || depth > tree.size()) {
        return std::nullopt;
      }
      at = above->second.parent;
    }
    deepest = std::max(deepest, depth);
  }
  return deepest;
}

std::string trees_text(const DebugLog& log) {
  const auto& [channel, tree] = *log.trees.begin();
  std::string text = counted(static_cast<std::int64_t>(log.trees.size()), "tree");
  std::vector<std::size_t> roots;
  for (const auto& [rank, node] : tree) {
    if (!node.parent) {
      roots.push_back(rank);
    }
  }
  const std::optional<std::size_t> depth = depth_of(tree);
  if (tree.size() == log.ranks && depth && roots.size() == 1) {
    text += fmt::format("; that of channel {} has root {} and {} below it", channel, roots.front(),
                        counted(static_cast<std::int64_t>(*depth), "level"));
  } else {
    text +=
        fmt::format("; of channel {} the log has {} of {} ranks", channel, tree.size(), log.ranks);
  }
  return text;
}

std::string rings_text(const DebugLog& log) {
  const auto& [channel, ring] = *log.rings.begin();
  constexpr std::size_t kRanksShown = 16;
  const std::size_t shown = std::min(ring.ranks.size(), kRanksShown);
  return fmt::format(
      "{}; channel {}: {}{}", counted(static_cast<std::int64_t>(log.rings.size()), "ring"), channel,
      fmt::join(std::span(ring.ranks).first(shown), " "), shown < log.ranks ? " …" : "");
}

/// Sizes that follow each other and ran alike are one row.
std::string chosen_text(const std::vector<Chosen>& list) {
  Table table({{"operation"},
               {"from", Align::kRight},
               {"to", Align::kRight},
               {"algorithm"},
               {"protocol"},
               {"channels", Align::kRight},
               {"calls", Align::kRight}});
  for (std::size_t i = 0; i < list.size();) {
    const Chosen& first = list[i];
    std::size_t calls = 0;
    std::size_t most = 0;
    std::size_t least = first.channels.value_or(0);
    std::size_t end = i;
    for (; end < list.size() && list[end].operation == first.operation &&
           list[end].algorithm == first.algorithm && list[end].protocol == first.protocol;
         ++end) {
      calls += list[end].times;
      most = std::max(most, list[end].channels.value_or(0));
      least = std::min(least, list[end].channels.value_or(0));
    }
    table.add_row({std::string(to_string(first.operation)), to_string(Bytes(first.bytes)),
                   to_string(Bytes(list[end - 1].bytes)), first.algorithm, first.protocol,
                   most == 0       ? "-"
                   : least == most ? fmt::format("{}", most)
                                   : fmt::format("{} to {}", least, most),
                   fmt::format("{}", calls)});
    i = end;
  }
  return table.to_string();
}

std::string tuning_text(const std::vector<TuningCell>& cells) {
  Table table({{"operation"},
               {"algorithm"},
               {"protocol"},
               {"latency", Align::kRight},
               {"algbw", Align::kRight}});
  for (const TuningCell& cell : cells) {
    if (cell.bandwidth_GBps > 0 && cell.operation == Operation::kAllReduce) {
      table.add_row({std::string(to_string(cell.operation)), cell.algorithm, cell.protocol,
                     fmt::format("{:.1f} us", cell.latency_us),
                     fmt::format("{:.1f} GB/s", cell.bandwidth_GBps)});
    }
  }
  return table.to_string();
}

nlohmann::json optional_number(const std::optional<std::size_t>& number) {
  return number ? nlohmann::json(*number) : nlohmann::json();
}

nlohmann::json trees_json(const DebugLog& log) {
  nlohmann::json trees = nlohmann::json::array();
  for (const auto& [channel, tree] : log.trees) {
    nlohmann::json nodes = nlohmann::json::array();
    for (const auto& [rank, node] : tree) {
      nodes.push_back(
          {{"rank", rank}, {"parent", optional_number(node.parent)}, {"children", node.children}});
    }
    trees.push_back({{"channel", channel}, {"nodes", nodes}});
  }
  return trees;
}

}  // namespace

std::string debug_log_text(const DebugLog& log) {
  std::string text;
  const auto add = [&](std::string_view name, const std::string& value) {
    text += fmt::format("{:<12} {}\n", name, value);
  };
  add("version", log.version.empty() ? "not said" : log.version);
  add("ranks", ranks_text(log));
  if (!log.hosts.empty()) {
    add("hosts", some(log.hosts));
  }
  if (log.channels) {
    add("channels", channels_text(*log.channels));
  }
  add("network", log.networks.empty() ? "not said" : some(log.networks));
  if (!log.nics.empty()) {
    add("NICs", some(nic_names(log)));
  }
  add("GPUDirect", gdr_text(log));
  if (!log.connections.empty()) {
    std::vector<std::string> kinds;
    for (const auto& [transport, count] : log.connections) {
      kinds.push_back(fmt::format("{} {}", count, transport));
    }
    add("connections", fmt::format("{}", fmt::join(kinds, ", ")));
  }
  if (!log.rings.empty()) {
    add("rings", rings_text(log));
  }
  if (!log.trees.empty()) {
    add("trees", trees_text(log));
  }
  if (log.has_multicast) {
    add("NVLS", *log.has_multicast ? "multicast is available" : "multicast is not available");
  }
  for (const Pattern& pattern : log.patterns) {
    add("pattern",
        fmt::format("{}: {} channels of {:g} GB/s inside a host and {:g} between, {}", pattern.name,
                    pattern.channels, pattern.intra_GBps, pattern.inter_GBps, pattern.paths));
  }
  for (const auto& [variable, value] : log.environment) {
    add("set", fmt::format("{}={}", variable, value));
  }
  for (const std::string& warning : log.warnings) {
    add("warning", warning);
  }
  if (!log.chosen.empty()) {
    text += "\nWhat NCCL chose:\n" + chosen_text(log.chosen);
  }
  if (!log.tuning.empty()) {
    text += "\nNCCL's estimates for all-reduce:\n" + tuning_text(log.tuning);
  }
  return text;
}

nlohmann::json debug_log_json(const DebugLog& log) {
  nlohmann::json result = {{"version", log.version},
                           {"lines", log.lines},
                           {"lines_understood", log.understood},
                           {"ranks", log.ranks},
                           {"nodes", log.nodes},
                           {"hosts", log.hosts},
                           {"communicators", log.communicators},
                           {"networks", log.networks},
                           {"connections", log.connections},
                           {"connections_with_gpudirect", log.connections_with_gdr()},
                           {"connections_without_gpudirect", log.connections_without_gdr()},
                           {"trees", trees_json(log)},
                           {"environment", log.environment},
                           {"warnings", log.warnings}};
  for (const char* list : {"nics", "rings", "chosen", "tuning"}) {
    result[list] = nlohmann::json::array();
  }
  if (log.channels) {
    result["channels"] = {{"collective", log.channels->collective},
                          {"nvls", optional_number(log.channels->nvls)},
                          {"collnet", optional_number(log.channels->collnet)},
                          {"peer_to_peer", optional_number(log.channels->peer_to_peer)}};
  }
  for (const Nic& nic : log.nics) {
    result["nics"].push_back({{"name", nic.name}, {"kind", nic.kind}});
  }
  for (const auto& [channel, ring] : log.rings) {
    result["rings"].push_back(
        {{"channel", channel}, {"ranks", ring.ranks}, {"whole", ring.is_whole}});
  }
  for (const Chosen& one : log.chosen) {
    result["chosen"].push_back({{"operation", to_string(one.operation)},
                                {"bytes", one.bytes},
                                {"algorithm", one.algorithm},
                                {"protocol", one.protocol},
                                {"channels", optional_number(one.channels)},
                                {"calls", one.times}});
  }
  for (const TuningCell& cell : log.tuning) {
    result["tuning"].push_back({{"operation", to_string(cell.operation)},
                                {"algorithm", cell.algorithm},
                                {"protocol", cell.protocol},
                                {"latency_s", cell.latency_us * 1e-6},
                                {"bandwidth_Bps", cell.bandwidth_GBps * 1e9}});
  }
  return result;
}

}  // namespace rackrail::cli
