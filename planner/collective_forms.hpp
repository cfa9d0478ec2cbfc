// How a collective that runs alone is divided: a family's schedules for it, and slices of their
// transfers. Whoever says which family is fastest for a message looks at these: schedule_table, and
// more finely `rackrail simulate --collective --schedule best`, which has one size to look at.
//
// Finer rounds and slices fill a pipeline sooner and cost a start-up each, so a time first falls
// and then rises with them. A family's forms are series of ever more transfers, one for each way
// that it goes (trees of a forest), and one series after the other is tried until two forms in a
// row save nothing worth while; then slices of the best form, and of the best of other series that
// are nearly as fast, by a factor again and again, until that does not.
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
#include "planner/collective_form.hpp"
#include "planner/schedule_family.hpp"

namespace rackrail::planner {

/// More messages than this are not made of a collective only to fill its pipeline sooner.
inline constexpr std::int64_t kMostMessages = 200'000;

/// How finely transfers are cut into slices.
struct SliceSearch {
  std::int64_t most_messages = kMostMessages;
  std::int64_t factor = 4;      ///< between the numbers of cuts that are tried
  double worthwhile = 0.98;     ///< times the time so far: with more, no finer ones are tried
  double another_form = 0.995;  ///< times the time so far: forms whose bound is above are left out
  /// Transfers of forms, those that series were left before too, that are simulated all the same at
  /// the end: of small buffers on few ranks, then, nothing is missed.
  std::size_t most_left_out = 0;
};
/// Where one size is looked at, not a table of them.
inline constexpr SliceSearch kSlicesOfOneSize{.most_messages = 600'000,
                                              .factor = 2,
                                              .worthwhile = 0.995,
                                              .another_form = 0.998,
                                              .most_left_out = 100'000};

struct FormOptions {
  bool may_have_rates = true;  ///< routes
  bool is_of_one_size = false;
  /// Where the usual limit is above; what may have more where one size is looked at keeps that.
  std::size_t most_transfers = SIZE_MAX;
};

/// Up to 130,000 transfers, of which a simulation takes a second, or ten where many flows share a
/// link, and 2,000,000 where one size is looked at; from kVeryManyRanks on 65,000 and 1,200,000 (of
/// an all-reduce 600,000), as each takes longer to be made. Where one size is looked at, forests
/// whose trees settle, rings past slow members and grids of groups along uneven lanes have up to
/// kMostPlannedTransfers, trees on grids and meshes four times as many. `topology` and `router`
/// must outlive the forms.
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
  /// Precondition: there is a form. One of no more transfers than the one before begins a series.
  explicit DivisionSearch(std::vector<FormShape> forms, SliceSearch slices = {});

  /// The first of equally fast ones. A series is left when two of its forms in a row are no faster;
  /// what cannot be faster than SliceSearch::another_form times the best so far, by its bound, is
  /// not simulated, and is none of the two. The larger a buffer, the finer is its best form: a
  /// series begins one form before the one that was its best at the next smaller size that was
  /// asked for, and slices with those that were best there. `elements` is positive.
  DividedCollective fastest(std::int64_t elements, const TimeBelow& time);
  /// The same where a time is known already that others reach: what cannot be faster than that by
  /// its bound is not simulated either. None where that is all.
  /// Where `time` is not exact, the best of several series are compared by `exact`, the likeliest
  /// first, each only until it is known to be no faster; none then where none is faster than
  /// `known`. Else `exact` is empty.
  std::optional<DividedCollective> fastest(std::int64_t elements, const TimeBelow& time,
                                           std::optional<Duration> known,
                                           const TimeBelow& exact = {});

 private:
  struct Series {
    std::size_t begin = 0;
    std::size_t end = 0;
  };
  using BestForms = std::vector<std::size_t>;  ///< by series
  /// What was best at some size.
  struct Known {
    BestForms forms;
    std::size_t form = 0;   ///< of all
    std::int64_t cuts = 1;  ///< of its transfers, into slices
  };

  /// At the next smaller size, if there is one.
  const Known* known_below(std::int64_t elements) const;
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
  /// Also the number of cuts.
  std::pair<DividedCollective, std::int64_t> in_finer_slices(DividedCollective best,
                                                             std::int64_t elements,
                                                             const TimeBelow& time) const;
  /// The best of all forms in whole transfers, as many as SliceSearch::most_left_out allows.
  DividedCollective among_left_out(DividedCollective best, std::int64_t elements,
                                   const TimeBelow& time) const;

  /// The first of them is the best by times that are not exact, the others are in their order.
  std::optional<DividedCollective> exactly_fastest(const std::vector<DividedCollective>& candidates,
                                                   std::int64_t elements,
                                                   std::optional<Duration> known,
                                                   const TimeBelow& exact) const;

  std::vector<FormShape> forms_;
  SliceSearch slices_;
  std::vector<Series> series_;
  std::map<std::int64_t, Known> known_;  ///< by elements
};

/// Of one size.
DividedCollective fastest_division(std::span<const FormShape> forms, std::int64_t elements,
                                   const TimeBelow& time);
/// The same where every simulation runs to its end.
DividedCollective fastest_division(
    std::span<const FormShape> forms, std::int64_t elements,
    const std::function<Duration(std::size_t form, std::int64_t slice_elements)>& time);

}  // namespace rackrail::planner
