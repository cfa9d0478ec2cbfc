// Names of the kinds of vertices and links, and the groupings of ranks by them.
#include <array>
#include <unordered_map>
#include <utility>

#include "topology/topology.hpp"

namespace rackrail::topology {
namespace {

constexpr std::array kNodeKinds{
    std::pair{NodeKind::kGpu, "gpu"},           std::pair{NodeKind::kCpu, "cpu"},
    std::pair{NodeKind::kPciSwitch, "pcie"},    std::pair{NodeKind::kNic, "nic"},
    std::pair{NodeKind::kNvSwitch, "nvswitch"}, std::pair{NodeKind::kHost, "host"},
    std::pair{NodeKind::kTor, "tor"},           std::pair{NodeKind::kSpine, "spine"},
    std::pair{NodeKind::kCore, "core"},         std::pair{NodeKind::kSwitch, "switch"}};

constexpr std::array kLinkKinds{
    std::pair{LinkKind::kNvlink, "nvlink"}, std::pair{LinkKind::kPcie, "pcie"},
    std::pair{LinkKind::kSocket, "socket"}, std::pair{LinkKind::kHostLink, "host-link"},
    std::pair{LinkKind::kUplink, "uplink"}, std::pair{LinkKind::kShared, "shared"},
    std::pair{LinkKind::kOther, "other"}};

template <typename Table, typename Kind>
std::string_view name_in(const Table& table, Kind kind) {
  for (const auto& [value, name] : table) {
    if (value == kind) return name;
  }
  return "unknown";
}

template <typename Kind, typename Table>
std::optional<Kind> kind_in(const Table& table, std::string_view text) {
  for (const auto& [value, name] : table) {
    if (text == name) return value;
  }
  return std::nullopt;
}

std::vector<RankGroup> ranks_by(const Topology& topology, std::string Node::*field) {
  std::vector<RankGroup> groups;
  std::unordered_map<std::string, std::size_t> index;
  for (std::size_t r = 0; r < topology.rank_count(); ++r) {
    const Node& node = topology.node(topology.node_of(Rank(r)));
    const std::string& name = node.*field;
    const auto [entry, is_new] =
        name.empty() ? std::pair{index.end(), true} : index.emplace(name, groups.size());
    if (is_new) {
      groups.push_back({name.empty() ? node.name : name, {}});
    }
    (is_new ? groups.back() : groups[entry->second]).ranks.push_back(Rank(r));
  }
  return groups;
}

}  // namespace

std::string_view to_string(NodeKind kind) { return name_in(kNodeKinds, kind); }
std::string_view to_string(LinkKind kind) { return name_in(kLinkKinds, kind); }
std::optional<NodeKind> parse_node_kind(std::string_view text) {
  return kind_in<NodeKind>(kNodeKinds, text);
}
std::optional<LinkKind> parse_link_kind(std::string_view text) {
  return kind_in<LinkKind>(kLinkKinds, text);
}

std::vector<RankGroup> ranks_by_host(const Topology& topology) {
  return ranks_by(topology, &Node::host);
}
std::vector<RankGroup> ranks_by_rack(const Topology& topology) {
  return ranks_by(topology, &Node::rack);
}

}  // namespace rackrail::topology
