#include "planner/algorithms/bucket_algorithm.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>
#include <utility>

#include "planner/algorithms/families.hpp"

namespace rackrail::planner {

namespace {

/// A transfer of the range of position `owner` along a dimension, as part of its sum's way there.
struct Hop {
  std::uint32_t owner = 0;
  std::uint32_t from = 0;
  std::uint32_t to = 0;
  std::uint32_t step = 0;       ///< hops of the same range before it
  std::uint32_t remaining = 0;  ///< and after it
};

/// All hops that sum along a dimension, in an order in which they can be sent.
std::vector<Hop> scatter_hops(const RankGrid::Dimension& dimension, bool forwards) {
  const std::uint32_t n = dimension.size;
  std::vector<Hop> hops;
  for (std::uint32_t owner = 0; owner < n; ++owner) {
    if (dimension.is_ring) {
      for (std::uint32_t step = 0; step + 1 < n; ++step) {
        const std::uint32_t from = owner + (forwards ? 1 + step : 2 * n - 1 - step);
        const std::uint32_t to = from + (forwards ? 1 : n - 1);
        hops.push_back({owner, from % n, to % n, step, n - 2 - step});
      }
    } else {
      for (std::uint32_t from = 0; from < owner; ++from) {
        hops.push_back({owner, from, from + 1, from, owner - 1 - from});
      }
      for (std::uint32_t from = n - 1; from > owner; --from) {
        hops.push_back({owner, from, from - 1, n - 1 - from, from - 1 - owner});
      }
    }
  }
  std::stable_sort(hops.begin(), hops.end(), [](const Hop& a, const Hop& b) {
    return std::tuple(a.step, b.remaining) < std::tuple(b.step, a.remaining);
  });
  return hops;
}

/// The same ways in the other direction, from the owner.
std::vector<Hop> gather_hops(const RankGrid::Dimension& dimension, bool forwards) {
  std::vector<Hop> hops = scatter_hops(dimension, forwards);
  for (Hop& hop : hops) {
    std::swap(hop.from, hop.to);
    std::swap(hop.step, hop.remaining);
  }
  std::stable_sort(hops.begin(), hops.end(),
                   [](const Hop& a, const Hop& b) { return a.step < b.step; });
  return hops;
}

/// Positions [begin, end) along a dimension.
struct PositionSpan {
  std::uint32_t begin = 0;
  std::uint32_t end = 0;
};

/// StepSpan [since, until) of a phase: those of one block.
struct StepSpan {
  std::uint32_t since = 0;
  std::uint32_t until = 0;
};

/// The owners whose ranges are gathered along a dimension at `place` after so many steps, 0 for its
/// own. At most two intervals.
std::vector<PositionSpan> gathered_within(const RankGrid::Dimension& dimension, bool forwards,
                                          std::uint32_t place, StepSpan steps) {
  const std::uint32_t n = dimension.size;
  if (steps.since == 0 && steps.until >= n) {
    return {{0, n}};
  }
  std::vector<PositionSpan> found;
  if (dimension.is_ring) {
    const std::uint32_t count = steps.until - steps.since;
    const std::uint32_t begin = (forwards ? place + steps.since : place + n + 1 - steps.until) % n;
    found.push_back({begin, std::min(n, begin + count)});
    if (begin + count > n) {
      found.push_back({0, begin + count - n});
    }
    return found;
  }
  const std::uint32_t left = place + 1 > steps.until ? place + 1 - steps.until : 0;
  const std::uint32_t right = std::min(n, place + steps.until);
  if (steps.since == 0) {
    return {{left, right}};
  }
  if (place >= steps.since) {
    found.push_back({left, place + 1 - steps.since});
  }
  if (place + steps.since < n) {
    found.push_back({place + steps.since, right});
  }
  return found;
}

/// Of what arrives along a dimension of so many ranks: all at once, or what a rank has itself, what
/// comes first, and then ever more.
std::vector<StepSpan> blocks_of(std::uint32_t size, std::uint32_t growth) {
  if (growth == 0) {
    return {{0, size}};
  }
  std::vector<StepSpan> blocks = {{0, 1}};
  for (std::uint32_t since = 1; since < size; since *= growth) {
    blocks.push_back({since, std::min(size, growth * since)});
  }
  return blocks;
}

bool has_rings(const RankGrid& grid) {
  return std::any_of(grid.dimensions.begin(), grid.dimensions.end(),
                     [](const RankGrid::Dimension& d) { return d.is_ring; });
}

/// Of the part that is scattered along this dimension first; 0: there is none.
std::uint32_t weight_of(const RankGrid& grid, const BucketOptions& options, std::size_t first) {
  const std::uint32_t links = grid.dimensions[first].is_ring ? 2 : 1;
  return options.weights.empty() ? links : options.weights[first];
}

/// A transfer that changed or read some of a rank's buffer.
struct ChunkAccess {
  TransferId id;
  GraphBuilder::Range range;
};

class BucketBuilder {
 public:
  BucketBuilder(const RankGrid& grid, const ScheduleRequest& request, const BucketOptions& options);
  plan::TransferGraph build();

