#include "planner/fastest_collective.hpp"

#include <cstdint>
#include <vector>

#include "base/work.hpp"
#include "planner/candidates.hpp"
#include "planner/collective_forms.hpp"
#include "planner/planner.hpp"

namespace rackrail::planner {

std::optional<FastestCollective> fastest_collective(const ScheduleFamily& family,
                                                    const CollectiveOfOneSize& collective,
                                                    std::optional<Duration> known) {
  topology::Router router = make_router(collective.topology);
  plan::CostModel& costs = collective.costs;
  const Interruptible interruptible(costs, collective.stop);
  std::vector<CollectiveForm> forms;
  std::optional<DividedCollective> found;  // so far, by times that may not be exact
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
  if (!found || (known && found->time >= *known)) {
    return std::nullopt;
  }
  return FastestCollective{found->time, found->slice_elements, forms[found->form].shared_graph()};
}

}  // namespace rackrail::planner
