// ibnetdiscover → the network between hosts: each cable once, SHARP nodes and adapters without a
// host apart, ends that disagree named.
#include "topology/readers/ibnetdiscover.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <tuple>
#include <unordered_map>

#include "base/error.hpp"
#include "base/parse_units.hpp"
#include "base/text.hpp"
#include "topology/readers/formats.hpp"
#include "topology/readers/network_file.hpp"

namespace rackrail::topology {
namespace {

/// What an adapter's description says: "node-01 mlx5_0".
struct AdapterName {
  std::string host;  ///< empty: none, as in "MT4129 ConnectX7   Mellanox Technologies"
  std::string adapter;
};

AdapterName adapter_name(std::string_view description) {
  constexpr std::array<std::string_view, 6> kOfVendors{"Technologies",      "ConnectX",
                                                       "InfiniHost",        "Node Description",
                                                       "Mellanox HCA only", "Aggregation Node"};
  description = trimmed(description);
  for (const std::string_view part : kOfVendors) {
    // A vendor's text may also follow the name: "node-01 HCA-1 (Mellanox Technologies)".
    const std::size_t found = description.find(part);
    if (found != description.npos && description.substr(0, found).find('(') == description.npos) {
      return {};
    }
  }
  const std::size_t blank = description.find_first_of(" \t");
  const std::string_view host = description.substr(0, blank);
  if (host == "localhost" || host == "localhost.localdomain" || host == "(none)") return {};
  if (blank == description.npos) return {std::string(host), ""};
  const std::string_view rest = trimmed(description.substr(blank));
  return {std::string(host), std::string(rest.substr(0, rest.find_first_of(" \t")))};
}

/// "MF0;leaf-1:MQM9701/U1" is leaf-1 of a managed switch; others are described in free text.
std::string switch_name(std::string_view description) {
  description = trimmed(description);
  const std::size_t semicolon = description.find(';');
  if (semicolon == description.npos) return std::string(description);
  description.remove_prefix(semicolon + 1);
  const std::size_t colon = description.rfind(':');
  return std::string(trimmed(description.substr(0, colon)));
}

bool is_sharp(const IbDevice& device) {
  return device.description.find("Aggregation Node") != std::string::npos;
}

class FabricReader {
 public:
  FabricReader(std::string file, IbFabric fabric)
      : file_(std::move(file)), fabric_(std::move(fabric)) {}

  NetworkFile read() {
    network_.shows_adapters = true;
    settle_cables();
    name_switches();
    name_hosts();
    add_cables();
    set_levels_by_distance(network_);
    leave_out_odd_hosts(network_);
    add_notes();
    if (network_.hosts.empty()) {
      throw ConfigError(ErrorContext{file_, "", "no cable to an adapter with the name of a host",
                                     "adapters described as \"node-01 mlx5_0\""});
    }
    return std::move(network_);
  }

 private:
  struct Cable {
    std::size_t a = 0;
    std::size_t b = 0;
    int a_port = 0;
    int b_port = 0;
    std::optional<Bandwidth> rate;
    std::string speed;
    bool has_both_ends = false;
  };
  using PortKey = std::pair<std::size_t, int>;

  std::string end_of(std::size_t device, int port) const {
    const IbDevice& one = fabric_.devices[device];
    return fmt::format("'{}' [{}]", one.description.empty() ? one.id : one.description, port);
  }

  /// Each cable once, of what its two ends say.
  void settle_cables() {
    std::map<PortKey, std::size_t> cable_at;
    for (const IbPortLine& line : fabric_.ports) {
      const PortKey from(line.from, line.from_port);
      const PortKey to(line.to, line.to_port);
      const auto at_from = cable_at.find(from);
      const auto at_to = cable_at.find(to);
      if (at_from == cable_at.end() && at_to == cable_at.end()) {
        cable_at[from] = cable_at[to] = cables_.size();
        cables_.push_back(
            {line.from, line.to, line.from_port, line.to_port, line.rate, line.speed, false});
      } else if (at_from != cable_at.end() && at_to != cable_at.end() &&
                 at_from->second == at_to->second) {
        settle_rate(cables_[at_from->second], line);
      } else {
        const Cable& other = cables_[(at_from != cable_at.end() ? at_from : at_to)->second];
        disagreements_.push_back(
            fmt::format("line {}: {} to {}, but {} to {} elsewhere", line.line,
                        end_of(line.from, line.from_port), end_of(line.to, line.to_port),
                        end_of(other.a, other.a_port), end_of(other.b, other.b_port)));
      }
    }
  }

