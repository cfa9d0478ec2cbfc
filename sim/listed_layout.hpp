// What the index of a TransferGraph stores beside the sizes of its transfers; for
// sim/*.cpp only.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "plan/in_network.hpp"
#include "plan/transfer_graph.hpp"
#include "sim/graph_index.hpp"

namespace rackrail::sim {

class ListedLayout final : public GraphLayout {
 public:
  struct Chunks {
    std::uint32_t begin = 0;
    std::uint32_t end = 0;
  };

  /// Of the transfers that move something in a buffer of `elements`. Keeps nothing of `graph`.
  ListedLayout(const plan::TransferGraph& graph, std::int64_t elements, Routing& routing);

  std::uint32_t size() const { return static_cast<std::uint32_t>(items_.size()); }
  std::uint32_t number_of(Place place) const { return begin_[place.lane] + place.position; }
  const Lane& lane_of(std::uint32_t number) const { return lanes[lane_of_[number]]; }
  /// Without elements, slices and first slice.
  const Item& item(std::uint32_t number) const { return items_[number]; }
  Chunks chunks(std::uint32_t number) const { return chunks_[number]; }
  /// Sum of its chunks' weights. Transfers of equal weight move equally many elements in any
  /// buffer, to within one.
  std::uint32_t weight(std::uint32_t number) const { return weights_[number]; }
  std::uint32_t original(std::uint32_t number) const { return originals_[number]; }
  /// Of which something waits for all slices.
  std::span<const std::uint32_t> awaited_whole() const { return awaited_whole_; }
  std::span<const Dependent> dependents(std::uint32_t number, bool at_source) const {
    const Dependents& own = dependents_begin_[number];
    const std::uint32_t end = dependents_begin_[number + 1].at_source;
    return at_source ? std::span(dependents_).subspan(own.at_source, own.applied - own.at_source)
                     : std::span(dependents_).subspan(own.applied, end - own.applied);
  }
  std::span<const Dependent> next_additions(std::uint32_t number) const {
    return next_additions_[number];
  }
  /// GraphIndex::unseen, not of folded layouts.
  std::vector<Place> unseen(std::uint32_t number) const;

 private:
  friend class LayoutFolder;  // layout_turns.cpp
  static constexpr std::uint32_t kNoItem = UINT32_MAX;

  ListedLayout() = default;
  /// Where the dependents of a transfer begin: first those at its source.
  struct Dependents {
    std::uint32_t at_source = 0;
    std::uint32_t applied = 0;
  };

  Place place_of(std::uint32_t number) const {
    return {lane_of_[number], number - begin_[lane_of_[number]]};
  }

  void number_items(const plan::TransferGraph& graph, std::int64_t elements,
                    const plan::InNetwork& in_network, bool heeds_routes);
  void add_groups(const plan::TransferGraph& graph, const plan::InNetwork& in_network,
                  const topology::Topology& topology);
  void add_routes(const plan::TransferGraph& graph, Routing& routing);
  void add_dependents(const plan::TransferGraph& graph);
  void add_encodings(const plan::TransferGraph& graph);
  void order_additions(const plan::TransferGraph& graph);

  std::vector<Item> items_;
  std::vector<Chunks> chunks_;            ///< by item
  std::vector<std::uint32_t> weights_;    ///< by item
  std::vector<std::uint32_t> begin_;      ///< by send queue: its first item
  std::vector<std::uint32_t> lane_of_;    ///< by item
  std::vector<std::uint32_t> originals_;  ///< by item: transfer of the graph
  std::vector<std::uint32_t> numbers_;    ///< by transfer of the graph: item, or kNoItem
  std::vector<Dependents> dependents_begin_;
  std::vector<Dependent> dependents_;
  std::vector<std::vector<Dependent>> next_additions_;
  std::vector<std::pair<std::uint32_t, std::uint32_t>> unseen_;  ///< who waits, and for what
  std::vector<std::uint32_t> awaited_whole_;
};

/// Of the graph that the layout was made from, in whole or folded. Throws as index_graph().
std::shared_ptr<const GraphIndex> index_layout(std::shared_ptr<const ListedLayout> layout,
                                               const plan::TransferGraph& graph,
                                               std::int64_t elements, std::int64_t slice_elements);

}  // namespace rackrail::sim