 private:
  struct Part {
    std::vector<std::uint32_t> order;  ///< of dimensions
    bool forwards = true;
    std::uint32_t first_chunk = 0;
    /// By rank: additions of its own range in the phases that are over.
    std::vector<std::vector<ChunkAccess>> sums;
    /// By rank: what changed or read its range while gathering, in the phases that are over.
    std::vector<std::vector<ChunkAccess>> gathered;
  };
  /// What a phase of a part has sent so far.
  struct Phase {
    std::vector<Hop> hops;
    std::vector<StepSpan> blocks;  ///< of what is sent at each of them
    std::size_t next = 0;          ///< hop
    /// Of the block: by rank, owner and interval.
    std::vector<TransferId> arrived;
    std::vector<std::vector<ChunkAccess>> at;  ///< by rank: to be remembered in the next phases
  };

  static std::vector<std::uint32_t> weights(const RankGrid& grid, const BucketOptions& options);
  Phase begin_phase(const Part& part, std::size_t phase, bool gathers) const;
  void run_phase(std::size_t phase, bool gathers);
  void run_block(std::size_t phase, std::size_t block, bool gathers, std::vector<Phase>& running);
  void add(Part& part, Phase& state, std::size_t phase, std::size_t block, const Hop& hop, Rank src,
           bool gathers);
  std::vector<TransferId> before(const Part& part, const Phase& state, const Hop& hop, Rank src,
                                 std::size_t arrival, GraphBuilder::Range chunks,
                                 bool gathers) const;
  GraphBuilder::Range range(const Part& part, std::size_t phase, Rank rank,
                            std::uint32_t owner) const;
  std::vector<GraphBuilder::Range> ranges(const Part& part, std::size_t phase, Rank rank,
                                          std::uint32_t owner, StepSpan block) const;
  std::vector<Rank> owners() const;

