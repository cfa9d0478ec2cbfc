// Hierarchical all-reduce over groups of ranks (hosts, or racks of single-rank hosts).
//
// With k groups of g ranks the buffer has g·k chunks; chunk (l, j) is summed inside each group at
// the group's member l, then across groups at group j's member l, and goes back the same way. Only
// 2(k−1)/k of the buffer per group crosses groups, spread over the g members ("rails"): member l
// talks to the members l of the other groups only. All phases are one hop, so every codec is
// possible on either tier; chunks are the same in all phases, so slices pipeline through them.
#include "planner/schedules/builder.hpp"

namespace rackrail::planner {

namespace {

class Hierarchical final : public ScheduleFamily {
 public:
  std::string_view name() const override { return "hierarchical"; }

  std::optional<std::string> refusal(const topology::Topology& topology,
                                     const TierCodecs& codecs) const override {
    (void)codecs;
    return refuse_uneven_groups(topology);
  }

  GraphSize graph_size(const topology::Topology& topology) const override {
    const auto groups = tier_groups(topology);
    const std::uint64_t k = groups.size();
    const std::uint64_t g = groups[0].ranks.size();
    const std::uint64_t transfers = 2 * g * k * ((g - 1) * k + k - 1);
    return {transfers, transfers};
  }

  plan::TransferGraph all_reduce(const ScheduleRequest& request) const override {
    const auto groups = tier_groups(request.topology);
    const std::size_t k = groups.size();
    const std::size_t g = groups[0].ranks.size();
    GraphBuilder builder("hierarchical", request, std::vector<std::uint32_t>(g * k, 1));
    const auto rank = [&](std::size_t group, std::size_t member) {
      return groups[group].ranks[member];
    };
    const auto range = [&](std::size_t member, std::size_t owner) {
      return GraphBuilder::Range{static_cast<std::uint32_t>(member * k + owner), 1};
    };
    const auto slot = [&](std::size_t group, std::size_t member, std::size_t owner) {
      return (group * g + member) * k + owner;
    };
    // What the sum of chunk (member, owner) at (group, member) waits for.
    std::vector<std::vector<TransferId>> sums(k * g * k);
    for (std::size_t owner_step = 0; owner_step < k; ++owner_step) {
      for (std::size_t offset = 1; offset < g; ++offset) {
        for (std::size_t i = 0; i < k; ++i) {
          // Chunks of far owners first: they have the longer way.
          const std::size_t j = (i + 1 + owner_step) % k;
          for (std::size_t m = 0; m < g; ++m) {
            const std::size_t l = (m + offset) % g;
            sums[slot(i, l, j)].push_back(builder.reduce(rank(i, m), rank(i, l), range(l, j), {}));
          }
        }
      }
    }
    for (std::size_t offset = 1; offset < k; ++offset) {
      for (std::size_t i = 0; i < k; ++i) {
        const std::size_t j = (i + offset) % k;
        for (std::size_t l = 0; l < g; ++l) {
          const TransferId id =
              builder.reduce(rank(i, l), rank(j, l), range(l, j), sums[slot(i, l, j)]);
          sums[slot(j, l, j)].push_back(id);
        }
      }
    }
    // What makes the result of chunk (member, owner) be at (group, member).
    std::vector<TransferId> results(k * g * k);
    for (std::size_t offset = 1; offset < k; ++offset) {
      for (std::size_t j = 0; j < k; ++j) {
        const std::size_t i = (j + offset) % k;
        for (std::size_t l = 0; l < g; ++l) {
          TransferId& sent = results[slot(j, l, j)];
          const TransferId id =
              offset == 1 ? builder.copy(rank(j, l), rank(i, l), range(l, j), sums[slot(j, l, j)])
                          : builder.copy(rank(j, l), rank(i, l), range(l, j), {&sent, 1});
          if (offset == 1) {
            sent = id;
          }
          results[slot(i, l, j)] = id;
        }
      }
    }
    // A copy inside must see what the copies across made of the value, so it comes after them all;
    // the first one inside is what the rest wait for.
    std::vector<std::vector<TransferId>> across(k * g);
    for (std::size_t j = 0; j < k; ++j) {
      for (std::size_t i = 0; i < k; ++i) {
        for (std::size_t l = 0; l < g && i != j; ++l) {
          across[j * g + l].push_back(results[slot(i, l, j)]);
        }
      }
    }
    std::vector<TransferId> first(k * g * k);
    for (std::size_t owner_step = 0; owner_step < k; ++owner_step) {
      for (std::size_t offset = 1; offset < g; ++offset) {
        for (std::size_t i = 0; i < k; ++i) {
          const std::size_t j = (i + owner_step) % k;
          for (std::size_t l = 0; l < g; ++l) {
            const Rank src = rank(i, l);
            const Rank dst = rank(i, (l + offset) % g);
            TransferId& leader = first[slot(i, l, j)];
            if (offset > 1) {
              builder.copy(src, dst, range(l, j), {&leader, 1});
            } else if (i == j) {
              leader = builder.copy(src, dst, range(l, j), across[j * g + l]);
            } else {
              leader = builder.copy(src, dst, range(l, j), {&results[slot(i, l, j)], 1});
            }
          }
        }
      }
    }
    return builder.take();
  }
};

}  // namespace

std::unique_ptr<ScheduleFamily> make_hierarchical() { return std::make_unique<Hierarchical>(); }

}  // namespace rackrail::planner