  void settle_rate(Cable& cable, const IbPortLine& line) {
    cable.has_both_ends = true;
    if (!cable.rate) {
      cable.rate = line.rate;
    } else if (line.rate && *line.rate != *cable.rate) {
      disagreements_.push_back(fmt::format("line {}: {} to {} at {}, but {} at the other end",
                                           line.line, end_of(line.from, line.from_port),
                                           end_of(line.to, line.to_port), line.speed, cable.speed));
      cable.rate = std::min(*cable.rate, *line.rate);
    }
  }

  /// Of switches, and of routers, which pass what hosts send as these do. Several chips of one box
  /// have one name; their ids tell them apart.
  void name_switches() {
    switch_of_.resize(fabric_.devices.size());
    std::map<std::string, int> uses;
    for (const IbDevice& device : fabric_.devices) {
      if (device.kind != IbDevice::Kind::kAdapter) ++uses[switch_name(device.description)];
    }
    for (std::size_t d = 0; d < fabric_.devices.size(); ++d) {
      const IbDevice& device = fabric_.devices[d];
      if (device.kind == IbDevice::Kind::kAdapter) continue;
      std::string name = switch_name(device.description);
      if (name.empty()) {
        name = device.id;
      } else if (uses[name] > 1) {
        name += " " + device.id;
      }
      undescribed_ += device.line == 0 ? 1 : 0;
      switch_of_[d] = network_.switches.size();
      network_.switches.push_back({std::move(name), 0, false});
    }
  }

  /// Hosts in the order of their names. A name that two adapters of the same name have is of
  /// several machines, and tells none apart.
  void name_hosts() {
    std::map<std::string, std::set<std::string>> adapters;
    std::set<std::string> ambiguous;
    for (const IbDevice& device : fabric_.devices) {
      names_.emplace_back();
      if (device.kind != IbDevice::Kind::kAdapter || is_sharp(device)) continue;
      names_.back() = adapter_name(device.description);
      const auto& [host, adapter] = names_.back();
      if (host.empty()) {
        ++nameless_;
      } else if (!adapters[host].insert(adapter).second && !adapter.empty()) {
        ambiguous.insert(host);
      }
    }
    for (AdapterName& name : names_) {
      if (ambiguous.contains(name.host)) name = {};
    }
    ambiguous_.assign(ambiguous.begin(), ambiguous.end());
    std::vector<std::string> hosts;
    for (const auto& [host, names] : adapters) {
      if (!ambiguous.contains(host)) hosts.push_back(host);
    }
    std::ranges::sort(hosts, is_before_by_numbers);
    for (std::string& host : hosts) {
      host_of_[host] = network_.hosts.size();
      network_.hosts.push_back({std::move(host), "", {}});
    }
  }

  void add_cables() {
    std::map<std::tuple<std::size_t, std::size_t, std::int64_t>, int> between_switches;
    std::map<std::size_t, int> ports_of;  // by adapter
    for (const Cable& cable : cables_) {
      const bool a_is_switch = switch_of_[cable.a].has_value();
      const bool b_is_switch = switch_of_[cable.b].has_value();
      if (!cable.has_both_ends) note_single_end(cable);
      if (a_is_switch && b_is_switch) {
        const auto [lower, upper] = std::minmax(*switch_of_[cable.a], *switch_of_[cable.b]);
        if (lower != upper) {
          ++between_switches[{lower, upper, cable.rate.value_or(Bandwidth(0)).bytes_per_second()}];
        }
      } else if (a_is_switch || b_is_switch) {
        add_host_cable(cable, a_is_switch ? cable.b : cable.a, a_is_switch ? cable.a : cable.b,
                       ports_of);
      } else {
        ++direct_;
      }
    }
    for (const auto& [key, count] : between_switches) {
      const auto& [lower, upper, rate] = key;
      std::optional<Bandwidth> each;
      if (rate > 0) each = Bandwidth(rate);
      network_.switch_cables.push_back({lower, upper, count, each, {}});
    }
  }

