#include "planner/fastest_collective.hpp"

#include <cstdint>
#include <vector>

#include "planner/candidates.hpp"
#include "planner/collective_forms.hpp"

namespace rackrail::planner {

std::optional<FastestCollective> fastest_collective(const ScheduleFamily& family,
                                                    const CollectiveOfOneSize& collective,
                                                    std::optional<Duration> known) {
  topology::Router router = make_router(collective.topology);
  const std::vector<CollectiveForm> forms =
      collective_forms(family, collective.what, collective.topology, router, collective.codecs,
                       {.is_of_one_size = true});
  std::vector<FormShape> shapes = shapes_of(forms);
  if (!collective.has_bounds) {
    for (FormShape& shape : shapes) {
      shape.bound.reset();
    }
  }
  const auto time = [&](std::size_t form, std::int64_t slice, std::optional<Duration> limit) {
    const plan::TransferGraph& graph = forms[form].graph();
    return limit
               ? collective.costs.collective_time_below(graph, collective.elements, slice, *limit)
               : std::optional(collective.costs.collective_time(graph, collective.elements, slice));
  };
  const auto exact = [&](std::size_t form, std::int64_t slice, std::optional<Duration> limit) {
    return collective.costs.exact_collective_time_below(forms[form].graph(), collective.elements,
                                                        slice, limit.value_or(Duration(INT64_MAX)));
  };
  const auto found = DivisionSearch(std::move(shapes), kSlicesOfOneSize)
                         .fastest(collective.elements, time, known,
                                  collective.costs.has_exact_times() ? TimeBelow() : exact);
  if (!found || (known && found->time >= *known)) {
    return std::nullopt;
  }
  return FastestCollective{found->time, found->slice_elements, forms[found->form].shared_graph()};
}

}  // namespace rackrail::planner
