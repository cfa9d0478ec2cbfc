// A network file, an overlay and rates by tier → Topology.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/error.hpp"
#include "base/parse_units.hpp"
#include "base/text.hpp"
#include "topology/racks.hpp"
#include "topology/readers/fabric.hpp"
#include "topology/readers/network_adapters.hpp"
#include "topology/readers/network_overlay.hpp"

namespace rackrail::topology {
namespace {

/// What links of each tier are where the file does not tell, from the overlay and the options.
class Tiers {
 public:
  Tiers(std::string file, const NetworkFile& network, const NetworkOverlay& overlay,
        const ReadOptions& options)
      : file_(std::move(file)) {
    for (const HostCable& cable : network.host_cables) add(0, cable, overlay);
    for (const SwitchCable& cable : network.switch_cables) {
      add(uplink_tier(network.switches[cable.lower].level, network.switches[cable.upper].level),
          cable, overlay);
    }
    if (overlay.host && !overlay.tiers.contains("nic") && tiers_.contains(0)) {
      tiers_[0].link = overlay.host->nic_link;
      tiers_[0].is_described = true;
    }
    if (options.overlay) require_known(overlay, options.overlay->string());
    for (auto& [number, tier] : tiers_) {
      const auto rate = options.tier_bandwidths.find(tier_name(number));
      if (rate != options.tier_bandwidths.end()) tier.link.bandwidth = rate->second;
    }
    require_rates();
  }

  const LinkClass& of(int tier) const { return tiers_.at(tier).link; }

  void add_notes(std::vector<std::string>& notes) const {
    std::vector<std::string> assumed;
    for (const auto& [number, tier] : tiers_) {
      if (tier.lacks_latency && !tier.is_described) {
        assumed.push_back(fmt::format("{} {}", tier_name(number), to_string(tier.link.latency)));
      }
    }
    if (assumed.empty()) return;
    notes.push_back(fmt::format("latency assumed: {}; 'tiers' in an overlay may say otherwise",
                                fmt::join(assumed, ", ")));
  }

 private:
  struct Tier {
    LinkClass link;
    bool is_described = false;  ///< by the overlay
    bool lacks_rate = false;    ///< of some link, in the file
    bool lacks_latency = false;
  };

  template <typename Cable>
  void add(int number, const Cable& cable, const NetworkOverlay& overlay) {
    const auto [place, is_new] = tiers_.try_emplace(number);
    Tier& tier = place->second;
    if (is_new) {
      const auto said = overlay.tiers.find(tier_name(number));
      tier.is_described = said != overlay.tiers.end();
      tier.link = tier.is_described ? said->second : undescribed_tier(tier_name(number));
    }
    tier.lacks_rate = tier.lacks_rate || !cable.bandwidth;
    tier.lacks_latency = tier.lacks_latency || !cable.latency;
  }

  void require_known(const NetworkOverlay& overlay, const std::string& overlay_file) const {
    std::vector<std::string> names;
    for (const auto& [number, tier] : tiers_) names.push_back(tier_name(number));
    for (const auto& [name, link] : overlay.tiers) {
      if (std::ranges::count(names, name) > 0) continue;
      throw ConfigError(
          ErrorContext{overlay_file, "tiers", fmt::format("tier '{}'", name),
                       fmt::format("a tier of this cluster: {}", fmt::join(names, ", "))});
    }
  }

  void require_rates() const {
    std::vector<std::string> lacking;
    std::vector<std::string> remedies;
    for (const auto& [number, tier] : tiers_) {
      if (!tier.lacks_rate || tier.link.bandwidth != Bandwidth(0)) continue;
      lacking.push_back(tier_name(number));
      remedies.push_back(fmt::format("--tier-bandwidth {}=400Gbit/s", lacking.back()));
    }
    if (lacking.empty()) return;
    throw ConfigError(
        ErrorContext{file_, "", fmt::format("no rate for links of {}", fmt::join(lacking, ", ")),
                     fmt::format("'{}' with the rates there, or 'tiers' in an overlay",
                                 fmt::join(remedies, " "))});
  }