  void add_host_cable(const Cable& cable, std::size_t adapter, std::size_t to,
                      std::map<std::size_t, int>& ports_of) {
    if (is_sharp(fabric_.devices[adapter])) {
      network_.switches[*switch_of_[to]].reduces = true;
      return;
    }
    const AdapterName& name = names_[adapter];
    if (name.host.empty()) return;
    const int port = ++ports_of[adapter];
    network_.host_cables.push_back({host_of_.at(name.host),
                                    *switch_of_[to],
                                    port == 1 || name.adapter.empty()
                                        ? name.adapter
                                        : fmt::format("{}:{}", name.adapter, port),
                                    cable.rate,
                                    {}});
  }

  void note_single_end(const Cable& cable) {
    if (fabric_.devices[cable.a].line != 0 && fabric_.devices[cable.b].line != 0) {
      disagreements_.push_back(fmt::format("{} lists a cable to {}, which does not list it",
                                           end_of(cable.a, cable.a_port),
                                           end_of(cable.b, cable.b_port)));
    }
  }

  void add_notes() {
    std::vector<std::string>& notes = network_.notes;
    if (nameless_ > 0) {
      notes.push_back(
          fmt::format("{} without the name of a host left out", counted(nameless_, "adapter")));
    }
    if (!ambiguous_.empty()) {
      notes.push_back(fmt::format("several machines have the same name and are left out: {}",
                                  listed(ambiguous_)));
    }
    if (direct_ > 0) {
      notes.push_back(
          fmt::format("{} from adapter to adapter left out", counted(direct_, "cable")));
    }
    if (undescribed_ > 0) {
      notes.push_back(
          fmt::format("the file is a part of a fabric: it does not list the ports of {}",
                      switches(undescribed_)));
    }
    if (!disagreements_.empty()) {
      notes.push_back(
          fmt::format("{} whose ends disagree (what stands first is taken, and the lower rate): {}",
                      counted(std::ssize(disagreements_), "cable"), listed(disagreements_)));
    }
    const auto sharp = std::ranges::count_if(network_.switches,
                                             [](const NetworkSwitch& one) { return one.reduces; });
    if (sharp > 0) {
      notes.push_back(fmt::format(
          "{} with a SHARP aggregation node may add and multicast; jobs use it if SHARP is enabled",
          switches(sharp)));
    }
  }

  static std::string switches(std::int64_t count) {
    return count == 1 ? "1 switch" : fmt::format("{} switches", count);
  }

  std::string file_;
  IbFabric fabric_;
  NetworkFile network_;
  std::vector<Cable> cables_;
  std::vector<std::optional<std::size_t>> switch_of_;  ///< by device, its place in network_
  std::vector<AdapterName> names_;                     ///< by device
  std::unordered_map<std::string, std::size_t> host_of_;
  std::int64_t nameless_ = 0;
  std::int64_t direct_ = 0;
  std::int64_t undescribed_ = 0;
  std::vector<std::string> ambiguous_;
  std::vector<std::string> disagreements_;
};

class IbnetdiscoverReader : public Reader {
 public:
  std::string_view format() const override { return "ibnetdiscover"; }

  bool accepts(const std::filesystem::path&, std::string_view content) const override {
    for (const std::string_view key : {"switchguid=", "caguid=", "rtguid="}) {
      if (content.starts_with(key) || content.find("\n" + std::string(key)) != content.npos) {
        return true;
      }
    }
    return content.starts_with("#\n# Topology file: generated on");
  }

  ReadResult read(const std::filesystem::path& path, std::string_view content,
                  const ReadOptions& options) const override {
    const std::string file = path.string();
    return build_network(path, FabricReader(file, parse_ibnetdiscover(file, content)).read(),
                         options);
  }
};

}  // namespace

std::unique_ptr<Reader> make_ibnetdiscover_reader() {
  return std::make_unique<IbnetdiscoverReader>();
}

}  // namespace rackrail::topology
