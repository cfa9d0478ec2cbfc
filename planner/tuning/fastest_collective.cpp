#include "planner/tuning/fastest_collective.hpp"

#include <fmt/format.h>

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "base/parse_units.hpp"
#include "base/work.hpp"
#include "planner/groups/many_ranks.hpp"
#include "planner/request/interruptible.hpp"
#include "planner/request/options.hpp"
#include "planner/tuning/candidates.hpp"
#include "planner/tuning/collective_forms.hpp"

namespace rackrail::planner {

namespace {

/// For the log, of all forms of a family: what is not made yet is named by its size.
void say_decisions(const ScheduleFamily& family, const CollectiveOfOneSize& collective,
                   std::span<const CollectiveForm> forms,
                   const std::map<std::size_t, std::optional<Duration>>& times,
                   const std::optional<DividedCollective>& found) {
  for (std::size_t i = 0; i < forms.size(); ++i) {
    const FormShape& shape = forms[i].shape();
    const auto known = times.find(i);
    const bool was_tried = known != times.end();
    const bool is_best = found && found->form == i;
    collective.decisions(
        {.about = "collective of " + to_string(Bytes(4 * collective.elements)),
         .schedule = was_tried ? forms[i].graph().label()
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

std::optional<FastestCollective> fastest_collective(const ScheduleFamily& family,
                                                    const CollectiveOfOneSize& collective,
                                                    std::optional<Duration> known) {
  topology::Router router = make_router(collective.topology);
  plan::CostModel& costs = collective.costs;
  const Interruptible interruptible(costs, collective.stop);
  std::vector<CollectiveForm> forms;
  std::optional<DividedCollective> found;                // so far, by times that may not be exact
  std::map<std::size_t, std::optional<Duration>> times;  // by form
  try {
    const StoppableWork stoppable(collective.stop);
    forms = collective_forms(family, collective.what, collective.topology, router,
                             collective.codecs, {.is_of_one_size = true});
    std::vector<FormShape> shapes = shapes_of(forms);
    if (!collective.has_bounds) {
      for (FormShape& shape : shapes) {
        shape.bound.reset();
      }
    }
    const auto time = [&](std::size_t form, std::int64_t slice,
                          std::optional<Duration> limit) -> std::optional<Duration> {
      Work::ask();
      const plan::TransferGraph& graph = forms[form].graph();
      const std::optional<Duration> taken =
          limit || collective.stop
              ? costs.collective_time_below(graph, collective.elements, slice,
                                            limit.value_or(Duration(INT64_MAX)))
              : std::optional(costs.collective_time(graph, collective.elements, slice));
      if (!taken && !limit) {
        throw WorkStopped();  // it was interrupted
      }
      std::optional<Duration>& best = times[form];
      if (taken && (!best || *taken < *best)) {
        best = taken;
      }
      if (taken && (!found || *taken < found->time)) {
        found = {*taken, form, slice};
      }
      return taken;
    };
    const auto exact = [&](std::size_t form, std::int64_t slice, std::optional<Duration> limit) {
      return costs.exact_collective_time_below(forms[form].graph(), collective.elements, slice,
                                               limit.value_or(Duration(INT64_MAX)));
    };
    found = DivisionSearch(std::move(shapes), kSlicesOfOneSize)
                .fastest(collective.elements, time, known,
                         costs.has_exact_times() ? TimeBelow() : exact);
  } catch (const WorkStopped&) {
    // The best so far, if any.
  }
  if (collective.decisions) {
    say_decisions(family, collective, forms, times, found);
  }
  if (!found || (known && found->time >= *known)) {
    return std::nullopt;
  }
  return FastestCollective{found->time, found->slice_elements, forms[found->form].shared_graph()};
}

}  // namespace rackrail::planner