  std::string file_;
  std::map<int, Tier> tiers_;
};

class NetworkBuilder {
 public:
  NetworkBuilder(std::string file, NetworkFile& network, const NetworkOverlay& overlay,
                 const Tiers& tiers, Topology& topology)
      : file_(std::move(file)),
        network_(network),
        overlay_(overlay),
        tiers_(tiers),
        topology_(topology) {}

  void build() {
    require_names_once();
    add_hosts();
    add_switches();
    for (const HostCable& cable : network_.host_cables) plug(cable);
    for (const SwitchCable& cable : network_.switch_cables) join(cable);
    name_racks(topology_);
  }

 private:
  void require_names_once() const {
    std::set<std::string_view> names;
    for (const NetworkHost& host : network_.hosts) require_new(names, host.name, "host");
    for (const NetworkSwitch& one : network_.switches) require_new(names, one.name, "switch");
  }

  void require_new(std::set<std::string_view>& names, const std::string& name,
                   const char* what) const {
    if (name.empty() || has_control_character(name)) {
      throw ConfigError(ErrorContext{file_, "", fmt::format("{} '{}'", what, name),
                                     "a name without control characters"});
    }
    if (!names.insert(name).second) {
      throw ConfigError(ErrorContext{file_, "",
                                     fmt::format("{} '{}', whose name another has", what, name),
                                     "one name for each host and switch"});
    }
  }

  void add_hosts() {
    if (!overlay_.host) {
      add_whole_hosts();
      return;
    }
    const NodeType& said = *overlay_.host;
    matches_ = match_adapters(network_, said, file_);
    for (std::size_t h = 0; h < network_.hosts.size(); ++h) {
      NodeType type = said;
      if (type.device_class.empty()) type.device_class = network_.hosts[h].device_class;
      if (network_.shows_adapters) name_devices(h, type);
      ports_.push_back(add_host_of_type(topology_, place(h), type));
      if (h == 0) {
        require_buildable(static_cast<std::int64_t>(
            (topology_.node_count() + topology_.link_count()) * network_.hosts.size()));
      }
    }
    note_other_gpu_counts(said);
  }

  /// Where nobody says what is inside hosts.
  void add_whole_hosts() {
    std::vector<int> cables(network_.hosts.size());
    for (const HostCable& cable : network_.host_cables) {
      matches_.push_back(static_cast<std::size_t>(cables[cable.host]++));
    }
    for (std::size_t h = 0; h < network_.hosts.size(); ++h) {
      NodeType type;
      type.is_rank_itself = true;
      type.nics = cables[h];
      type.device_class = network_.hosts[h].device_class;
      ports_.push_back(add_host_of_type(topology_, place(h), type));
    }
    network_.notes.push_back(
        "each host is one rank; 'host' in an overlay says what is inside (GPUs, NICs, NVLink)");
  }

  HostPlace place(std::size_t h) const {
    return {static_cast<int>(h), network_.hosts[h].name, "", ""};
  }

  void name_devices(std::size_t host, NodeType& type) const {
    if (!type.nic_devices.empty()) return;
    type.nic_devices.resize(static_cast<std::size_t>(type.nics));
    for (std::size_t c = 0; c < network_.host_cables.size(); ++c) {
      const HostCable& cable = network_.host_cables[c];
      if (cable.host == host && matches_[c]) type.nic_devices[*matches_[c]] = cable.adapter;
    }
  }

  void note_other_gpu_counts(const NodeType& type) {
    if (type.is_rank_itself) return;
    std::vector<std::string> others;
    for (const NetworkHost& host : network_.hosts) {
      if (host.gpus && *host.gpus != type.gpus) {
        others.push_back(fmt::format("'{}' ({})", host.name, *host.gpus));
      }
    }
    if (others.empty()) return;
    network_.notes.push_back(fmt::format(
        "the file gives {} another number of GPUs than the overlay's {}, which is taken: {}",
        counted(std::ssize(others), "host"), type.gpus, listed(others)));
  }

