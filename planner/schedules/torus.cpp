// Bucket algorithm for grids and tori of directly linked ranks: rings in every dimension at once.
//
// The buffer is divided into parts, one for each dimension, twice as many where there are rings.
// Part p is scattered along dimension p, what is left of it along dimension p + 1, and so on around
// all dimensions, and gathered back in the reverse order. As every part starts in another
// dimension and twin parts go round rings in opposite directions, all links are busy in every
// phase: on a torus of N ranks with D equal dimensions a link carries (1 − 1/N)/(2D) of the buffer
// in each half, the least that the 2D links of a rank can do (Jain, Sabharwal, "Optimal bucket
// algorithms for large MPI collectives on torus interconnects", ICS 2010).
//
// Along a ring the sum of a range starts next to its owner and goes once around; along a path it
// comes from both ends, and the first link carries all ranges but its own rank's, as it must.
// Dimensions of unequal sizes or rates are not balanced beyond the number of links of each.
#include <algorithm>
#include <tuple>
#include <utility>

#include "planner/schedules/builder.hpp"
#include "planner/schedules/rank_grid.hpp"

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

class BucketBuilder {
 public:
  BucketBuilder(const RankGrid& grid, const ScheduleRequest& request);
  plan::TransferGraph build();

 private:
  struct Part {
    std::vector<std::uint32_t> order;  ///< of dimensions
    bool forwards = true;
    std::uint32_t first_chunk = 0;
    /// By rank: additions of its own range in the phases that are over.
    std::vector<std::vector<TransferId>> sums;
    /// By rank: what changed or read its range while gathering, in the phases that are over.
    std::vector<std::vector<TransferId>> gathered;
  };
  /// What a phase has sent so far.
  struct Phase {
    std::vector<TransferId> arrived;          ///< by rank · size of the dimension + owner
    std::vector<std::vector<TransferId>> at;  ///< by rank: to be remembered in the next phases
  };

  static std::vector<std::uint32_t> weights(const RankGrid& grid, std::uint32_t ranks);
  void run_phase(std::size_t phase, bool gathers);
  void add(Part& part, Phase& state, std::size_t phase, const Hop& hop, Rank src, bool gathers);
  Rank neighbour(Rank rank, std::uint32_t dimension, std::uint32_t position) const;
  GraphBuilder::Range range(const Part& part, std::size_t phase, Rank rank,
                            std::uint32_t owner) const;

  const RankGrid& grid_;
  std::uint32_t ranks_;
  bool is_lossy_;
  GraphBuilder builder_;
  std::vector<std::uint32_t> strides_;                  ///< of a place's number, by dimension
  std::vector<Rank> rank_at_;                           ///< by a place's number
  std::vector<std::vector<std::vector<Rank>>> layers_;  ///< by dimension and position
  std::vector<Part> parts_;
};

bool has_rings(const RankGrid& grid) {
  return std::any_of(grid.dimensions.begin(), grid.dimensions.end(),
                     [](const RankGrid::Dimension& d) { return d.is_ring; });
}

/// A rank has two links along a ring, and in a path's bottleneck one; parts by the links of the
/// dimension in which they start.
std::vector<std::uint32_t> BucketBuilder::weights(const RankGrid& grid, std::uint32_t ranks) {
  std::vector<std::uint32_t> weights;
  for (const RankGrid::Dimension& dimension : grid.dimensions) {
    const std::size_t chunks = has_rings(grid) ? 2 * std::size_t{ranks} : ranks;
    weights.insert(weights.end(), chunks, dimension.is_ring ? 2 : 1);
  }
  return weights;
}

BucketBuilder::BucketBuilder(const RankGrid& grid, const ScheduleRequest& request)
    : grid_(grid),
      ranks_(static_cast<std::uint32_t>(grid.coordinates.size())),
      is_lossy_(request.codecs.inside.is_lossy() || request.codecs.across.is_lossy()),
      builder_("torus", request, weights(grid, ranks_)),
      rank_at_(ranks_) {
  std::uint32_t stride = 1;
  for (const RankGrid::Dimension& dimension : grid.dimensions) {
    strides_.push_back(stride);
    stride *= dimension.size;
    layers_.emplace_back(dimension.size);
  }
  for (std::uint32_t r = 0; r < ranks_; ++r) {
    std::uint32_t place = 0;
    for (std::size_t d = 0; d < strides_.size(); ++d) {
      place += grid.coordinates[r][d] * strides_[d];
      layers_[d][grid.coordinates[r][d]].emplace_back(r);
    }
    rank_at_[place] = Rank(r);
  }
  const auto dimensions = static_cast<std::uint32_t>(grid.dimensions.size());
  for (std::uint32_t first = 0; first < dimensions; ++first) {
    for (const bool forwards : {true, false}) {
      if (!forwards && !has_rings(grid)) {
        continue;
      }
      Part& part = parts_.emplace_back();
      part.forwards = forwards;
      part.first_chunk = static_cast<std::uint32_t>(parts_.size() - 1) * ranks_;
      for (std::uint32_t d = 0; d < dimensions; ++d) {
        part.order.push_back((first + d) % dimensions);
      }
      part.sums.resize(ranks_);
      part.gathered.resize(ranks_);
    }
  }
}

