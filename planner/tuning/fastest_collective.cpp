#include "planner/tuning/fastest_collective.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <span>
#include <utility>

#include "base/parse_units.hpp"
#include "base/work.hpp"
#include "planner/groups/many_ranks.hpp"
#include "planner/request/interruptible.hpp"
#include "planner/tuning/candidates.hpp"

namespace rackrail::planner {

namespace {

std::vector<FormShape> shapes_with_bounds(std::span<const CollectiveForm> forms, bool has_bounds) {
  std::vector<FormShape> shapes = shapes_of(forms);
  for (FormShape& shape : shapes) {
    shape.bound = has_bounds ? shape.bound : std::nullopt;
  }
  return shapes;
}

/// For the log, of all forms of a family: what is not made yet is named by its size.
void say_decisions(const ScheduleFamily& family, const CollectiveOfOneSize& collective,
                   const FamilyDivisions& divisions,
                   const std::optional<DividedCollective>& found) {
  for (std::size_t i = 0; i < divisions.forms().size(); ++i) {
    const CollectiveForm& form = divisions.forms()[i];
    const FormShape& shape = form.shape();
    const auto known = divisions.times().find(i);
    const bool was_tried = known != divisions.times().end();
    const bool is_best = found && found->form == i;
    collective.decisions(
        {.about = "collective of " + to_string(Bytes(4 * collective.elements)),
         .schedule = was_tried ? form.graph().label()
                               : fmt::format("{} of {} transfers", family.name(), shape.transfers),
         .codecs = codecs_text(collective.codecs),
         .bound = shape.bound ? std::optional(shape.bound->at_least(collective.elements))
                              : std::optional<Duration>(),
         .time = is_best     ? std::optional(found->time)
                 : was_tried ? known->second
                             : std::optional<Duration>(),
         .outcome = is_best      ? "the fastest of its family"
                    : !was_tried ? "not simulated: by its bound, or by coarser ones, it is slower"
                    : known->second ? "slower"
                                    : "simulated until it was slower"});
  }
}

}  // namespace

FamilyDivisions::FamilyDivisions(std::vector<CollectiveForm> forms, plan::CostModel& costs,
                                 SliceSearch slices, bool has_bounds)
    : forms_(std::move(forms)),
      costs_(costs),
      search_(shapes_with_bounds(forms_, has_bounds), slices) {}

Duration FamilyDivisions::at_least(std::int64_t elements) const {
  Duration least(INT64_MAX);
  for (const CollectiveForm& form : forms_) {
    least = std::min(least, form.shape().bound.value().at_least(elements));
  }
  return least;
}

std::optional<DividedCollective> FamilyDivisions::fastest(std::int64_t elements,
                                                          const DivisionLimits& limits) {
  constexpr Duration kNever(INT64_MAX);
  found_.reset();
  times_.clear();
  was_cut_ = false;
  const auto time = [&](std::size_t form, std::int64_t slice, std::optional<Duration> below) {
    Work::ask();
    const std::optional<Duration> taken = costs_.collective_time_below(
        forms_[form].graph(), elements, slice, below.value_or(limits.slow.value_or(kNever)));
    if (!taken && !below && !limits.slow) {
      throw WorkStopped();  // it was interrupted
    }
    std::optional<Duration>& best = times_[form];
    best = taken && (!best || *taken < *best) ? taken : best;
    if (taken && (!found_ || *taken < found_->time)) {
      found_ = {*taken, form, slice};
    }
    return taken;
  };
  const auto exact = [&](std::size_t form, std::int64_t slice, std::optional<Duration> below) {
    return costs_.exact_collective_time_below(forms_[form].graph(), elements, slice,
                                              below.value_or(kNever));
  };
  try {
    return search_.fastest(elements, time, limits.known,
                           limits.compares_exactly ? exact : TimeBelow());
  } catch (const WorkStopped&) {
    was_cut_ = true;
    return found_;
  }
}

std::optional<FastestCollective> fastest_collective(const ScheduleFamily& family,
                                                    const CollectiveOfOneSize& collective,
                                                    std::optional<Duration> known) {
  topology::Router router = make_router(collective.topology);
  const Interruptible interruptible(collective.costs, collective.stop);
  const StoppableWork stoppable(collective.stop);
  std::vector<CollectiveForm> forms;
  try {
    forms = collective_forms(family, collective.what, collective.topology, router,
                             collective.codecs, {.is_of_one_size = true});
  } catch (const WorkStopped&) {
    // It has none then.
  }
  FamilyDivisions divisions(std::move(forms), collective.costs, kSlicesOfOneSize,
                            collective.has_bounds);
  const std::optional<DividedCollective> found =
      divisions.fastest(collective.elements,
                        {.known = known, .compares_exactly = !collective.costs.has_exact_times()});
  if (collective.decisions) {
    say_decisions(family, collective, divisions, found);
  }
  if (!found || (known && found->time >= *known)) {
    return std::nullopt;
  }
  return FastestCollective{found->time, found->slice_elements,
                           divisions.forms()[found->form].shared_graph()};
}

}  // namespace rackrail::planner
