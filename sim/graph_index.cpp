// The index of a TransferGraph: everything stored.
#include "sim/graph_index.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/error.hpp"
#include "sim/listed_layout.hpp"

namespace rackrail::sim {

namespace {

class ListedIndex final : public GraphIndex {
 public:
  ListedIndex(std::shared_ptr<const ListedLayout> layout, const plan::TransferGraph& graph,
              std::int64_t elements, std::int64_t slice_size)
      : GraphIndex(layout), layout_(std::move(layout)), sizes_(layout_->size()) {
    slice_elements = slice_size;
    slices_at.assign(graph.rank_count(), 0);
    std::vector<std::int64_t> boundaries;
    for (std::uint32_t c = 0; c < graph.chunk_count(); ++c) {
      boundaries.push_back(graph.range(c, 1, elements).begin);
    }
    boundaries.push_back(elements);
    std::uint64_t slices = 0;
    for (std::uint32_t number = 0; number < sizes_.size(); ++number) {
      const ListedLayout::Chunks chunks = layout_->chunks(number);
      const plan::ElementRange range{boundaries[chunks.begin], boundaries[chunks.end]};
      const std::int64_t own = plan::slice_count(range, slice_elements);
      const auto count = static_cast<std::uint32_t>(own);
      sizes_[number] = {range.size(), count, static_cast<std::uint32_t>(slices)};
      slices += static_cast<std::uint64_t>(own);
      slices_at[layout_->lane_of(number).src.index()] += count;
      slices_at[layout_->lane_of(number).dst.index()] += count;
    }
    if (slices > UINT32_MAX) {
      throw SimulationError(
          fmt::format("'{}' has more than 4,294,967,295 slices; make them larger", graph.name()));
    }
    slice_count = static_cast<std::uint32_t>(slices);
    const auto awaited = layout_->awaited_whole();
    has_partial_waits = std::any_of(awaited.begin(), awaited.end(), [&](std::uint32_t number) {
      return sizes_[number].slices > 1;
    });
  }

  void get(Place place, Item& item) const override {
    const std::uint32_t number = layout_->number_of(place);
    const Size& size = sizes_[number];
    item = layout_->item(number);
    item.elements = size.elements;
    item.slices = size.slices;
    item.first_slice = size.first_slice;
  }
  std::span<const Dependent> dependents(Place place, bool at_source,
                                        std::vector<Dependent>& /*scratch*/) const override {
    return layout_->dependents(layout_->number_of(place), at_source);
  }
  std::span<const Dependent> next_additions(Place place,
                                            std::vector<Dependent>& /*scratch*/) const override {
    return layout_->next_additions(layout_->number_of(place));
  }
  std::vector<Place> unseen(Place place) const override {
    return layout_->unseen(layout_->number_of(place));
  }

 protected:
  std::string original(Place place) const override {
    return std::to_string(layout_->original(layout_->number_of(place)));
  }

 private:
  struct Size {
    std::int64_t elements = 0;
    std::uint32_t slices = 0;
    std::uint32_t first_slice = 0;
  };

  std::shared_ptr<const ListedLayout> layout_;
  std::vector<Size> sizes_;  ///< by item
};

}  // namespace

void GraphLayout::sort_lanes_by_source(std::size_t ranks) {
  lanes_from_begin_.assign(ranks + 1, 0);
  for (const Lane& lane : lanes) {
    ++lanes_from_begin_[lane.src.index() + 1];
  }
  for (std::size_t r = 0; r < ranks; ++r) {
    lanes_from_begin_[r + 1] += lanes_from_begin_[r];
  }
  std::vector<std::uint32_t> cursor(lanes_from_begin_.begin(), lanes_from_begin_.end() - 1);
  lanes_from_.resize(lanes.size());
  for (std::size_t lane = 0; lane < lanes.size(); ++lane) {
    lanes_from_[cursor[lanes[lane].src.index()]++] = static_cast<std::uint32_t>(lane);
  }
}

namespace {

std::vector<plan::CodecEffort> efforts_of(const std::vector<plan::Codec>& codecs) {
  std::vector<plan::CodecEffort> efforts(codecs.size());
  std::ranges::transform(codecs, efforts.begin(), plan::codec_effort);
  return efforts;
}

}  // namespace

GraphIndex::GraphIndex(std::shared_ptr<const GraphLayout> layout)
    : lanes(layout->lanes),
      lane_kinds(layout->lane_kinds),
      receivers(layout->receivers),
      groups(layout->groups),
      routes(layout->routes),
      route_numbers(layout->route_numbers),
      codecs(layout->codecs),
      efforts(efforts_of(codecs)),
      orders_additions(layout->orders_additions),
      has_connections(layout->has_connections),
      layout_(std::move(layout)) {}

std::string GraphIndex::describe(Place place) const {
  const Lane& lane = lanes[place.lane];
  return fmt::format("transfer {} (rank {} to rank {})", original(place), lane.src.value(),
                     lane.dst.value());
}

std::shared_ptr<const GraphIndex> index_graph(const plan::TransferGraph& graph,
                                              std::int64_t elements, std::int64_t slice_elements,
                                              Routing& routing) {
  return index_layout(std::make_shared<const ListedLayout>(graph, elements, routing), graph,
                      elements, slice_elements);
}

std::shared_ptr<const GraphIndex> index_layout(std::shared_ptr<const ListedLayout> layout,
                                               const plan::TransferGraph& graph,
                                               std::int64_t elements, std::int64_t slice_elements) {
  return std::make_shared<ListedIndex>(std::move(layout), graph, elements, slice_elements);
}

}  // namespace rackrail::sim
