// All-reduce over k groups of g ranks: sums inside the groups, rings between them, copies inside.
//
// The buffer has g shards of k chunks. Shard l is summed at member l of each group, g − 1 messages
// of the whole shard to each; the members l of all groups then form a ring over its chunks; at the
// end each sends the finished shard to the rest of its group. With k > 1 every rank sends
// 2(g − 1)/g of the buffer inside its group and 2(k − 1)/(g·k) of it to one rank of the next group,
// so the narrow links between groups carry g times less than those of a ring over all ranks.
#include <utility>

#include "plan/regular_schedule.hpp"

namespace rackrail::plan {

namespace {

class HierarchicalRing final : public RegularSchedule {
 public:
  HierarchicalRing(std::vector<std::vector<Rank>> groups, std::uint32_t kept_groups)
      : groups_(std::move(groups)),
        k_(static_cast<std::uint32_t>(groups_.size())),
        g_(static_cast<std::uint32_t>(groups_.front().size())),
        kept_(kept_groups) {}

  std::string name() const override { return "hierarchical-ring"; }
  std::size_t rank_count() const override { return std::size_t{k_} * g_; }
  std::size_t chunk_count() const override { return std::size_t{k_} * g_; }

  std::vector<Lane> lanes() const override {
    std::vector<Lane> lanes;
    for (std::uint32_t group = 0; group < kept_; ++group) {
      for (std::uint32_t member = 0; member < g_; ++member) {
        const Rank src = groups_[group][member];
        for (std::uint32_t offset = 1; offset < g_; ++offset) {
          lanes.push_back({src, groups_[group][(member + offset) % g_], 2});
        }
        lanes.push_back({src, groups_[(group + 1) % kept_][member], ring_steps()});
      }
    }
    return lanes;
  }

  Step step(Place place) const override {
    const Ends at = ends(place.lane);
    if (at.is_ring()) {
      const bool adds = place.position < k_ - 1;
      const std::uint32_t behind = place.position < k_ ? place.position : place.position - k_;
      const std::uint32_t owner = at.group >= behind ? at.group - behind : at.group + k_ - behind;
      return {.chunk_begin = at.member * k_ + owner,
              .waits = (place.position < k_ ? g_ - 1 : 0) + (place.position > 0 ? 1 : 0),
              .op = adds ? TransferOp::kReduce : TransferOp::kCopy,
              .additions_before = adds && g_ > 1 ? 1U : 0U,
              .stage = g_ + place.position};
    }
    if (place.position == 0) {
      return {.chunk_begin = (at.member + at.offset) % g_ * k_,
              .chunk_count = k_,
              .op = TransferOp::kReduce,
              .additions_before = at.offset > 1 ? 1U : 0U,
              .stage = at.offset};
    }
    return {.chunk_begin = at.member * k_,
            .chunk_count = k_,
            .waits = k_ + g_ - 1,
            .op = TransferOp::kCopy,
            .stage = g_ + ring_steps()};
  }

  void append_dependents(Place place, std::vector<Dependent>& dependents) const override {
    const Ends at = ends(place.lane);
    if (at.is_ring()) {
      const std::uint32_t next = at.group + 1 == kept_ ? 0 : at.group + 1;
      if (place.position + 1 < ring_steps()) {
        dependents.push_back({{ring_lane(next, at.member), place.position + 1}, false});
      }
      if (place.position + 2 >= k_) {  // a finished chunk
        append_copies_inside(next, at.member, dependents);
      }
    } else if (place.position == 0) {
      const std::uint32_t member = (at.member + at.offset) % g_;
      for (std::uint32_t position = 0; position < k_; ++position) {
        dependents.push_back({{ring_lane(at.group, member), position}, true});
      }
      append_copies_inside(at.group, member, dependents);
    }
  }

  // A member adds the shards of its group by their distance, then what the ring brings.
  void append_next_additions(Place place, std::vector<Dependent>& additions) const override {
    const Ends at = ends(place.lane);
    if (at.is_ring() || place.position > 0) {
      return;
    }
    const std::uint32_t member = (at.member + at.offset) % g_;
    if (at.offset + 1 < g_) {
      const std::uint32_t next_member = (member + g_ - at.offset - 1) % g_;
      additions.push_back({{lane(at.group, next_member, at.offset + 1), 0}, false});
      return;
    }
    const std::uint32_t before = at.group == 0 ? kept_ - 1 : at.group - 1;
    for (std::uint32_t position = 0; position + 1 < k_; ++position) {
      additions.push_back({{ring_lane(before, member), position}, true});
    }
  }

  bool mixes_ranges() const override { return g_ > 1; }

  std::unique_ptr<RegularSchedule> folded(std::uint32_t lanes) const override {
    const std::uint32_t per_group = g_ * g_;
    return lanes > 0 && lanes % per_group == 0 && k_ % (lanes / per_group) == 0
               ? std::make_unique<HierarchicalRing>(groups_, lanes / per_group)
               : nullptr;
  }

 private:
  /// Lanes are laid out by group, member and offset; 0 stands for the lane of the ring, and is
  /// last.
  struct Ends {
    std::uint32_t group = 0;
    std::uint32_t member = 0;
    std::uint32_t offset = 0;  ///< from the sender to the receiver, in their group
    bool is_ring() const { return offset == 0; }
  };
  Ends ends(std::uint32_t lane) const {
    return {lane / (g_ * g_), lane / g_ % g_, (lane % g_ + 1) % g_};
  }
  std::uint32_t lane(std::uint32_t group, std::uint32_t member, std::uint32_t offset) const {
    return (group * g_ + member) * g_ + (offset == 0 ? g_ : offset) - 1;
  }
  std::uint32_t ring_lane(std::uint32_t group, std::uint32_t member) const {
    return lane(group, member, 0);
  }
  std::uint32_t ring_steps() const { return 2 * (k_ - 1); }

  void append_copies_inside(std::uint32_t group, std::uint32_t member,
                            std::vector<Dependent>& dependents) const {
    for (std::uint32_t offset = 1; offset < g_; ++offset) {
      dependents.push_back({{lane(group, member, offset), 1}, true});
    }
  }

  std::vector<std::vector<Rank>> groups_;
  std::uint32_t k_;
  std::uint32_t g_;
  std::uint32_t kept_;  ///< groups that are not folded away
};

}  // namespace

std::unique_ptr<RegularSchedule> make_hierarchical_ring_schedule(
    std::vector<std::vector<Rank>> groups) {
  const auto count = static_cast<std::uint32_t>(groups.size());
  return std::make_unique<HierarchicalRing>(std::move(groups), count);
}

}  // namespace rackrail::plan