Rank BucketBuilder::neighbour(Rank rank, std::uint32_t dimension, std::uint32_t position) const {
  std::uint32_t place = 0;
  for (std::size_t d = 0; d < strides_.size(); ++d) {
    const bool is_it = d == dimension;
    place += (is_it ? position : grid_.coordinates[rank.index()][d]) * strides_[d];
  }
  return rank_at_[place];
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

void BucketBuilder::add(Part& part, Phase& state, std::size_t phase, const Hop& hop, Rank src,
                        bool gathers) {
  const std::uint32_t dimension = part.order[phase];
  const std::uint32_t size = grid_.dimensions[dimension].size;
  const Rank dst = neighbour(src, dimension, hop.to);
  const GraphBuilder::Range chunks = range(part, phase, src, hop.owner);
  std::vector<TransferId> after;
  if (hop.step > 0) {
    after.push_back(state.arrived[src.index() * size + hop.owner]);
  }
  const auto add_all = [&](const std::vector<TransferId>& more) {
    after.insert(after.end(), more.begin(), more.end());
  };
  if (!gathers) {
    add_all(part.sums[src.index()]);
  } else if (hop.step == 0) {
    add_all(part.sums[src.index()]);
    add_all(part.gathered[src.index()]);
  }
  const TransferId id =
      gathers ? builder_.copy(src, dst, chunks, after) : builder_.reduce(src, dst, chunks, after);
  state.arrived[dst.index() * size + hop.owner] = id;
  if (gathers || hop.remaining == 0) {
    state.at[dst.index()].push_back(id);
  }
  if (gathers && is_lossy_) {  // the sender writes too: what it sends, rounded
    state.at[src.index()].push_back(id);
  }
}

void BucketBuilder::run_phase(std::size_t phase, bool gathers) {
  struct Running {
    std::vector<Hop> hops;
    std::size_t next = 0;
    Phase state;
  };
  std::vector<Running> running;
  for (const Part& part : parts_) {
    const RankGrid::Dimension& dimension = grid_.dimensions[part.order[phase]];
    Running& one = running.emplace_back();
    one.hops =
        gathers ? gather_hops(dimension, part.forwards) : scatter_hops(dimension, part.forwards);
    one.state.arrived.resize(std::size_t{ranks_} * dimension.size);
    one.state.at.resize(ranks_);
  }
  bool is_over = false;
  for (std::uint32_t step = 0; !is_over; ++step) {
    is_over = true;
    for (std::size_t p = 0; p < parts_.size(); ++p) {
      Running& one = running[p];
      for (; one.next < one.hops.size() && one.hops[one.next].step == step; ++one.next) {
        const Hop& hop = one.hops[one.next];
        for (const Rank src : layers_[parts_[p].order[phase]][hop.from]) {
          add(parts_[p], one.state, phase, hop, src, gathers);
        }
      }
      is_over = is_over && one.next == one.hops.size();
    }
  }
  for (std::size_t p = 0; p < parts_.size(); ++p) {
    auto& known = gathers ? parts_[p].gathered : parts_[p].sums;
    for (std::size_t r = 0; r < ranks_; ++r) {
      const auto& more = running[p].state.at[r];
      known[r].insert(known[r].end(), more.begin(), more.end());
    }
  }
}

plan::TransferGraph BucketBuilder::build() {
  const std::size_t phases = grid_.dimensions.size();
  for (std::size_t phase = 0; phase < phases; ++phase) {
    run_phase(phase, false);
  }
  for (std::size_t phase = phases; phase-- > 0;) {
    run_phase(phase, true);
  }
  return builder_.take();
}

class Torus final : public ScheduleFamily {
 public:
  std::string_view name() const override { return "torus"; }

  std::optional<std::string> refusal(const topology::Topology& topology,
                                     const TierCodecs& codecs) const override {
    auto found = find_rank_grid(topology);
    if (auto* reason = std::get_if<std::string>(&found)) {
      return std::move(*reason);
    }
    return refuse_lossy_hops(codecs);
  }

  bool depends_on_codecs() const override { return true; }

  plan::TransferGraph all_reduce(const ScheduleRequest& request) const override {
    const auto found = find_rank_grid(request.topology);
    return BucketBuilder(std::get<RankGrid>(found), request).build();
  }
};

}  // namespace

std::unique_ptr<ScheduleFamily> make_torus() { return std::make_unique<Torus>(); }

}  // namespace rackrail::planner
