#include "topology/alike_ranks.hpp"

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>

namespace rackrail::topology {
namespace {

// A block is compared with so many others before it counts as one of its own kind.
constexpr std::size_t kMostKinds = 8;

using Block = std::vector<NodeId>;

/// Numbers joined into sets, each of which goes by its smallest one.
class JoinedNumbers {
 public:
  explicit JoinedNumbers(std::size_t count) : first_(count) {
    std::iota(first_.begin(), first_.end(), 0U);
  }
  std::uint32_t first(std::uint32_t number) {
    while (first_[number] != number) {
      number = first_[number] = first_[first_[number]];
    }
    return number;
  }
  void join(std::uint32_t a, std::uint32_t b) {
    const std::uint32_t x = first(a);
    const std::uint32_t y = first(b);
    first_[std::max(x, y)] = std::min(x, y);
  }

 private:
  std::vector<std::uint32_t> first_;
};

bool works_alike(const Node& a, const Node& b) {
  return a.kind == b.kind && a.multicasts == b.multicasts && a.reduces == b.reduces;
}

class Swaps {
 public:
  explicit Swaps(const Topology& topology)
      : topology_(topology), image_(topology.node_count()), ranks_(topology.rank_count()) {
    std::iota(image_.begin(), image_.end(), 0U);
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
        join(**like, block, ranks_);
        swapped_.emplace_back(**like, block);
      } else if (kinds.size() < kMostKinds) {
        kinds.push_back(&block);
      }
    }
  }

  std::vector<Rank> ranks() {
    std::vector<Rank> alike;
    for (std::size_t r = 0; r < topology_.rank_count(); ++r) {
      alike.emplace_back(ranks_.first(static_cast<std::uint32_t>(r)));
    }
    return alike;
  }

  /// By those swaps that are symmetries of links in parallel one by one, too.
  AlikeParts parts() {
    LinksBetween between;
    for (std::size_t l = 0; l < topology_.link_count(); ++l) {
      if (const Link& link = topology_.link(LinkId(l)); link.kind != LinkKind::kShared) {
        between[key(link.from.value(), link.to.value())].push_back(static_cast<std::uint32_t>(l));
      }
    }
    for (auto& [ends, links] : between) {
      std::ranges::stable_sort(links, {}, [this](std::uint32_t l) { return bandwidth(l); });
    }
    JoinedNumbers links(topology_.link_count());
    JoinedNumbers ranks(topology_.rank_count());
    for (const auto& [a, b] : swapped_) {
      swap(a, b);
      std::vector<std::pair<std::uint32_t, std::uint32_t>> images;
      if (has_images(a, between, images) && has_images(b, between, images)) {
        for (const auto& [link, image] : images) links.join(link, image);
        join(a, b, ranks);
      }
      swap_back(a, b);
    }
    AlikeParts alike;
    for (std::uint32_t r = 0; r < topology_.rank_count(); ++r) {
      alike.ranks.emplace_back(ranks.first(r));
    }
    for (std::uint32_t l = 0; l < topology_.link_count(); ++l) {
      alike.links.emplace_back(links.first(l));
    }
    return alike;
  }

 private:
  /// By key(), the narrowest first.
  using LinksBetween = std::unordered_map<std::uint64_t, std::vector<std::uint32_t>>;

  Bandwidth bandwidth(std::uint32_t link) const { return topology_.link(LinkId(link)).bandwidth; }

  /// Adds the links of a block, each with the one that the swap in force takes it to; false where
  /// some are not alike one by one.
  bool has_images(const Block& block, const LinksBetween& between,
                  std::vector<std::pair<std::uint32_t, std::uint32_t>>& images_of) const {
    const auto has_image = [&](LinkId number) {
      const Link& link = topology_.link(number);
      if (link.kind == LinkKind::kShared) return true;
      const auto& links = between.at(key(link.from.value(), link.to.value()));
      const auto& images = between.at(key(image_[link.from.index()], image_[link.to.index()]));
      for (std::size_t i = 0; i < links.size(); ++i) {
        if (images.size() != links.size() || bandwidth(links[i]) != bandwidth(images[i])) {
          return false;
        }
        images_of.emplace_back(links[i], images[i]);
      }
      return true;
    };
    return std::ranges::all_of(block, [&](NodeId id) {
      return std::ranges::all_of(topology_.links_out_of(id), has_image) &&
             std::ranges::all_of(topology_.links_into(id), has_image);
    });
  }

  static std::uint64_t key(std::uint32_t from, std::uint32_t to) {
    return (std::uint64_t{from} << 32U) | to;
  }

  bool may_be_swapped(const Block& a, const Block& b) {
    if (a.size() != b.size()) {
      return false;
    }
    swap(a, b);
    const auto is_kept = [this](NodeId id) { return keeps_links(id); };
    bool is_symmetry =
        std::all_of(a.begin(), a.end(), is_kept) && std::all_of(b.begin(), b.end(), is_kept);
    for (std::size_t i = 0; i < a.size(); ++i) {
      is_symmetry = is_symmetry &&
                    topology_.rank_of(a[i]).has_value() == topology_.rank_of(b[i]).has_value() &&
                    works_alike(topology_.node(a[i]), topology_.node(b[i]));
    }
    swap_back(a, b);
    return is_symmetry;
  }

