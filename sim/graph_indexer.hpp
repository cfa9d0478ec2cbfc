// Indices of graphs for many simulations: what they have in common is made once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "sim/graph_index.hpp"
#include "sim/rank_turns.hpp"

namespace rackrail::sim {

struct Fold;
class ListedLayout;
struct LayoutTurns;
struct SimulationOptions;

/// What is moved: so many floats per rank, in slices, by a graph that lives as long.
struct Buffer {
  const plan::TransferGraph& graph;
  std::int64_t elements = 0;
  std::int64_t slice_elements = 0;
};

/// Indices that are simulated together, on the ranks that stand for all of them (layout_turns.hpp).
struct FoldedIndices {
  std::vector<std::shared_ptr<const GraphIndex>> indices;  ///< by buffer
  Turns turns;
  std::vector<Rank> ranks;  ///< the first ones
};

/// Where it has met an equal graph before, an index for other sizes costs two looks at each
/// transfer, as long as the buffer has no fewer elements than the sum of the chunks' weights, so
/// that no range is empty. The topology must outlive it and not change.
class GraphIndexer {
 public:
  GraphIndexer(const topology::Topology& topology, const SimulationOptions& options);
  ~GraphIndexer();
  GraphIndexer(const GraphIndexer&) = delete;
  GraphIndexer& operator=(const GraphIndexer&) = delete;

  /// As index_graph().
  std::shared_ptr<const GraphIndex> index(const Buffer& buffer);
  /// Of buffers whose schedules are symmetric in the same way; none where they are not.
  std::optional<FoldedIndices> folded(std::span<const Buffer> buffers);
  /// Transfers of the graph that are left where it is folded alone; none where it is not.
  std::optional<std::size_t> folded_size(const plan::TransferGraph& graph);
  /// Of the ranks; made when first asked for.
  const RankTable& ranks();

 private:
  struct Known;

  /// Null for a buffer in which some range is empty.
  std::shared_ptr<Known> known(const Buffer& buffer);
  const LayoutTurns* turns(Known& known);
  const std::shared_ptr<const ListedLayout>& layout(Known& known, const Fold& fold);

  Routing routing_;
  std::optional<RankTable> ranks_;
  std::vector<std::shared_ptr<Known>> known_;
  std::size_t kept_ = 0;  ///< transfers of known_
};

}  // namespace rackrail::sim
