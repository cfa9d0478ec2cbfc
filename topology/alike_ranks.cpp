#include "topology/alike_ranks.hpp"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>

namespace rackrail::topology {
namespace {

// A block is compared with so many others before it counts as one of its own kind.
constexpr std::size_t kMostKinds = 8;

using Block = std::vector<NodeId>;

class Swaps {
 public:
  explicit Swaps(const Topology& topology)
      : topology_(topology), image_(topology.node_count()), first_(topology.rank_count()) {
    std::iota(image_.begin(), image_.end(), 0U);
    std::iota(first_.begin(), first_.end(), 0U);
    for (std::size_t l = 0; l < topology.link_count(); ++l) {
      const Link& link = topology.link(LinkId(l));
      if (link.kind != LinkKind::kShared) {
        capacity_[key(link.from.value(), link.to.value())] += link.bandwidth.bytes_per_second();
      }
    }
  }

  /// Joins the ranks of those blocks that can be swapped.
  void compare(const std::vector<Block>& blocks) {
    std::vector<const Block*> kinds;
    for (const Block& block : blocks) {
      const auto like = std::find_if(kinds.begin(), kinds.end(), [&](const Block* other) {
        return may_be_swapped(*other, block);
      });
      if (like != kinds.end()) {
        join(**like, block);
      } else if (kinds.size() < kMostKinds) {
        kinds.push_back(&block);
      }
    }
  }

  std::uint32_t first(std::uint32_t rank) {
    while (first_[rank] != rank) {
      rank = first_[rank] = first_[first_[rank]];
    }
    return rank;
  }

 private:
  static std::uint64_t key(std::uint32_t from, std::uint32_t to) {
    return (std::uint64_t{from} << 32U) | to;
  }

  bool may_be_swapped(const Block& a, const Block& b) {
    if (a.size() != b.size()) {
      return false;
    }
    for (std::size_t i = 0; i < a.size(); ++i) {
      image_[a[i].index()] = b[i].value();
      image_[b[i].index()] = a[i].value();
    }
    const auto is_kept = [this](NodeId id) { return keeps_links(id); };
    bool is_symmetry =
        std::all_of(a.begin(), a.end(), is_kept) && std::all_of(b.begin(), b.end(), is_kept);
    for (std::size_t i = 0; i < a.size(); ++i) {
      is_symmetry =
          is_symmetry && topology_.rank_of(a[i]).has_value() == topology_.rank_of(b[i]).has_value();
      image_[a[i].index()] = a[i].value();
      image_[b[i].index()] = b[i].value();
    }
    return is_symmetry;
  }

  bool keeps_links(NodeId id) const {
    const auto is_kept = [this](LinkId number) {
      const Link& link = topology_.link(number);
      if (link.kind == LinkKind::kShared) {
        return true;
      }
      const auto image = capacity_.find(key(image_[link.from.index()], image_[link.to.index()]));
      return image != capacity_.end() &&
             image->second == capacity_.at(key(link.from.value(), link.to.value()));
    };
    const auto& out = topology_.links_out_of(id);
    const auto& in = topology_.links_into(id);
    return std::all_of(out.begin(), out.end(), is_kept) &&
           std::all_of(in.begin(), in.end(), is_kept);
  }

  void join(const Block& a, const Block& b) {
    for (std::size_t i = 0; i < a.size(); ++i) {
      if (const auto rank = topology_.rank_of(a[i])) {
        const std::uint32_t x = first(rank->value());
        const std::uint32_t y = first(topology_.rank_of(b[i])->value());
        first_[std::max(x, y)] = std::min(x, y);
      }
    }
  }

  const Topology& topology_;
  std::unordered_map<std::uint64_t, std::int64_t> capacity_;  ///< bytes per second, by key()
  std::vector<std::uint32_t> image_;                          ///< by vertex, under the swap
  std::vector<std::uint32_t> first_;                          ///< by rank
};

/// Vertices by the name of their machine or rack; none of those without.
std::map<std::string, Block> blocks_by(const Topology& topology, std::string Node::*field) {
  std::map<std::string, Block> blocks;
  for (std::size_t v = 0; v < topology.node_count(); ++v) {
    const std::string& name = topology.node(NodeId(v)).*field;
    if (!name.empty()) {
      blocks[name].emplace_back(v);
    }
  }
  return blocks;
}

/// The vertices of racks, with the switches that only one rack is linked to.
std::map<std::string, Block> racks_of(const Topology& topology) {
  std::map<std::string, Block> blocks = blocks_by(topology, &Node::rack);
  for (std::size_t v = 0; v < topology.node_count(); ++v) {
    const Node& node = topology.node(NodeId(v));
    if (!node.rack.empty() || !node.host.empty()) {
      continue;
    }
    std::set<std::string> neighbours;
    for (const LinkId link : topology.links_out_of(NodeId(v))) {
      neighbours.insert(topology.node(topology.link(link).to).rack);
    }
    for (const LinkId link : topology.links_into(NodeId(v))) {
      neighbours.insert(topology.node(topology.link(link).from).rack);
    }
    neighbours.erase("");
    if (neighbours.size() == 1) {
      blocks[*neighbours.begin()].emplace_back(v);
    }
  }
  return blocks;
}

std::vector<Block> values_of(std::map<std::string, Block> named) {
  std::vector<Block> blocks;
  for (auto& [name, block] : named) {
    blocks.push_back(std::move(block));
  }
  return blocks;
}

}  // namespace

std::vector<Rank> alike_ranks(const Topology& topology) {
  Swaps swaps(topology);
  // Machines of different racks are only alike where the racks are.
  std::map<std::string, std::vector<Block>> machines;
  for (Block& block : values_of(blocks_by(topology, &Node::host))) {
    machines[topology.node(block.front()).rack].push_back(std::move(block));
  }
  for (const auto& [rack, blocks] : machines) {
    swaps.compare(blocks);
  }
  swaps.compare(values_of(racks_of(topology)));
  std::vector<Rank> alike;
  for (std::size_t r = 0; r < topology.rank_count(); ++r) {
    alike.emplace_back(swaps.first(static_cast<std::uint32_t>(r)));
  }
  return alike;
}

}  // namespace rackrail::topology
