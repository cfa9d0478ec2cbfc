// How a collective that runs alone is divided: a family's schedules for it, and slices of their
// transfers. Whoever says which family is fastest for a message looks at the same of them
// (schedule_table, `rackrail simulate --collective --schedule best`), so they name the same one.
//
// Finer rounds and slices fill a pipeline sooner and cost a start-up each, so a time first falls
// and then rises with them. A family's forms are series of ever more transfers, one for each way
// that it goes (trees of a forest), and one series after the other is tried until two forms in a
// row save nothing worth while; then slices of the best form, by factors of four, until one does
// not.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "plan/alpha_beta.hpp"
#include "plan/regular_schedule.hpp"
#include "plan/transfer_graph.hpp"
#include "planner/schedule_family.hpp"

namespace rackrail::planner {

/// More messages than this are not made of a collective only to fill its pipeline sooner.
inline constexpr std::int64_t kMostMessages = 200'000;

/// Up to 500,000 transfers, of which a simulation takes about a second; from kVeryManyRanks on
/// 65,000, as there are more sizes and families to be compared than seconds.
std::vector<plan::TransferGraph> collective_forms(const ScheduleFamily& family,
                                                  plan::Collective what,
                                                  const topology::Topology& topology,
                                                  topology::Router& router,
                                                  const TierCodecs& codecs);

/// What decides how finely a form may be cut.
struct FormShape {
  double largest_share = 0;  ///< of the buffer that one transfer moves
  std::int64_t transfers = 0;
  std::optional<plan::AlphaBeta> bound = std::nullopt;  ///< of its time, where it is known
};
FormShape shape_of(const plan::TransferGraph& graph);
FormShape shape_of(const plan::RegularSchedule& schedule);

struct DividedCollective {
  Duration time;
  std::size_t form = 0;  ///< index into the shapes
  std::int64_t slice_elements = 0;
};

/// Simulates a form in slices; none where that is known to take no less than the limit.
using TimeBelow = std::function<std::optional<Duration>(
    std::size_t form, std::int64_t slice_elements, std::optional<Duration> limit)>;

/// The first of equally fast ones. A form of no more transfers than the one before begins a series,
/// which is left when two in a row are no faster. What cannot be faster than the best so far by its
/// bound is not simulated, and is none of the two. Precondition: there is a shape, and `elements`
/// is positive.
DividedCollective fastest_division(std::span<const FormShape> forms, std::int64_t elements,
                                   const TimeBelow& time);
/// The same where every simulation runs to its end.
DividedCollective fastest_division(
    std::span<const FormShape> forms, std::int64_t elements,
    const std::function<Duration(std::size_t form, std::int64_t slice_elements)>& time);

}  // namespace rackrail::planner