  void add_switches() {
    for (const NetworkSwitch& one : network_.switches) {
      Node node;
      node.name = one.name;
      node.kind = one.level == 0   ? NodeKind::kTor
                  : one.level == 1 ? NodeKind::kSpine
                                   : NodeKind::kCore;
      node.reduces = node.multicasts = one.reduces;
      switches_.push_back(topology_.add_node(std::move(node)));
    }
  }

  void plug(const HostCable& cable) {
    const std::optional<std::size_t>& match =
        matches_[static_cast<std::size_t>(&cable - network_.host_cables.data())];
    const std::vector<Port>& ports = ports_[cable.host];
    if (!network_.shows_adapters) {
      for (const Port& port : ports) plug(cable, port);
    } else if (match) {
      plug(cable, ports[*match]);
    }
  }

  void plug(const HostCable& cable, const Port& port) {
    Link link = described(tiers_.of(0), cable.bandwidth, cable.latency);
    link.from = port.node;
    link.to = switches_[cable.to];
    link.kind = LinkKind::kHostLink;
    link.tier = tier_name(0);
    link.adapter = port.adapter.empty() ? cable.adapter : port.adapter;
    topology_.add_duplex_link(std::move(link));
  }

  void join(const SwitchCable& cable) {
    const int tier =
        uplink_tier(network_.switches[cable.lower].level, network_.switches[cable.upper].level);
    Link link = described(tiers_.of(tier), cable.bandwidth, cable.latency);
    link.from = switches_[cable.lower];
    link.to = switches_[cable.upper];
    link.kind = LinkKind::kUplink;
    link.tier = tier_name(tier);
    link.overhead = link.receive_overhead = Duration();
    link.cpu_share = 0;
    if (cable.count > 1 && cable.bandwidth) {  // a message goes over one of them
      if (link.flow_bandwidth == Bandwidth(0)) link.flow_bandwidth = *cable.bandwidth;
      link.bandwidth = *cable.bandwidth * cable.count;
    }
    topology_.add_duplex_link(std::move(link));
  }

  static Link described(const LinkClass& otherwise, const std::optional<Bandwidth>& rate,
                        const std::optional<Duration>& latency) {
    Link link;
    link.bandwidth = rate.value_or(otherwise.bandwidth);
    link.latency = latency.value_or(otherwise.latency);
    link.overhead = otherwise.overhead;
    link.receive_overhead = otherwise.receive_overhead;
    link.flow_bandwidth = otherwise.flow_bandwidth;
    link.cpu_share = otherwise.cpu_share;
    return link;
  }

  std::string file_;
  NetworkFile& network_;
  const NetworkOverlay& overlay_;
  const Tiers& tiers_;
  Topology& topology_;
  std::vector<std::optional<std::size_t>> matches_;  ///< by host cable, its NIC
  std::vector<std::vector<Port>> ports_;             ///< by host
  std::vector<NodeId> switches_;
};

}  // namespace

ReadResult build_network(const std::filesystem::path& path, NetworkFile network,
                         const ReadOptions& options) {
  const std::string file = path.string();
  for (const auto& [count, what] :
       {std::pair(network.hosts.size(), "hosts"), std::pair(network.switches.size(), "switches")}) {
    if (count > kMostNetworkNames) {
      throw ConfigError(ErrorContext{file, "", fmt::format("{} {}", count, what),
                                     fmt::format("at most {}", kMostNetworkNames)});
    }
  }
  const NetworkOverlay overlay = read_network_overlay(options.overlay);
  const Tiers tiers(file, network, overlay, options);
  ReadResult result;
  result.inputs.push_back(path);
  if (options.overlay) result.inputs.push_back(*options.overlay);
  result.topology = Topology(overlay.name.value_or(path.stem().string()));
  NetworkBuilder(file, network, overlay, tiers, result.topology).build();
  result.notes = std::move(network.notes);
  tiers.add_notes(result.notes);
  return result;
}

}  // namespace rackrail::topology
