// How a collective that runs alone is divided: a family's schedules for it, and slices of their
// transfers. schedule_table searches these to find the fastest family for a message. `rackrail
// simulate --collective --schedule best`, which has only one size, searches more finely.
//
// Finer rounds and slices fill a pipeline sooner and cost a start-up each. So the time first falls
// and then rises as they become finer. A family's variants (CollectiveForm) are series of ever more
// transfers, one series for each method that it has (such as trees of a forest). The series are
// tried one after another, each until two variants in a row save too little. Then the best variant
// is cut into slices, and so are the best ones of other series that are nearly as fast. The number
// of slices grows by a factor until it saves too little.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "plan/regular_schedule.hpp"
#include "plan/transfer_graph.hpp"
#include "planner/algorithms/schedule_family.hpp"
#include "planner/groups/many_ranks.hpp"
#include "planner/pipeline/collective_form.hpp"

namespace rackrail::planner {

/// More messages than this are not made of a collective only to fill its pipeline sooner.
inline constexpr std::int64_t kMostMessages = 200'000;

/// How finely transfers are cut into slices.
struct SliceSearch {
  std::int64_t most_messages = kMostMessages;
  std::int64_t factor = 4;      ///< between the numbers of cuts that are tried
  double worthwhile = 0.98;     ///< times the time so far: with more, no finer ones are tried
  double another_form = 0.995;  ///< times the time so far: variants bounded above it are left out
};
/// Where one size is looked at, not a table of them.
inline constexpr SliceSearch kSlicesOfOneSize{
    .most_messages = 600'000, .factor = 2, .worthwhile = 0.995, .another_form = 0.998};

struct FormOptions {
  bool may_have_rates = true;   ///< routes
  bool is_of_one_size = false;  ///< not a table: there may be more transfers
  /// Where the usual limit is above; what may have more where one size is looked at keeps that.
  std::size_t most_transfers = SIZE_MAX;
};

/// The variants of one family, with up to 130,000 transfers each. Simulating one then takes a
/// second, or ten where many flows share a link. Where one size is looked at, the limit is
/// 2,000,000. From kVeryManyRanks on the limits are 65,000 and 1,200,000 (of an all-reduce
/// 600,000), as building transfers takes longer there. Where one size is looked at, some have up to
/// kMostPlannedTransfers: forests made by multiplicative weights, rings that bypass slow members,
/// and grids of groups with uneven loads. Trees on grids and meshes have up to four times as many.
/// `topology` and `router` must outlive the result.
std::vector<CollectiveForm> collective_forms(const ScheduleFamily& family, plan::Collective what,
                                             const topology::Topology& topology,
                                             topology::Router& router, const TierCodecs& codecs,
                                             const FormOptions& options = {});
std::vector<FormShape> shapes_of(std::span<const CollectiveForm> forms);

FormShape shape_of(const plan::RegularSchedule& schedule);

struct DividedCollective {
  Duration time;
  std::size_t form = 0;  ///< index into the shapes
  std::int64_t slice_elements = 0;
};

/// Simulates a form in slices; none where that is known to take no less than the limit.
using TimeBelow = std::function<std::optional<Duration>(
    std::size_t form, std::int64_t slice_elements, std::optional<Duration> limit)>;

/// Looks for the fastest division of one family's collectives, of several sizes.
class DivisionSearch {
 public:
  /// Precondition: there is a shape. A shape of no more transfers than the one before begins a
  /// series.
  explicit DivisionSearch(std::vector<FormShape> forms, SliceSearch slices = {});

  /// The fastest division for a buffer of `elements`, which is positive; of equally fast ones the
  /// first. A series ends after two variants in a row that are no faster. A variant is not
  /// simulated if, by its bound, it cannot be faster than SliceSearch::another_form times the best
  /// so far; it is then none of these two. Larger buffers have finer best variants. So a series
  /// starts one variant before its best at the next smaller size that was asked for.
  DividedCollective fastest(std::int64_t elements, const TimeBelow& time);
  /// The same with the best time `known` of other families: what cannot be faster by its bound is
  /// not simulated. None where nothing is left. Where `time` is not exact, the best of several
  /// series are compared by `exact`, the likeliest first, each only until it is known to be no
  /// faster; none then where none is faster than `known`. Otherwise `exact` is empty.
  std::optional<DividedCollective> fastest(std::int64_t elements, const TimeBelow& time,
                                           std::optional<Duration> known,
                                           const TimeBelow& exact = {});

 private:
  struct Series {
    std::size_t begin = 0;
    std::size_t end = 0;
  };
  using BestForms = std::vector<std::size_t>;  ///< by series

  std::size_t first_form(std::size_t series, std::int64_t elements) const;
  bool is_ruled_out(const FormShape& form, std::int64_t elements, std::optional<Duration> known,
                    const std::optional<DividedCollective>& best) const;
  /// The best of a series in whole transfers, none where all of it is ruled out.
  std::optional<DividedCollective> search_series(
      std::size_t series, std::int64_t elements, const TimeBelow& time,
      std::optional<Duration> known, const std::optional<DividedCollective>& best) const;
  /// Whether a form that is slow in whole transfers may be the fastest in slices.
  bool may_pass_by_slices(const DividedCollective& whole, std::int64_t elements,
                          Duration best) const;
  DividedCollective in_finer_slices(DividedCollective best, std::int64_t elements,
                                    const TimeBelow& time) const;
  /// The first of them is the best by times that are not exact, the others are in their order.
  std::optional<DividedCollective> exactly_fastest(const std::vector<DividedCollective>& candidates,
                                                   std::int64_t elements,
                                                   std::optional<Duration> known,
                                                   const TimeBelow& exact) const;

  std::vector<FormShape> forms_;
  SliceSearch slices_;
  std::vector<Series> series_;
  std::map<std::int64_t, BestForms> known_;  ///< by elements
};

/// Of one size.
DividedCollective fastest_division(std::span<const FormShape> forms, std::int64_t elements,
                                   const TimeBelow& time);
/// The same where every simulation runs to its end.
DividedCollective fastest_division(
    std::span<const FormShape> forms, std::int64_t elements,
    const std::function<Duration(std::size_t form, std::int64_t slice_elements)>& time);

}  // namespace rackrail::planner
