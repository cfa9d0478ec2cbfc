// A schedule given by formulas: its transfers are computed when asked for, not stored.
//
// A ring over 4,096 ranks has 33 million transfers, which as a TransferGraph would take gigabytes;
// as formulas it takes none. The rules are those of plan/transfer_graph.hpp; all chunks have equal
// weight, and transfers move FP32 over the topology's routes.
//
// A Lane is the send queue of one (src, dst) pair, which has one route. It holds their transfers in
// the order in which they leave. A transfer is named by its queue and its position there.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "plan/transfer_graph.hpp"

namespace rackrail::plan {

class RegularSchedule {
 public:
  struct Lane {
    Rank src;
    Rank dst;
    std::uint32_t count = 0;
  };
  struct Place {
    std::uint32_t lane = 0;
    std::uint32_t position = 0;
    bool operator==(const Place&) const = default;
  };
  struct Dependent {
    Place place;
    bool whole = false;  ///< it moves another range: its slices wait for all slices
  };
  struct Step {
    std::uint32_t chunk_begin = 0;
    std::uint32_t chunk_count = 1;
    std::uint32_t waits = 0;  ///< how many transfers it depends on
    TransferOp op = TransferOp::kCopy;
    std::uint32_t additions_before = 0;  ///< in how many append_next_additions() lists it is
    std::uint32_t stage = 0;             ///< larger than that of all it depends on
  };

  virtual ~RegularSchedule() = default;
  RegularSchedule() = default;
  RegularSchedule(const RegularSchedule&) = delete;
  RegularSchedule& operator=(const RegularSchedule&) = delete;

  virtual std::string name() const = 0;
  virtual std::size_t rank_count() const = 0;
  virtual std::size_t chunk_count() const = 0;
  virtual std::vector<Lane> lanes() const = 0;
  virtual Step step(Place place) const = 0;
  /// Appends the transfers that depend on this one and start at its destination.
  virtual void append_dependents(Place place, std::vector<Dependent>& dependents) const = 0;
  /// Appends the additions that may be applied to the same chunks only after this one, where no
  /// dependency says so (rule 4).
  virtual void append_next_additions(Place place, std::vector<Dependent>& additions) const {
    (void)place;
    (void)additions;
  }
  /// Whether a Dependent may be `whole`.
  virtual bool mixes_ranges() const { return false; }
  /// Whether each send queue is a connection of its own. Rule 5 then holds within a queue only, and
  /// queues of the same pair of ranks share links as any others do.
  virtual bool has_connections() const { return false; }
  /// The schedule on its first send queues, as many as asked for, where the others do the same
  /// elsewhere. A transfer from another queue is replaced by the one that corresponds to it. Null
  /// where the formulas do not allow it.
  virtual std::unique_ptr<RegularSchedule> folded(std::uint32_t lanes) const {
    (void)lanes;
    return nullptr;
  }
};

/// A transfer of a regular schedule and the indices, in the same list, of what it depends on.
struct ListedStep {
  RegularSchedule::Place place;
  RegularSchedule::Step step;
  std::vector<std::uint32_t> dependencies;
};
/// All transfers in the order of stages, then send queues, then positions. For schedules that are
/// small enough to be stored.
std::vector<ListedStep> list_steps(const RegularSchedule& schedule);

/// All-reduce in a ring: rank order[i] sends n chunks of 1/n to order[i + 1] to be summed, and n
/// more to be copied, less one each time. Lane i starts at order[i]. `order` holds every rank once,
/// at least two.
std::unique_ptr<RegularSchedule> make_ring_schedule(std::vector<Rank> order);

/// All-reduce over groups of equal size: sums inside them, rings between ranks of the same position
/// in neighbouring groups, copies inside (hierarchical_ring_schedule.cpp). At least two groups that
/// hold every rank once.
std::unique_ptr<RegularSchedule> make_hierarchical_ring_schedule(
    std::vector<std::vector<Rank>> groups);

}  // namespace rackrail::plan
