#include "topology/attachments.hpp"

#include <algorithm>
#include <cstddef>
#include <string>

namespace rackrail::topology {

namespace {

/// Breadth-first walks from one rank after the other.
class Walk {
 public:
  explicit Walk(const Topology& topology)
      : topology_(topology), seen_by_(topology.node_count(), topology.rank_count()) {}

  Attachment from(Rank rank) {
    const NodeId start = topology_.node_of(rank);
    Attachment found;
    if (topology_.node(start).host.empty()) {
      return found;
    }
    queue_.assign(1, start);
    seen_by_[start.index()] = rank.index();
    for (std::size_t i = 0; i < queue_.size(); ++i) {
      visit_neighbours(queue_[i], rank, found);
    }
    return found;
  }

 private:
  void visit_neighbours(NodeId node, Rank rank, Attachment& found) {
    next_.clear();
    for (const LinkId id : topology_.links_out_of(node)) {
      const Link& link = topology_.link(id);
      if (seen_by_[link.to.index()] != rank.index() && is_inside(link, topology_.node(node).host)) {
        seen_by_[link.to.index()] = rank.index();
        next_.push_back(link.to);
      }
    }
    std::sort(next_.begin(), next_.end());
    for (const NodeId near : next_) {
      note(near, found);
      queue_.push_back(near);
    }
  }
  bool is_inside(const Link& link, const std::string& host) const {
    const Node& to = topology_.node(link.to);
    return link.kind != LinkKind::kNvlink && link.kind != LinkKind::kShared &&
           to.kind != NodeKind::kGpu && to.host == host;
  }
  void note(NodeId node, Attachment& found) const {
    const NodeKind kind = topology_.node(node).kind;
    std::optional<NodeId>* const place = kind == NodeKind::kCpu         ? &found.cpu
                                         : kind == NodeKind::kPciSwitch ? &found.pci_switch
                                         : kind == NodeKind::kNic       ? &found.nic
                                                                        : nullptr;
    if (place != nullptr && !*place) {
      *place = node;
    }
  }

  const Topology& topology_;
  std::vector<std::size_t> seen_by_;  ///< by vertex, the last rank whose walk came there
  std::vector<NodeId> queue_;
  std::vector<NodeId> next_;
};

}  // namespace

std::vector<Attachment> attachments(const Topology& topology) {
  Walk walk(topology);
  std::vector<Attachment> result;
  result.reserve(topology.rank_count());
  for (std::size_t r = 0; r < topology.rank_count(); ++r) {
    result.push_back(walk.from(Rank(r)));
  }
  return result;
}

}  // namespace rackrail::topology