  void swap(const Block& a, const Block& b) {
    for (std::size_t i = 0; i < a.size(); ++i) {
      image_[a[i].index()] = b[i].value();
      image_[b[i].index()] = a[i].value();
    }
  }

  void swap_back(const Block& a, const Block& b) {
    for (const Block* block : {&a, &b}) {
      for (const NodeId id : *block) image_[id.index()] = id.value();
    }
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

  void join(const Block& a, const Block& b, JoinedNumbers& ranks) const {
    for (std::size_t i = 0; i < a.size(); ++i) {
      if (const auto rank = topology_.rank_of(a[i])) {
        ranks.join(rank->value(), topology_.rank_of(b[i])->value());
      }
    }
  }

  const Topology& topology_;
  std::unordered_map<std::uint64_t, std::int64_t> capacity_;  ///< bytes per second, by key()
  std::vector<std::uint32_t> image_;                          ///< by vertex, under the swap
  JoinedNumbers ranks_;
  std::vector<std::pair<Block, Block>> swapped_;
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

/// The column of the vertices that one is linked to, where those in any are of one only.
std::optional<std::uint32_t> only_column(const Topology& topology, NodeId id,
                                         const std::vector<std::optional<std::uint32_t>>& column) {
  std::optional<std::uint32_t> only;
  const auto agrees = [&](NodeId neighbour) {
    const std::optional<std::uint32_t> other = column[neighbour.index()];
    if (!other) return true;
    only = only.value_or(*other);
    return *only == *other;
  };
  const auto is_same = [&](LinkId number) {
    const Link& link = topology.link(number);
    return link.kind == LinkKind::kShared || (agrees(link.from) && agrees(link.to));
  };
  return std::ranges::all_of(topology.links_out_of(id), is_same) &&
                 std::ranges::all_of(topology.links_into(id), is_same)
             ? only
             : std::nullopt;
}

/// Of machines the first ranks, the second ones and so on, as on rails; each such column with the
/// vertices between them that are linked to no other's.
std::vector<Block> columns_of(const Topology& topology) {
  constexpr int kMostSteps = 8;  // from a rank to its NIC's switch
  std::vector<std::optional<std::uint32_t>> column(topology.node_count());
  std::map<std::string, std::uint32_t> ranks;  // by machine
  std::uint32_t count = 0;
  for (std::size_t r = 0; r < topology.rank_count(); ++r) {
    const NodeId id = topology.node_of(Rank(r));
    const std::uint32_t number = ranks[topology.node(id).host]++;
    column[id.index()] = number;
    count = std::max(count, number + 1);
  }
  for (int step = 0; step < kMostSteps; ++step) {
    const auto before = column;
    for (std::size_t v = 0; v < column.size(); ++v) {
      if (!before[v]) column[v] = only_column(topology, NodeId(v), before);
    }
    if (column == before) break;
  }
  std::vector<Block> columns(count);
  for (std::size_t v = 0; v < column.size(); ++v) {
    if (column[v]) columns[*column[v]].emplace_back(v);
  }
  return columns;
}

std::vector<Block> values_of(std::map<std::string, Block> named) {
  std::vector<Block> blocks;
  for (auto& [name, block] : named) {
    blocks.push_back(std::move(block));
  }
  return blocks;
}

/// Vertices that a block sends to and that are not of it, in order.
std::vector<NodeId> neighbours_of(const Topology& topology, const Block& block) {
  std::vector<NodeId> others;
  for (const NodeId id : block) {
    for (const LinkId number : topology.links_out_of(id)) {
      const Link& link = topology.link(number);
      if (link.kind != LinkKind::kShared && !std::ranges::binary_search(block, link.to)) {
        others.push_back(link.to);
      }
    }
  }
  std::ranges::sort(others);
  const auto twice = std::ranges::unique(others);
  others.erase(twice.begin(), twice.end());
  return others;
}

Swaps swaps_of(const Topology& topology) {
  Swaps swaps(topology);
  // What is swapped is linked to the same others: machines of different racks are only alike where
  // the racks are.
  std::map<std::vector<NodeId>, std::vector<Block>> machines;
  for (Block& block : values_of(blocks_by(topology, &Node::host))) {
    std::vector<NodeId> others = neighbours_of(topology, block);
    machines[std::move(others)].push_back(std::move(block));
  }
  for (const auto& [others, blocks] : machines) {
    swaps.compare(blocks);
  }
  swaps.compare(values_of(racks_of(topology)));
  swaps.compare(columns_of(topology));
  return swaps;
}

}  // namespace

std::vector<Rank> alike_ranks(const Topology& topology) { return swaps_of(topology).ranks(); }

AlikeParts alike_parts(const Topology& topology) { return swaps_of(topology).parts(); }

AlikeParts only_themselves(const Topology& topology) {
  AlikeParts themselves;
  for (std::size_t r = 0; r < topology.rank_count(); ++r) themselves.ranks.emplace_back(r);
  for (std::size_t l = 0; l < topology.link_count(); ++l) themselves.links.emplace_back(l);
  return themselves;
}

}  // namespace rackrail::topology
