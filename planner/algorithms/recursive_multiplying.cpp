// One-shot exchange and recursive doubling: the fewest steps, for buffers so small that latency
// decides.
//
// Model. n ranks are f₁ · f₂ · … · f_k. In step i, f_i ranks that hold different sums send all of
// the buffer to each other and add what they get (a mutual sum, rule 9 of plan/transfer_graph.hpp);
// after k steps each has the sum of all. A rank sends (f₁ − 1) + (f₂ − 1) + … buffers in k steps.
// One step, f₁ = n, is the one-shot exchange: one latency, where direct reduce-scatter and
// all-gather take two and a ring 2(n − 1). Factors of 2 are recursive doubling: log₂ n steps and as
// many buffers. Between them are the levels of the cluster: all GPUs of a host, then all hosts.
//
// References. Thakur, Rabenseifner, Gropp, "Optimization of collective communication operations in
// MPICH" (2005) for recursive doubling; Ruefenacht, Bull, Booth, "Generalisation of recursive
// doubling for allreduce" (Parallel Computing 69, 2017) for other factors.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>

#include "planner/algorithms/families.hpp"
#include "planner/groups/rank_hierarchy.hpp"
#include "planner/pipeline/move_writer.hpp"

namespace rackrail::planner {

namespace {

using Factors = std::vector<std::size_t>;

constexpr std::uint64_t kMostTransfersAtOnce = 8'192;  // 91 ranks in one step

Factors prime_factors(std::size_t n) {
  Factors factors;
  for (std::size_t f = 2; n > 1; f += n % f == 0 ? 0 : 1) {
    if (n % f == 0) {
      factors.push_back(f);
      n /= f;
    }
  }
  return factors;
}

std::uint64_t transfers_of(const Factors& factors, std::size_t ranks) {
  return ranks * (std::accumulate(factors.begin(), factors.end(), std::size_t{0}) - factors.size());
}

/// Members by level, if all groups of each level have as many.
Factors level_factors(const RankHierarchy& hierarchy) {
  Factors factors;
  for (std::size_t l = 0; l < hierarchy.levels().size(); ++l) {
    if (!hierarchy.is_even(l)) {
      return {};
    }
    if (hierarchy.largest(l) > 1) {
      factors.push_back(hierarchy.largest(l));
    }
  }
  return factors;
}

std::string mechanism_of(const Factors& factors) {
  if (factors.size() == 1) {
    return "one-shot";
  }
  if (std::ranges::all_of(factors, [](std::size_t f) { return f == 2; })) {
    return fmt::format("recursive doubling, {} steps", factors.size());
  }
  return fmt::format("{} in turn, one-shot each", fmt::join(factors, " × "));
}

/// One step for each level, one step, one for each prime factor: of these, each once, those whose
/// transfers are few enough for a small buffer; the last one in any case.
std::vector<Factors> choices(const RankHierarchy& hierarchy) {
  const std::size_t ranks = hierarchy.rank_count();
  std::vector<Factors> chosen;
  for (const Factors& factors : {level_factors(hierarchy), Factors{ranks}}) {
    const bool is_known = !chosen.empty() && chosen.front() == factors;
    if (!factors.empty() && !is_known && transfers_of(factors, ranks) <= kMostTransfersAtOnce) {
      chosen.push_back(factors);
    }
  }
  const Factors primes = prime_factors(ranks);
  if (std::ranges::find(chosen, primes) == chosen.end()) {
    chosen.push_back(primes);
  }
  return chosen;
}

/// `order` has ranks that are near each other next to each other; these are summed first.
plan::TransferGraph make_sums(const ScheduleRequest& request, std::span<const Rank> order,
                              const Factors& factors) {
  MoveWriter writer("recursive-multiplying", request);
  const std::uint32_t whole[] = {1};
  writer.begin_chunks(whole);
  std::size_t stride = 1;
  for (const std::size_t factor : factors) {
    for (std::size_t first = 0; first < order.size(); ++first) {
      if (first / stride % factor != 0) {
        continue;
      }
      std::vector<Rank> members;
      for (std::size_t m = 0; m < factor; ++m) {
        members.push_back(order[first + m * stride]);
      }
      std::ranges::sort(members);
      writer.mutual_sum(members, {});
    }
    stride *= factor;
  }
  return with_mechanism(writer.take(), mechanism_of(factors));
}

class RecursiveMultiplying final : public ScheduleFamily {
 public:
  std::string_view name() const override { return "recursive-multiplying"; }

  std::optional<std::string> refusal(const topology::Topology& topology,
                                     const TierCodecs& codecs) const override {
    if (codecs.inside.is_lossy() || codecs.across.is_lossy()) {
      return "it sums in FP32 only: with a lossy codec ranks would end with different sums";
    }
    return refuse_exchange(topology, codecs);
  }

  GraphSize graph_size(const topology::Topology& topology) const override {
    const std::uint64_t transfers =
        transfers_of(choices(all_levels(topology)).front(), topology.rank_count());
    return {transfers, transfers};
  }

  plan::TransferGraph all_reduce(const ScheduleRequest& request) const override {
    return all_reduces(request).front();
  }

  std::vector<plan::TransferGraph> all_reduces(const ScheduleRequest& request) const override {
    const RankHierarchy hierarchy = all_levels(request.topology);
    std::vector<Rank> order;
    for (std::size_t place = 0; place < hierarchy.rank_count(); ++place) {
      order.push_back(hierarchy.rank_at(place));
    }
    std::vector<plan::TransferGraph> graphs;
    for (const Factors& factors : choices(hierarchy)) {
      graphs.push_back(make_sums(request, order, factors));
    }
    return graphs;
  }
};

}  // namespace

std::unique_ptr<ScheduleFamily> make_recursive_multiplying() {
  return std::make_unique<RecursiveMultiplying>();
}

}  // namespace rackrail::planner
