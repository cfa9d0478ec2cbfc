// What the engine keeps of ranks, channels and collectives; for engine*.cpp and work_left.cpp only.
#pragma once

#include <array>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "sim/engine.hpp"
#include "sim/short_list.hpp"
#include "sim/urgency_queue.hpp"

namespace rackrail::sim {

inline constexpr std::int64_t kBytesPerElement = 4;

struct Engine::Stream {
  struct Waiting {
    Task task;
    Duration duration;
    Duration wake;
    Time since;
  };
  UrgencyQueue<Waiting> waiting;
  bool is_busy = false;
};

struct Engine::RankState {
  struct Step {
    std::vector<ComputePiece> pieces;
    std::vector<std::uint32_t> runs;
    Duration optimizer;
    StepTimes times;
    std::size_t open_runs = 0;  ///< not done on this rank, since it has begun
    bool has_begun = false;
  };
  plan::DeviceRates rates;
  std::vector<LinkId> processor;  ///< one link, or empty
  double core_rate = 0;           ///< bytes/s of one core on the processor link
  Stream codec;
  Stream reduce;
  Stream messages;  ///< overheads of receiving, and of groups
  Stream copies_out;
  Stream copies_in;
  Duration start;  ///< of the first step
  std::optional<std::uint32_t> program;
  std::deque<Step> steps;      ///< those that were made, without the first that are done
  std::size_t first_step = 0;  ///< number of the first of them
  std::size_t step_count = 0;  ///< of the whole program
  StepTimes watched;           ///< of Watch::first_step
  Time end = 0;                ///< of its last step so far
  std::size_t step = 0;
  std::size_t piece = 0;
  std::size_t loaded = 0;  ///< batches of data
  bool is_loading = false;
  bool is_computing = false;
  Time begun = 0;  ///< when it began to compute

  Step& at(std::size_t number) { return steps[number - first_step]; }
  /// Whether calls queue behind those ahead, as on devices whose kernels have a wake-up time.
  bool has_queue() const { return rates.wake > Duration(); }
  /// Time to add a received slice. The last result is cached, as most slices have the same size.
  Duration reduce_time(std::int64_t elements) {
    if (elements != last_elements) {
      last_elements = elements;
      last_reduce_time = Bytes(elements * kBytesPerElement) / rates.reduce + rates.launch;
    }
    return last_reduce_time;
  }
  std::int64_t last_elements = -1;
  Duration last_reduce_time;
};

struct Engine::Channel {
  /// (run, send queue of its index)
  using RunLane = std::pair<std::uint32_t, std::uint32_t>;

  bool is_busy = false;
  std::uint32_t route = 0;          ///< route_number() of it
  bool is_pausing = false;          ///< until next_departure, for what has a pace
  Time next_departure = INT64_MIN;  ///< the earliest of what has one; before all time: any
  /// Send queues whose data is ready; the most urgent first, then by owner and number. Queues that
  /// have sent everything are removed when they are reached.
  ShortList<RunLane> lanes;
};

struct Engine::Run {
  struct LaneState {
    Item next;  ///< to send: the transfer at `position`, unless the queue is at its end
    std::uint32_t position = 0;
    std::uint32_t slice = 0;
    std::uint32_t channel = 0;
    std::uint32_t count = 0;  ///< transfers of the send queue
  };
  std::shared_ptr<const GraphIndex> index;
  std::string name;
  Urgency urgency = 0;
  std::vector<LaneState> lanes;
  /// Per slice: dependencies met and, where additions are ordered, those applied before it. Beside
  /// each other, as large simulations spend most of their time waiting for memory.
  std::vector<std::uint16_t> counts;
  std::size_t counts_per_slice = 1;
  std::vector<std::uint8_t> ready;  ///< per rank
  std::vector<std::uint32_t> open;  ///< per rank: slices to send or to apply
  std::uint32_t step = 0;           ///< of the ranks' programs
  std::optional<std::uint32_t> program;
  std::size_t open_ranks = 0;  ///< on which it is not done
  bool is_kept = false;
  std::optional<Rank> owner;
  /// Per rank: arrived before it was ready.
  std::unordered_map<std::uint32_t, std::vector<std::pair<Place, std::uint32_t>>> held;
  std::vector<std::int64_t> route_bytes;  ///< by route of the index: sent over it
  bool costs_receivers = false;           ///< whether a route has an overhead at its end
  bool copies_out = false;                ///< whether a route begins with a copy to host memory
  bool copies_in = false;                 ///< whether one ends with a copy from there

  // Only where the schedule needs them.
  std::array<std::vector<std::uint32_t>, 2> slices_done;  ///< at [first_slice]: read, applied
  std::vector<bool> encoded;                              ///< per slice, of lossy transfers
  bool queues_additions = false;  ///< whether devices take additions before those ahead are applied
  std::vector<std::uint32_t> slices_queued;  ///< at [first_slice] of an addition
  /// By slice: since when an addition is there before its turn.
  std::unordered_map<std::uint32_t, Time> early_additions;
  std::unordered_map<std::uint64_t, std::vector<Place>> sharers;  ///< of what a transfer encodes
  /// By group and slice: senders whose overhead is not over.
  std::unordered_map<std::uint64_t, std::size_t> group_overheads;

  Time ready_at = 0;
  Time done_at = 0;
  Time added_at = 0;
  std::vector<bool> copied_out;        ///< per slice, where `copies_out`
  std::vector<bool> copies_out_begun;  ///< the same
  /// By side(): of each rank that copies, for how long in all.
  std::array<std::unordered_map<std::uint32_t, Duration>, 2> copying;

  std::uint16_t& met(std::uint32_t slice) { return counts[slice * counts_per_slice]; }
  std::uint16_t met(std::uint32_t slice) const { return counts[slice * counts_per_slice]; }
  /// Only where the index orders additions.
  std::uint16_t& additions_met(std::uint32_t slice) { return counts[slice * counts_per_slice + 1]; }

  /// A transfer, copied into `other` unless it is the next one of its send queue.
  const Item& item(Place place, Item& other) const {
    const LaneState& lane = lanes[place.lane];
    if (place.position == lane.position) {
      return lane.next;
    }
    index->get(place, other);
    return other;
  }
};

/// Index of Run::slices_done.
inline std::size_t side(bool at_source) { return at_source ? 0 : 1; }

inline std::uint64_t key(Place place) {
  return (std::uint64_t{place.lane} << 32U) | place.position;
}

inline std::uint64_t group_key(std::uint32_t group, std::uint32_t slice) {
  return (std::uint64_t{group} << 32U) | slice;
}

inline bool is_lossy(const GraphIndex& index, const Item& item) {
  return item.codec != 0 && index.codecs[item.codec].is_lossy();
}

/// Elements of one slice of a transfer.
inline std::int64_t slice_size(const GraphIndex& index, const Item& item, std::uint32_t slice) {
  return slice + 1 < item.slices ? index.slice_elements
                                 : item.elements - index.slice_elements * (item.slices - 1);
}

/// And what of it moves.
inline std::int64_t slice_bytes(const GraphIndex& index, const Item& item, std::uint32_t slice) {
  const std::int64_t elements = slice_size(index, item, slice);
  return item.codec == 0 ? elements * kBytesPerElement
                         : plan::encoded_size(index.codecs[item.codec], elements).count();
}

/// Whether a transfer's sender copies it to host memory.
inline bool is_copied_out(const GraphIndex& index, const Item& item) {
  return index.routes[item.route].copy_out > Bandwidth();
}

}  // namespace rackrail::sim