  const RankGrid& grid_;
  GridPlaces places_;
  plan::Collective what_;
  std::uint32_t growth_;
  std::uint32_t ranks_;
  bool is_lossy_;
  GraphBuilder builder_;
  std::vector<std::vector<std::vector<Rank>>> layers_;  ///< by dimension and position
  std::vector<Part> parts_;
};

std::vector<std::uint32_t> BucketBuilder::weights(const RankGrid& grid,
                                                  const BucketOptions& options) {
  const std::size_t ranks = grid.coordinates.size();
  std::vector<std::uint32_t> weights;
  for (std::size_t d = 0; d < grid.dimensions.size(); ++d) {
    if (const std::uint32_t weight = weight_of(grid, options, d); weight > 0) {
      weights.insert(weights.end(), (has_rings(grid) ? 2 : 1) * ranks, weight);
    }
  }
  return weights;
}

BucketBuilder::BucketBuilder(const RankGrid& grid, const ScheduleRequest& request,
                             const BucketOptions& options)
    : grid_(grid),
      places_(grid),
      what_(options.what),
      growth_(options.growth),
      ranks_(static_cast<std::uint32_t>(grid.coordinates.size())),
      is_lossy_(request.codecs.inside.is_lossy() || request.codecs.across.is_lossy()),
      builder_("torus", request, weights(grid, options), options.what) {
  for (std::size_t d = 0; d < grid.dimensions.size(); ++d) {
    auto& layers = layers_.emplace_back(grid.dimensions[d].size);
    for (std::uint32_t r = 0; r < ranks_; ++r) {
      layers[grid.coordinates[r][d]].emplace_back(r);
    }
  }
  const auto dimensions = static_cast<std::uint32_t>(grid.dimensions.size());
  for (std::uint32_t first = 0; first < dimensions; ++first) {
    for (const bool forwards : {true, false}) {
      if (weight_of(grid, options, first) == 0 || (!forwards && !has_rings(grid))) {
        continue;
      }
      Part& part = parts_.emplace_back();
      part.forwards = forwards;
      part.first_chunk = static_cast<std::uint32_t>(parts_.size() - 1) * ranks_;
      part.order = scatter_order(grid, first);
      part.sums.resize(ranks_);
      part.gathered.resize(ranks_);
    }
  }
}

/// Chunks of a part are numbered by the coordinates of their owners in its order of dimensions, so
/// what a phase divides is contiguous.
GraphBuilder::Range BucketBuilder::range(const Part& part, std::size_t phase, Rank rank,
                                         std::uint32_t owner) const {
  std::uint32_t begin = part.first_chunk;
  std::uint32_t count = ranks_;
  for (std::size_t k = 0; k <= phase; ++k) {
    const std::uint32_t dimension = part.order[k];
    count /= grid_.dimensions[dimension].size;
    begin += count * (k == phase ? owner : grid_.coordinates[rank.index()][dimension]);
  }
  return {begin, count};
}

/// What of that is in a block, by the owners along the dimension of the next phase.
std::vector<GraphBuilder::Range> BucketBuilder::ranges(const Part& part, std::size_t phase,
                                                       Rank rank, std::uint32_t owner,
                                                       StepSpan block) const {
  const GraphBuilder::Range whole = range(part, phase, rank, owner);
  if (phase + 1 == part.order.size()) {
    return {whole};
  }
  const std::uint32_t next = part.order[phase + 1];
  const RankGrid::Dimension& dimension = grid_.dimensions[next];
  const std::uint32_t width = whole.count / dimension.size;
  std::vector<GraphBuilder::Range> ranges;
  for (const auto& [begin, end] :
       gathered_within(dimension, part.forwards, grid_.coordinates[rank.index()][next], block)) {
    ranges.push_back({whole.begin + begin * width, (end - begin) * width});
  }
  return ranges;
}

std::vector<TransferId> BucketBuilder::before(const Part& part, const Phase& state, const Hop& hop,
                                              Rank src, std::size_t arrival,
                                              GraphBuilder::Range chunks, bool gathers) const {
  std::vector<TransferId> after;
  if (hop.step > 0) {
    after.push_back(state.arrived[arrival]);
  }
  const auto add_all = [&](const std::vector<ChunkAccess>& more) {
    for (const ChunkAccess& access : more) {
      if (access.range.begin < chunks.begin + chunks.count &&
          chunks.begin < access.range.begin + access.range.count) {
        after.push_back(access.id);
      }
    }
  };
  if (!gathers) {
    add_all(part.sums[src.index()]);
  } else if (hop.step == 0) {
    add_all(part.sums[src.index()]);
    add_all(part.gathered[src.index()]);
  }
  return after;
}

void BucketBuilder::add(Part& part, Phase& state, std::size_t phase, std::size_t block,
                        const Hop& hop, Rank src, bool gathers) {
  const std::uint32_t dimension = part.order[phase];
  const std::size_t size = grid_.dimensions[dimension].size;
  const Rank dst = places_.neighbour(src, dimension, hop.to);
  // Ranks along the dimension are at the same place along the next one: their blocks are alike.
  const auto arrival = [&](Rank rank, std::size_t interval) {
    return 2 * (rank.index() * size + hop.owner) + interval;
  };
  const auto blocks = ranges(part, phase, src, hop.owner, state.blocks[block]);
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    const GraphBuilder::Range chunks = blocks[i];
    const std::vector<TransferId> after =
        before(part, state, hop, src, arrival(src, i), chunks, gathers);
    const TransferId id =
        gathers ? builder_.copy(src, dst, chunks, after) : builder_.reduce(src, dst, chunks, after);
    state.arrived[arrival(dst, i)] = id;
    if (gathers || hop.remaining == 0) {
      state.at[dst.index()].push_back({id, chunks});
    }
    if (gathers && is_lossy_) {  // the sender writes too: what it sends, rounded
      state.at[src.index()].push_back({id, chunks});
    }
  }
}

BucketBuilder::Phase BucketBuilder::begin_phase(const Part& part, std::size_t phase,
                                                bool gathers) const {
  const RankGrid::Dimension& dimension = grid_.dimensions[part.order[phase]];
  const bool is_last = phase + 1 == part.order.size();
  Phase state;
  state.hops =
      gathers ? gather_hops(dimension, part.forwards) : scatter_hops(dimension, part.forwards);
  state.blocks = blocks_of(is_last ? 1 : grid_.dimensions[part.order[phase + 1]].size, growth_);
  state.arrived.resize(std::size_t{2} * ranks_ * dimension.size);
  state.at.resize(ranks_);
  return state;
}

/// One block of all parts after the other: links that parts share then have the earlier phases
/// first, and of each what others wait for longest.
void BucketBuilder::run_phase(std::size_t phase, bool gathers) {
  std::vector<Phase> running;
  std::size_t blocks = 0;
  for (const Part& part : parts_) {
    running.push_back(begin_phase(part, phase, gathers));
    blocks = std::max(blocks, running.back().blocks.size());
  }
  for (std::size_t i = 0; i < blocks; ++i) {
    run_block(phase, gathers ? i : blocks - 1 - i, gathers, running);
  }
  for (std::size_t p = 0; p < parts_.size(); ++p) {
    auto& known = gathers ? parts_[p].gathered : parts_[p].sums;
    for (std::size_t r = 0; r < ranks_; ++r) {
      const auto& more = running[p].at[r];
      known[r].insert(known[r].end(), more.begin(), more.end());
    }
  }
}

void BucketBuilder::run_block(std::size_t phase, std::size_t block, bool gathers,
                              std::vector<Phase>& running) {
  for (Phase& one : running) {
    one.next = block < one.blocks.size() ? 0 : one.hops.size();
  }
  bool is_over = false;
  for (std::uint32_t step = 0; !is_over; ++step) {
    is_over = true;
    for (std::size_t p = 0; p < parts_.size(); ++p) {
      Phase& one = running[p];
      for (; one.next < one.hops.size() && one.hops[one.next].step == step; ++one.next) {
        const Hop& hop = one.hops[one.next];
        for (const Rank src : layers_[parts_[p].order[phase]][hop.from]) {
          add(parts_[p], one, phase, block, hop, src, gathers);
        }
      }
      is_over = is_over && one.next == one.hops.size();
    }
  }
}

std::vector<Rank> BucketBuilder::owners() const {
  std::vector<Rank> owners(parts_.size() * ranks_);
  for (const Part& part : parts_) {
    for (std::uint32_t r = 0; r < ranks_; ++r) {
      const std::size_t last = part.order.size() - 1;
      const std::uint32_t own = grid_.coordinates[r][part.order[last]];
      owners[range(part, last, Rank(r), own).begin] = Rank(r);
    }
  }
  return owners;
}

plan::TransferGraph BucketBuilder::build() {
  const std::size_t phases = grid_.dimensions.size();
  if (what_ != plan::Collective::kAllGather) {
    for (std::size_t phase = 0; phase < phases; ++phase) {
      run_phase(phase, false);
    }
  }
  if (what_ != plan::Collective::kReduceScatter) {
    for (std::size_t phase = phases; phase-- > 0;) {
      run_phase(phase, true);
    }
  }
  return builder_.take(owners());
}

}  // namespace

