#include "topology/readers/network_file.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <queue>

#include "base/text.hpp"

namespace rackrail::topology {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

std::vector<std::size_t> cables_of_hosts(const NetworkFile& network) {
  std::vector<std::size_t> counts(network.hosts.size());
  for (const HostCable& cable : network.host_cables) ++counts[cable.host];
  return counts;
}

/// The number of cables that most hosts have; the larger of two.
std::size_t usual_count(const std::vector<std::size_t>& counts) {
  std::map<std::size_t, std::size_t> hosts_with;
  for (const std::size_t count : counts) ++hosts_with[count];
  std::size_t usual = 0;
  std::size_t most = 0;
  for (const auto& [count, hosts] : hosts_with) {
    if (count > 0 && hosts >= most) std::tie(usual, most) = std::pair(count, hosts);
  }
  return usual;
}

bool is_odd(std::size_t cables, std::size_t usual) {
  constexpr std::size_t kFew = 4;  // of which half may be missing for other reasons
  return cables == 0 || (usual >= kFew && 2 * cables <= usual);
}

}  // namespace

NetworkFile network_of_groups(const std::vector<HostGroup>& groups) {
  NetworkFile network;
  for (const HostGroup& group : groups) {
    const std::size_t leaf = network.switches.size();
    network.switches.push_back({group.name, 0, false});
    for (const std::string& host : group.hosts) {
      network.host_cables.push_back({network.hosts.size(), leaf, "", {}, {}});
      network.hosts.push_back({host, "", {}});
    }
  }
  if (groups.size() < 2) return network;
  for (std::size_t g = 0; g < groups.size(); ++g) {
    network.switch_cables.push_back({g, groups.size(), 1, {}, {}});
  }
  network.switches.push_back({"network", 1, false});
  return network;
}

std::string tier_name(int tier) {
  if (tier == 0) return "nic";
  if (tier == 1) return "rack-uplink";
  return tier == 2 ? "core" : fmt::format("core{}", tier - 1);
}

int uplink_tier(int lower_level, int upper_level) {
  return std::max({lower_level, upper_level, 1});
}

void set_levels_by_distance(NetworkFile& network) {
  const std::vector<std::size_t> counts = cables_of_hosts(network);
  const std::size_t usual = usual_count(counts);
  constexpr int kFar = -1;
  std::vector<int> levels(network.switches.size(), kFar);
  std::queue<std::size_t> reached;
  for (const HostCable& cable : network.host_cables) {
    if (levels[cable.to] != kFar || is_odd(counts[cable.host], usual)) continue;
    levels[cable.to] = 0;
    reached.push(cable.to);
  }
  std::vector<std::vector<std::size_t>> neighbours(network.switches.size());
  for (const SwitchCable& cable : network.switch_cables) {
    neighbours[cable.lower].push_back(cable.upper);
    neighbours[cable.upper].push_back(cable.lower);
  }
  for (; !reached.empty(); reached.pop()) {
    for (const std::size_t next : neighbours[reached.front()]) {
      if (levels[next] != kFar) continue;
      levels[next] = levels[reached.front()] + 1;
      reached.push(next);
    }
  }
  for (std::size_t s = 0; s < levels.size(); ++s) {
    network.switches[s].level = std::max(levels[s], 0);
  }
  for (SwitchCable& cable : network.switch_cables) {
    if (network.switches[cable.lower].level > network.switches[cable.upper].level) {
      std::swap(cable.lower, cable.upper);
    }
  }
}

void leave_out_odd_hosts(NetworkFile& network) {
  const std::vector<std::size_t> counts = cables_of_hosts(network);
  const std::size_t usual = usual_count(counts);
  std::vector<std::size_t> place(network.hosts.size());
  std::vector<NetworkHost> kept;
  std::vector<std::string> odd;
  for (std::size_t h = 0; h < counts.size(); ++h) {
    place[h] = kept.size();
    if (is_odd(counts[h], usual)) {
      odd.push_back(fmt::format("'{}' ({})", network.hosts[h].name, counts[h]));
    } else {
      kept.push_back(std::move(network.hosts[h]));
    }
  }
  network.hosts = std::move(kept);
  if (odd.empty()) return;
  std::erase_if(network.host_cables,
                [&](const HostCable& cable) { return is_odd(counts[cable.host], usual); });
  for (HostCable& cable : network.host_cables) cable.host = place[cable.host];
  network.notes.push_back(fmt::format("{} left out, with at most half of the {} that most have: {}",
                                      counted(std::ssize(odd), "host"),
                                      counted(static_cast<std::int64_t>(usual), "adapter"),
                                      listed(odd)));
}

bool is_before_by_numbers(std::string_view a, std::string_view b) {
  std::size_t i = 0;
  std::size_t j = 0;
  while (i < a.size() && j < b.size()) {
    if (!is_digit(a[i]) || !is_digit(b[j])) {
      if (a[i] != b[j]) return a[i] < b[j];
      ++i;
      ++j;
      continue;
    }
    const auto number_at = [](std::string_view text, std::size_t& at) {
      const std::size_t begin = std::min(text.find_first_not_of('0', at), text.size());
      for (at = begin; at < text.size() && is_digit(text[at]);) ++at;
      return text.substr(begin, at - begin);
    };
    const std::string_view x = number_at(a, i);
    const std::string_view y = number_at(b, j);
    if (x != y) return x.size() != y.size() ? x.size() < y.size() : x < y;
  }
  if (i == a.size() && j == b.size()) return a < b;  // as 07 and 7
  return i == a.size() && j < b.size();
}

std::string listed(const std::vector<std::string>& names, std::size_t most) {
  const std::size_t shown = std::min(names.size(), most);
  std::string text = fmt::format(
      "{}", fmt::join(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(shown), ", "));
  if (shown < names.size()) text += fmt::format(" and {} more", names.size() - shown);
  return text;
}

}  // namespace rackrail::topology
