#include "sim/measured/rank_list.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "base/text.hpp"
#include "sim/measured/log_lines.hpp"

namespace rackrail::sim::measured {

namespace {

constexpr std::size_t kMostRank = (std::size_t{1} << 20U) - 1;

/// Hosts and how many ranks each has. A host that lists each of its devices k times stands for k
/// hosts, whose names somebody made the same: NCCL refuses one device twice on a host.
struct Hosts {
  std::size_t nodes = 0;
  std::set<std::size_t> sizes;
  std::string renamed;  ///< such a host, and how many it stands for
};

Hosts hosts_of(const std::vector<ListedRank>& ranks) {
  std::map<std::string, std::map<std::string, std::size_t>> devices;
  for (const ListedRank& one : ranks) {
    ++devices[one.host][one.device];
  }
  Hosts hosts;
  for (const auto& [host, counts] : devices) {
    const std::size_t times = counts.begin()->second;
    const bool is_regular =
        std::ranges::all_of(counts, [&](const auto& one) { return one.second == times; });
    std::size_t total = 0;
    for (const auto& [device, count] : counts) {
      total += count;
    }
    const std::size_t copies = is_regular ? times : 1;
    hosts.nodes += copies;
    hosts.sizes.insert(total / copies);
    if (copies > 1) {
      hosts.renamed = fmt::format("host '{}' lists each device {} times: taken for {} hosts", host,
                                  copies, copies);
    }
  }
  return hosts;
}

/// The first group's ranks; notes that there are others.
std::vector<ListedRank> first_group(const std::vector<ListedRank>& list, ListedMachine& machine) {
  std::map<std::size_t, std::vector<ListedRank>> groups;
  for (const ListedRank& one : list) {
    groups[one.group].push_back(one);
  }
  const std::size_t size = groups.begin()->second.size();
  for (const auto& [group, ranks] : groups) {
    if (ranks.size() != size) {
      machine.problem = "groups of different sizes";
    }
  }
  if (groups.size() > 1) {
    machine.notes.push_back(
        fmt::format("{} groups of {} ran at the same time, and shared the network", groups.size(),
                    counted(static_cast<std::int64_t>(size), "rank")));
  }
  return groups.begin()->second;
}

}  // namespace

std::optional<ListedRank> parse_rank(std::string_view line) {
  const std::vector<std::string_view> words = words_of(line);
  ListedRank result;
  const auto arrow = std::ranges::find(words, "->");
  if (arrow != words.end() && arrow + 1 != words.end() && arrow - words.begin() >= 2 &&
      arrow[-2] == "Device") {
    const std::optional<std::size_t> rank = whole_number(arrow[-1], kMostRank);
    result.rank = rank.value_or(0);
    result.device = arrow[1];
    return rank ? std::optional(result) : std::nullopt;
  }
  bool has_rank = false;
  bool has_device = false;
  for (std::size_t i = 0; i + 1 < words.size(); ++i) {
    const std::string_view next = words[i + 1];
    if ((words[i] == "Rank" || words[i] == "#Rank") && !has_rank) {
      const std::optional<std::size_t> rank = whole_number(next, kMostRank);
      has_rank = rank.has_value();
      result.rank = rank.value_or(0);
    } else if (has_rank && words[i] == "Group") {
      result.group = whole_number(next, kMostRank).value_or(0);
    } else if (has_rank && words[i] == "on" && result.host.empty() && next != "device") {
      result.host = next;
    } else if (has_rank && words[i] == "device" && whole_number(next, kMostRank)) {
      has_device = true;
      result.device = next;
      if (i + 2 < words.size() && words[i + 2].starts_with('[')) {
        result.device += words[i + 2];
      }
      break;
    }
  }
  return has_device ? std::optional(result) : std::nullopt;
}

ListedMachine machine_of(const std::vector<ListedRank>& list) {
  ListedMachine machine;
  if (list.empty()) {
    machine.problem = "no '# Rank' lines before them";
    return machine;
  }
  std::set<std::size_t> different;
  std::size_t last = 0;
  for (const ListedRank& one : list) {
    different.insert(one.rank);
    last = std::max(last, one.rank);
  }
  if (different.size() != last + 1) {
    machine.problem =
        fmt::format("{} of {} ranks in the '# Rank' lines", different.size(), last + 1);
    return machine;
  }
  if (different.size() != list.size()) {
    // Each process measured alone, on its own host.
    machine.ranks = different.size();
    machine.nodes = 1;
    machine.notes.push_back(
        "ranks are listed more than once, as by nccl-tests without MPI: each process measured "
        "alone, on one host");
  } else {
    const std::vector<ListedRank> ranks = first_group(list, machine);
    const Hosts hosts = hosts_of(ranks);
    machine.ranks = ranks.size();
    machine.nodes = hosts.nodes;
    if (!hosts.renamed.empty()) {
      machine.notes.push_back(hosts.renamed);
    }
    if (hosts.sizes.size() != 1 && machine.problem.empty()) {
      machine.problem =
          fmt::format("{} GPUs on {} hosts, not as many on each", machine.ranks, machine.nodes);
    }
  }
  if (machine.ranks < 2 && machine.problem.empty()) {
    machine.problem = "one GPU only";
  }
  return machine;
}

}  // namespace rackrail::sim::measured