std::vector<std::uint32_t> scatter_order(const RankGrid& grid, std::uint32_t first) {
  const auto dimensions = static_cast<std::uint32_t>(grid.dimensions.size());
  std::vector<std::uint32_t> order;
  for (std::uint32_t d = 0; d < dimensions; ++d) {
    order.push_back((first + d) % dimensions);
  }
  return order;
}

plan::TransferGraph make_buckets(const RankGrid& grid, const ScheduleRequest& request,
                                 const BucketOptions& options) {
  std::vector<std::string> sizes;
  for (const RankGrid::Dimension& dimension : grid.dimensions) {
    sizes.push_back(std::to_string(dimension.size));
  }
  return with_mechanism(BucketBuilder(grid, request, options).build(),
                        fmt::format("dimension by dimension of {}", fmt::join(sizes, "x")));
}

std::uint64_t bucket_transfers(const RankGrid& grid, const BucketOptions& options) {
  const std::uint64_t ranks = grid.coordinates.size();
  std::uint64_t transfers = 0;
  for (std::uint32_t first = 0; first < grid.dimensions.size(); ++first) {
    if (weight_of(grid, options, first) == 0) {
      continue;
    }
    const std::vector<std::uint32_t> order = scatter_order(grid, first);
    for (std::size_t phase = 0; phase < order.size(); ++phase) {
      const std::uint64_t hops = grid.dimensions[order[phase]].size - 1;
      if (phase + 1 == order.size()) {
        transfers += ranks * hops;
        continue;
      }
      const RankGrid::Dimension& next = grid.dimensions[order[phase + 1]];
      std::uint64_t intervals = 0;  // at all places along it
      for (const StepSpan& block : blocks_of(next.size, options.growth)) {
        for (std::uint32_t place = 0; place < next.size; ++place) {
          intervals += gathered_within(next, true, place, block).size();
        }
      }
      transfers += ranks / next.size * intervals * hops;
    }
  }
  const std::uint64_t twins = has_rings(grid) ? 2 : 1;
  const std::uint64_t halves = options.what == plan::Collective::kAllReduce ? 2 : 1;
  return twins * halves * transfers;
}

}  // namespace rackrail::planner
