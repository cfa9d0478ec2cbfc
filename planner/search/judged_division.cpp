#include "planner/search/judged_division.hpp"

#include <algorithm>
#include <cstddef>
#include <vector>

#include "planner/search/held_rates.hpp"

namespace rackrail::planner {

namespace {

// Messages are at least so long, as sent, or such a share of the buffer.
constexpr Bytes kLeastMessage = 32_KiB;
constexpr std::int64_t kMessagesOfBuffer = 64;
constexpr Duration kTooFine = Duration(INT64_MAX);

}  // namespace

DividedCollective judged_division(const std::vector<CollectiveForm>& forms,
                                  const plan::Codec& codec, std::int64_t elements,
                                  plan::CostModel& cost_model, const topology::Topology& topology) {
  const std::vector<FormShape> shapes = shapes_of(forms);
  const auto coarsest =
      static_cast<std::size_t>(std::min_element(shapes.begin(), shapes.end(),
                                                [](const FormShape& a, const FormShape& b) {
                                                  return a.transfers < b.transfers;
                                                }) -
                               shapes.begin());
  const Bytes least = std::min(
      kLeastMessage, Bytes(plan::encoded_size(codec, elements).count() / kMessagesOfBuffer));
  return fastest_division(shapes, elements, [&](std::size_t form, std::int64_t slice) {
    const auto largest =
        static_cast<std::int64_t>(shapes[form].largest_share * static_cast<double>(elements));
    const bool is_whole = form == coarsest && slice >= largest;
    if (!is_whole && plan::encoded_size(codec, std::min(slice, largest)) < least) {
      return kTooFine;
    }
    const plan::TransferGraph& graph = forms[form].graph();
    return judged_by_rates(cost_model.collective_time(graph, elements, slice), graph,
                           std::min(slice, largest), topology);
  });
}

}  // namespace rackrail::planner
