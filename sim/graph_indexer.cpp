#include "sim/graph_indexer.hpp"

#include <algorithm>
#include <numeric>

#include "sim/layout_turns.hpp"
#include "sim/listed_layout.hpp"

namespace rackrail::sim {

namespace {

// Transfers of which a GraphIndexer keeps the layouts: some 200 bytes each.
constexpr std::size_t kMostKept = 2'000'000;
constexpr std::int64_t kAnySlice = 1 << 18;  // layouts do not depend on it

bool are_equal(const plan::Transfer& a, const plan::Transfer& b) {
  return a.src == b.src && a.dst == b.dst && a.chunk_begin == b.chunk_begin &&
         a.chunk_count == b.chunk_count && a.op == b.op && a.codec == b.codec && a.route == b.route;
}

/// But for names, owners and the kind of collective, which no index depends on.
bool are_equal(const plan::TransferGraph& a, const plan::TransferGraph& b) {
  const auto equal = [](auto first, auto second) {
    return std::equal(first.begin(), first.end(), second.begin(), second.end());
  };
  if (a.rank_count() != b.rank_count() || a.transfers().size() != b.transfers().size() ||
      a.groups().size() != b.groups().size() || !equal(a.codecs(), b.codecs()) ||
      !equal(a.chunk_weights(), b.chunk_weights()) || !equal(a.routes(), b.routes()) ||
      !equal(a.rates(), b.rates())) {
    return false;
  }
  for (std::size_t i = 0; i < a.transfers().size(); ++i) {
    if (!are_equal(a.transfers()[i], b.transfers()[i]) ||
        !equal(a.dependencies(TransferId(i)), b.dependencies(TransferId(i)))) {
      return false;
    }
  }
  return std::equal(a.groups().begin(), a.groups().end(), b.groups().begin(),
                    [](const plan::TransferGroup& one, const plan::TransferGroup& other) {
                      return one.first == other.first && one.count == other.count;
                    });
}

}  // namespace

struct GraphIndexer::Known {
  plan::TransferGraph graph;
  std::shared_ptr<const ListedLayout> layout;
  bool has_looked_for_turns = false;
  std::optional<LayoutTurns> turns;
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::shared_ptr<const ListedLayout>> folded;
};

GraphIndexer::GraphIndexer(const topology::Topology& topology, const SimulationOptions& options)
    : routing_(topology, options) {}

GraphIndexer::~GraphIndexer() = default;

const RankTable& GraphIndexer::ranks() {
  if (!ranks_.has_value()) {
    ranks_.emplace(routing_.topology());
  }
  return *ranks_;
}

std::shared_ptr<GraphIndexer::Known> GraphIndexer::known(const Buffer& buffer) {
  const auto weights = buffer.graph.chunk_weights();
  if (buffer.elements < std::accumulate(weights.begin(), weights.end(), std::int64_t{0})) {
    return nullptr;
  }
  // The last ones first: a plan's buckets mostly follow the schedule of the one before.
  const auto met = std::find_if(known_.rbegin(), known_.rend(), [&](const auto& other) {
    return are_equal(other->graph, buffer.graph);
  });
  if (met != known_.rend()) {
    return *met;
  }
  auto layout = std::make_shared<const ListedLayout>(buffer.graph, buffer.elements, routing_);
  if (kept_ + layout->size() > kMostKept) {
    known_.clear();
    kept_ = 0;
  }
  kept_ += layout->size();
  known_.push_back(std::make_shared<Known>());
  known_.back()->graph = buffer.graph;
  known_.back()->layout = std::move(layout);
  return known_.back();
}

const LayoutTurns* GraphIndexer::turns(Known& known) {
  if (!known.has_looked_for_turns) {
    known.turns = find_turns(*known.layout, ranks(), routing_.topology());
    known.has_looked_for_turns = true;
  }
  return known.turns.has_value() ? &*known.turns : nullptr;
}

std::shared_ptr<const GraphIndex> GraphIndexer::index(const Buffer& buffer) {
  const auto own = known(buffer);
  return own == nullptr
             ? index_graph(buffer.graph, buffer.elements, buffer.slice_elements, routing_)
             : index_layout(own->layout, buffer.graph, buffer.elements, buffer.slice_elements);
}

const std::shared_ptr<const ListedLayout>& GraphIndexer::layout(Known& known, const Fold& fold) {
  auto& layout = known.folded[{fold.turns.groups, fold.turns.members}];
  if (layout == nullptr) {
    layout = sim::folded(*known.layout, fold, ranks(), routing_.topology());
  }
  return layout;
}

std::optional<std::size_t> GraphIndexer::folded_size(const plan::TransferGraph& graph) {
  const auto weights = graph.chunk_weights();
  const auto own =
      known({graph, std::accumulate(weights.begin(), weights.end(), std::int64_t{0}), kAnySlice});
  const LayoutTurns* const own_turns = own == nullptr ? nullptr : turns(*own);
  const auto fold = own_turns == nullptr ? std::nullopt : common_fold({&own_turns, 1}, ranks());
  return fold.has_value() ? std::optional<std::size_t>(layout(*own, *fold)->size()) : std::nullopt;
}

std::optional<FoldedIndices> GraphIndexer::folded(std::span<const Buffer> buffers) {
  std::vector<std::shared_ptr<Known>> all;
  std::vector<const LayoutTurns*> each;
  for (const Buffer& buffer : buffers) {
    const auto own = known(buffer);
    const LayoutTurns* const own_turns = own == nullptr ? nullptr : turns(*own);
    if (own_turns == nullptr) {
      return std::nullopt;
    }
    all.push_back(own);
    if (std::find(each.begin(), each.end(), own_turns) == each.end()) {
      each.push_back(own_turns);
    }
  }
  const auto fold = each.empty() ? std::nullopt : common_fold(each, ranks());
  if (!fold.has_value()) {
    return std::nullopt;
  }
  FoldedIndices result{.indices = {}, .turns = fold->turns, .ranks = {}};
  for (std::size_t b = 0; b < buffers.size(); ++b) {
    result.indices.push_back(index_layout(layout(*all[b], *fold), buffers[b].graph,
                                          buffers[b].elements, buffers[b].slice_elements));
  }
  for (std::size_t r = 0; r < routing_.topology().rank_count(); ++r) {
    if (ranks().first(Rank(r), fold->turns) == Rank(r)) {
      result.ranks.emplace_back(r);
    }
  }
  return result;
}

}  // namespace rackrail::sim
