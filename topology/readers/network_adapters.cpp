#include "topology/readers/network_adapters.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/error.hpp"
#include "base/text.hpp"

namespace rackrail::topology {
namespace {

using Matches = std::vector<std::optional<std::size_t>>;

/// Whether `name` is one of the names in `names`, which blanks separate.
bool is_one_of(std::string_view name, std::string_view names) {
  while (!(names = trimmed(names)).empty()) {
    const std::size_t end = std::min(names.find(' '), names.size());
    if (names.substr(0, end) == name) return true;
    names.remove_prefix(end);
  }
  return false;
}

Matches match_by_device(const NetworkFile& network, const NodeType& type) {
  Matches matches;
  for (const HostCable& cable : network.host_cables) {
    const auto found = std::ranges::find_if(type.nic_devices, [&](const std::string& names) {
      return is_one_of(cable.adapter, names);
    });
    matches.emplace_back();
    if (found != type.nic_devices.end()) {
      matches.back() = static_cast<std::size_t>(found - type.nic_devices.begin());
    }
  }
  return matches;
}

/// By host its cables in the order of adapters' names.
std::vector<std::vector<std::size_t>> sorted_cables(const NetworkFile& network) {
  std::vector<std::vector<std::size_t>> cables(network.hosts.size());
  for (std::size_t c = 0; c < network.host_cables.size(); ++c) {
    cables[network.host_cables[c].host].push_back(c);
  }
  for (std::vector<std::size_t>& one : cables) {
    std::ranges::stable_sort(one, [&](std::size_t a, std::size_t b) {
      return is_before_by_numbers(network.host_cables[a].adapter, network.host_cables[b].adapter);
    });
  }
  return cables;
}

class MatcherByOrder {
 public:
  MatcherByOrder(const NetworkFile& network, std::size_t nics)
      : network_(network), nics_(nics), cables_(sorted_cables(network)) {
    for (const std::vector<std::size_t>& cables : cables_) {
      if (cables.size() == nics_) ++full_sets_[names_of(cables)];
    }
  }

  Matches match(const std::string& file) const {
    Matches matches(network_.host_cables.size());
    for (std::size_t h = 0; h < cables_.size(); ++h) {
      if (cables_[h].size() > nics_) refuse(h, file);
      const std::vector<std::string> names = names_of(cables_[h]);
      const std::vector<std::string>* all = full_set_of(names);
      for (std::size_t i = 0; i < names.size(); ++i) {
        matches[cables_[h][i]] =
            all == nullptr
                ? i
                : static_cast<std::size_t>(std::ranges::find(*all, names[i]) - all->begin());
      }
    }
    return matches;
  }

 private:
  std::vector<std::string> names_of(const std::vector<std::size_t>& cables) const {
    std::vector<std::string> names;
    for (const std::size_t c : cables) names.push_back(network_.host_cables[c].adapter);
    return names;
  }

  /// The most frequent names of a host with all adapters among which these are; null: none.
  const std::vector<std::string>* full_set_of(const std::vector<std::string>& names) const {
    const std::vector<std::string>* best = nullptr;
    std::size_t most = 0;
    for (const auto& [set, hosts] : full_sets_) {
      const bool has_all = std::ranges::all_of(names, [&set = set](const std::string& name) {
        return !name.empty() && std::ranges::count(set, name) == 1;
      });
      if (has_all && hosts > most) {
        best = &set;
        most = hosts;
      }
    }
    return best;
  }

  [[noreturn]] void refuse(std::size_t host, const std::string& file) const {
    throw ConfigError(
        ErrorContext{file, fmt::format("host '{}'", network_.hosts[host].name),
                     fmt::format("{} adapters ({}) for the {} of the overlay's 'host'",
                                 cables_[host].size(), listed(names_of(cables_[host]), 16),
                                 counted(static_cast<std::int64_t>(nics_), "NIC")),
                     "as many NICs, or their names: 'nics: { devices: [...] }'"});
  }

  const NetworkFile& network_;
  std::size_t nics_;
  std::vector<std::vector<std::size_t>> cables_;
  std::map<std::vector<std::string>, std::size_t> full_sets_;
};

void note_misfits(NetworkFile& network, const Matches& matches, std::size_t nics) {
  std::vector<std::size_t> matched(network.hosts.size());
  std::vector<std::string> left_out;
  for (std::size_t c = 0; c < matches.size(); ++c) {
    const HostCable& cable = network.host_cables[c];
    if (matches[c]) {
      ++matched[cable.host];
    } else {
      left_out.push_back(fmt::format("'{} {}'", network.hosts[cable.host].name, cable.adapter));
    }
  }
  std::vector<std::string> short_of;
  for (std::size_t h = 0; h < matched.size(); ++h) {
    if (matched[h] < nics)
      short_of.push_back(fmt::format("'{}' ({})", network.hosts[h].name, matched[h]));
  }
  if (!left_out.empty()) {
    network.notes.push_back(fmt::format("{} left out, which 'nics.devices' does not name: {}",
                                        counted(std::ssize(left_out), "adapter"),
                                        listed(left_out)));
  }
  if (!short_of.empty()) {
    network.notes.push_back(fmt::format("the file shows fewer than {} adapters of {}: {}", nics,
                                        counted(std::ssize(short_of), "host"), listed(short_of)));
  }
}

}  // namespace

std::vector<std::optional<std::size_t>> match_adapters(NetworkFile& network, const NodeType& type,
                                                       const std::string& file) {
  const auto nics = static_cast<std::size_t>(type.nics);
  if (!network.shows_adapters) return Matches(network.host_cables.size());
  Matches matches = type.nic_devices.empty() ? MatcherByOrder(network, nics).match(file)
                                             : match_by_device(network, type);
  note_misfits(network, matches, nics);
  return matches;
}

}  // namespace rackrail::topology
