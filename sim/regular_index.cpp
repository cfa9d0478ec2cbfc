// The index of a RegularSchedule: lanes and routes stored, transfers computed.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/error.hpp"
#include "sim/graph_index.hpp"

namespace rackrail::sim {

namespace {

class RegularIndex final : public GraphIndex {
 public:
  RegularIndex(const plan::RegularSchedule& schedule, std::int64_t elements,
               std::int64_t slice_size, std::vector<RouteUse> lane_routes)
      : GraphIndex(layout_of(schedule, std::move(lane_routes))),
        schedule_(schedule),
        chunk_begin_(schedule.chunk_count() + 1) {
    slice_elements = slice_size;
    slices_at.assign(schedule.rank_count(), 0);
    const plan::TransferGraph chunks(schedule.name(), plan::Collective::kAllReduce,
                                     schedule.rank_count(),
                                     std::vector<std::uint32_t>(schedule.chunk_count(), 1));
    for (std::uint32_t c = 0; c < schedule.chunk_count(); ++c) {
      chunk_begin_[c + 1] = chunks.range(c, 1, elements).end;
    }
    if (elements < static_cast<std::int64_t>(schedule.chunk_count())) {
      throw SimulationError(fmt::format("{} elements are less than the {} chunks of '{}'", elements,
                                        schedule.chunk_count(), schedule.name()));
    }
    for (std::uint32_t lane = 0; lane < lanes.size(); ++lane) {
      add_lane(lane);
    }
  }

  void get(Place place, Item& item) const override {
    const plan::RegularSchedule::Step step = schedule_.step(place);
    item.elements = elements_of(step);
    item.slices = slices_of(item.elements);
    item.first_slice = first_slice_[place.lane] + place.position * most_slices_[place.lane];
    item.route = place.lane;
    item.waits = step.waits;
    item.additions_before = step.additions_before;
    item.op = step.op;
  }
  std::span<const Dependent> dependents(Place place, bool at_source,
                                        std::vector<Dependent>& scratch) const override {
    scratch.clear();
    if (!at_source) {
      schedule_.append_dependents(place, scratch);
    }
    return scratch;
  }
  std::span<const Dependent> next_additions(Place place,
                                            std::vector<Dependent>& scratch) const override {
    scratch.clear();
    schedule_.append_next_additions(place, scratch);
    return scratch;
  }

 protected:
  std::string original(Place place) const override {
    return fmt::format("{} of its lane", place.position);
  }

 private:
  std::int64_t elements_of(const plan::RegularSchedule::Step& step) const {
    return chunk_begin_[step.chunk_begin + step.chunk_count] - chunk_begin_[step.chunk_begin];
  }
  std::uint32_t slices_of(std::int64_t elements) const {
    return elements <= slice_elements
               ? 1
               : static_cast<std::uint32_t>((elements + slice_elements - 1) / slice_elements);
  }

  static std::shared_ptr<const GraphLayout> layout_of(const plan::RegularSchedule& schedule,
                                                      std::vector<RouteUse> lane_routes) {
    auto layout = std::make_shared<GraphLayout>();
    layout->lanes = schedule.lanes();
    layout->routes = std::move(lane_routes);
    layout->codecs = {plan::Codec{}};
    layout->has_connections = schedule.has_connections();
    for (std::uint32_t lane = 0; lane < layout->lanes.size(); ++lane) {
      for (std::uint32_t i = 0; i < layout->lanes[lane].count && !layout->orders_additions; ++i) {
        layout->orders_additions = schedule.step({lane, i}).additions_before > 0;
      }
    }
    layout->sort_lanes_by_source(schedule.rank_count());
    return layout;
  }

  void add_lane(std::uint32_t number) {
    const Lane& lane = lanes[number];
    std::uint32_t most = 0;
    std::uint32_t sum = 0;
    for (std::uint32_t position = 0; position < lane.count; ++position) {
      const plan::RegularSchedule::Step step = schedule_.step({number, position});
      const std::uint32_t slices = slices_of(elements_of(step));
      most = std::max(most, slices);
      sum += slices;
    }
    const std::uint64_t end = std::uint64_t{slice_count} + std::uint64_t{most} * lane.count;
    if (end > UINT32_MAX) {
      throw SimulationError(fmt::format("'{}' has more than 4,294,967,295 slices; make them larger",
                                        schedule_.name()));
    }
    first_slice_.push_back(slice_count);
    most_slices_.push_back(most);
    slice_count = static_cast<std::uint32_t>(end);
    slices_at[lane.src.index()] += sum;
    slices_at[lane.dst.index()] += sum;
    has_partial_waits = has_partial_waits || (most > 1 && schedule_.mixes_ranges());
  }

  const plan::RegularSchedule& schedule_;
  std::vector<std::int64_t> chunk_begin_;
  std::vector<std::uint32_t> first_slice_;
  std::vector<std::uint32_t> most_slices_;
};

}  // namespace

std::unique_ptr<const GraphIndex> index_schedule(const plan::RegularSchedule& schedule,
                                                 std::int64_t elements, std::int64_t slice_elements,
                                                 std::vector<RouteUse> routes) {
  return std::make_unique<RegularIndex>(schedule, elements, slice_elements, std::move(routes));
}

}  // namespace rackrail::sim
