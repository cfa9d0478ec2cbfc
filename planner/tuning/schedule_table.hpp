// Which schedule is fastest at which message size, on one cluster.
//
// Small messages pay for latency (number of hops in a row), large ones for the bytes over the
// narrowest link, so the best family changes with the size: at each power of two, and between them
// at crossovers that bisection finds. Times are the cost model's, of the all-reduce alone on the
// idle cluster.
//
// Work. A family's α–β bound (plan/alpha_beta.hpp) is no simulation and never more than one, so at
// each size families are simulated in the order of their bounds until the next bound exceeds the
// best time: what is left out cannot win. Nor can what took more than twice the best time for a
// smaller buffer, as long as no schedule takes half the time for more bytes. From kVeryManyRanks on
// (candidates.hpp) a family must be able to be faster by half a percent to be simulated. How a
// family's schedule is divided into rounds and slices is decided for each size
// (collective_forms.hpp). From 96 ranks on every second power of two is left out.
//
// A coarse table is for plans, whose search must not take much longer for it: every fourth power of
// two, crossovers within a factor of two, and schedules divided into 45,000 transfers at most.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/units.hpp"
#include "plan/codec.hpp"
#include "plan/cost_model.hpp"
#include "plan/plan.hpp"
#include "planner/groups/many_ranks.hpp"
#include "planner/request/policies.hpp"
#include "topology/topology.hpp"

namespace rackrail::planner {

struct ScheduleTableOptions {
  Bytes smallest = 1_KiB;  ///< rounded up to a multiple of four, the size of a float
  Bytes largest = 4_GiB;
  plan::Codec codec;  ///< on every transfer
  /// Whether every family is simulated at every size, also those that cannot win.
  bool simulate_all = false;
  bool is_coarse = false;
  /// Asked between simulations: from the first true on the table ends with the rows so far, and
  /// without crossovers between them. May be empty.
  std::function<bool()> stop;
  /// A quick one leaves out what is slower by bounds or not looked at in time; a coarse one has
  /// less of it.
  SearchEffort effort = SearchEffort::kThorough;
  /// Called now and then with a share done in 0..1; may be empty.
  std::function<void(double, const std::string&)> progress;
};

struct TableTime {
  Duration time;                    ///< at least; exactly when simulated
  bool is_simulated = false;        ///< else the α–β bound, which is more than the best time
  std::int64_t slice_elements = 0;  ///< with which it takes that long; 0 when not simulated
  std::size_t form = 0;             ///< index into collective_forms() with which it does
  bool is_cut = false;              ///< a quick search ended before all divisions were simulated
};

struct TableRow {
  Bytes bytes;                   ///< of the FP32 buffer on every rank
  std::vector<TableTime> times;  ///< by ScheduleTable::families
  std::size_t best = 0;          ///< the fastest simulated one, the first of equal ones
  std::string mechanism;         ///< of that, as plan::TransferGraph has it
};

/// From this size on another family is the best one.
struct Crossover {
  /// Smallest simulated size at which `to` is faster, within 3 % of the true one; in a coarse
  /// table at most twice that.
  Bytes bytes;
  std::size_t from = 0;
  std::size_t to = 0;
};

struct ScheduleTable {
  struct Refusal {
    std::string family;
    std::string reason;
  };
  std::vector<std::string> families;  ///< that can be used, in the order of their registry
  std::vector<Refusal> refusals;
  std::vector<TableRow> rows;  ///< by size; those that ScheduleTableOptions::stop left, maybe none
  std::vector<Crossover> crossovers;
  bool was_stopped = false;

  /// The best family by the crossovers; smaller and larger sizes count as the nearest in the table.
  const std::string& best_for(Bytes bytes) const;
  /// The crossovers as a plan keeps them, the first range from the smallest size of the table.
  std::vector<plan::ScheduleRange> ranges() const;
};

/// Deterministic. Throws ConfigError for fewer than two ranks or more than kMostTableRanks, for a
/// cluster that is not connected, sizes that leave none, and when no family accepts the codec.
ScheduleTable make_schedule_table(const topology::Topology& topology, plan::CostModel& cost_model,
                                  const ScheduleTableOptions& options);

/// Larger clusters would take gigabytes for the transfers of a ring alone.
inline constexpr std::size_t kMostTableRanks = 1024;

}  // namespace rackrail::planner
