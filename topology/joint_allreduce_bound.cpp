// The joint optimum of all-reduce: reduction and broadcast share the links and choose their roots
// (rate_program.hpp). The largest X bounds the algorithm bandwidth of all-reduce.
//
// Reduce-scatter followed by all-gather reaches a rate of its own, where every switch can send as
// much as it receives; where the simple bounds or an intermediate optimum come down to it, the
// answer is found. That is so on most symmetric clusters, of any size, before the first linear
// program.
#include <fmt/format.h>

#include <set>
#include <tuple>
#include <vector>

#include "base/parse_units.hpp"
#include "topology/alike_ranks.hpp"
#include "topology/queries.hpp"
#include "topology/rate_program.hpp"

namespace rackrail::topology {
namespace {

constexpr std::size_t kMostKindsOfRanks = 256;
constexpr std::size_t kMostRanksOfRates = 64;     // from which trees are packed
constexpr std::size_t kMostRanksLookedAt = 1024;  // whether the simple bound can be reached

/// Bytes per second of the best reduce-scatter followed by the best all-gather; 0 where their
/// bounds may be out of reach.
double rate_of_two_halves(const Topology& topology) {
  const AllGatherBound gather = allgather_bound(topology);
  if (gather.may_be_out_of_reach) return 0;
  const auto rate = [](Bandwidth algbw) { return static_cast<double>(algbw.bytes_per_second()); };
  return 1 / (1 / rate(gather.algbw) + 1 / rate(reducescatter_bound(topology).algbw));
}

/// Of a program in which alike ranks have one variable, if it is `is_folded`.
std::size_t kinds_of_ranks(const Topology& topology, bool is_folded) {
  if (!is_folded) return topology.rank_count();
  const std::vector<Rank> alike = alike_parts(topology).ranks;
  return std::set<Rank>(alike.begin(), alike.end()).size();
}

/// What the bound is exactly, or that it is not known.
void set_exactly(AllReduceBound& bound, const std::optional<ExactRate>& exact) {
  bound.p = 0;
  bound.q = 1;
  bound.widest.reset();
  if (!exact) return;
  bound.widest = exact->widest;
  if (const auto fraction = reduced(exact->price, exact->capacity)) {
    std::tie(bound.p, bound.q) = *fraction;
    bound.algbw = Bandwidth(bound.q / bound.p);
  }
}

}  // namespace

AllReduceBound joint_allreduce_bound(const Topology& topology, bool in_network) {
  AllReduceBound bound = allreduce_bound(topology, in_network);
  if (topology.rank_count() > kMostRanksLookedAt) {
    bound.may_be_out_of_reach = true;
    return bound;
  }
  const auto simple = static_cast<double>(bound.algbw.bytes_per_second());
  const double reachable = rate_of_two_halves(topology);
  if (reachable >= simple * (1 - kRateTolerance)) {
    return bound;
  }
  const bool is_folded = in_network || topology.rank_count() > kMostRanksOfRates;
  if (kinds_of_ranks(topology, is_folded) > kMostKindsOfRanks || !LinearProgram::is_available()) {
    bound.reason += fmt::format(
        " (the joint optimum{} is not known: {})",
        reachable > 0 ? fmt::format(", {} at least,",
                                    to_string(Bandwidth(static_cast<std::int64_t>(reachable))))
                      : "",
        LinearProgram::is_available()
            ? fmt::format("more than {} ranks that differ", kMostKindsOfRanks)
            : "this build has no solver");
    bound.may_be_out_of_reach = true;
    return bound;
  }
  RateProgram search(topology, RateProgram::Trees::kBoth, abilities_of(topology, in_network),
                     is_folded);
  const std::optional<double> optimum = search.solve(reachable);
  bound.may_be_out_of_reach = !search.is_reached();
  if (!optimum || *optimum >= simple * (1 - kRateTolerance)) return bound;
  bound.algbw = Bandwidth(static_cast<std::int64_t>(*optimum));
  set_exactly(bound, search.exact());
  bound.reason = "joint optimum of reduction and broadcast: " + to_string(bound.algbw);
  if (const std::string cuts = search.binding_cuts_text(); !cuts.empty()) {
    bound.reason += "; " + cuts;
  }
  bound.cut = Cut{};
  return bound;
}

std::optional<JointAllReduce> joint_allreduce(const Topology& topology) {
  if (topology.rank_count() > kMostRanksOfRates || !LinearProgram::is_available()) {
    return std::nullopt;
  }
  const AllReduceBound bound = allreduce_bound(topology, false);
  const double reachable = rate_of_two_halves(topology);
  if (reachable >= static_cast<double>(bound.algbw.bytes_per_second()) * (1 - kRateTolerance)) {
    return std::nullopt;
  }
  RateProgram search(topology, RateProgram::Trees::kBoth, abilities_of(topology, false));
  const std::optional<double> optimum = search.solve(reachable);
  if (!optimum || *optimum <= reachable * (1 + kRateTolerance)) return std::nullopt;
  return search.rates();
}

}  // namespace rackrail::topology
