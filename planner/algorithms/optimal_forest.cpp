// Throughput-optimal forests (planner/forest/): from every rank, trees that fill the links that
// bind and no more; what they sum up they broadcast, part by part.
#include <algorithm>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "planner/algorithms/families.hpp"
#include "planner/packing/colours.hpp"
#include "planner/packing/forest_building.hpp"
#include "planner/packing/host_trees.hpp"
#include "planner/packing/joint_forest.hpp"
#include "planner/pipeline/forest_schedule.hpp"

namespace rackrail::planner {

namespace {

// Beyond this many ranks a graph has millions of transfers.
constexpr std::size_t kMostRanksPacked = 512;
// Large buffers gain from rounds, until graphs become large themselves.
constexpr std::size_t kFineRounds[] = {16, 24, 32, 48, 64, 96, 128, 256};
// Of trees that settle over switches: a GPU's additions soon take as long as what links wait for.
constexpr std::size_t kCloseRounds[] = {8, 12, 16, 20, 24, 32, 48, 64, 96, 128, 256};
// Of trees between unlike hosts, which are shallow.
constexpr std::size_t kRoundsOfHosts[] = {16, 32, 64, 96, 128, 160, 192};
constexpr std::size_t kDeep = 8;       // arcs from a root
constexpr std::size_t kFewRounds = 4;  // enough where there are many trees
// Of trees that settle, over what others may have, and in all.
constexpr std::size_t kTimesMoreSettled = 3;
constexpr std::size_t kMostTransfersSettled = 2'000'000;
// Of many trees over links of ranks' own, where those leave few rounds: kMostPlannedTransfers then.
constexpr std::size_t kRoundsEnough = 32;
constexpr std::size_t kRoundsOfMany[] = {16, 256};  // each takes seconds to be made
constexpr double kFarBetter = 1.25;                 // times a rate that is not worth its trees then
// Of clusters that are even: beyond, even shares of links are as good.
constexpr std::size_t kMostRanksRated = 64;
// Beyond, steps of so many more schedules take minutes to be compared.
constexpr std::size_t kMostRanksOfRatedSteps = 32;

/// Near to the bound, or shallow, or between few pairs of ranks: which of them is better depends on
/// the cluster.
constexpr ForestOptions kOptions[] = {
    {.most_trees_per_rank = 16, .good_enough = 0.9999},
    {},
    {.most_trees_per_rank = 16, .good_enough = 0.9999, .pairs = Pairs::kFew}};

class ForestFamily final : public ScheduleFamily {
 public:
  std::string_view name() const override { return "forest"; }

  std::optional<std::string> refusal(const topology::Topology& topology,
                                     const TierCodecs& codecs) const override {
    if (topology.rank_count() < 2) {
      return "one rank alone has nothing to exchange";
    }
    if (topology.rank_count() > kMostRanksPacked) {
      return "there are too many ranks for a tree from each of them";
    }
    return refuse_lossy_hops(codecs);
  }

  plan::TransferGraph all_reduce(const ScheduleRequest& request) const override {
    const AllReduceForests forests = make_allreduce_forests(request.topology);
    return all_reduce_along(forests.reduction, forests.broadcast, request, 1, Pace::kStages);
  }

  // In stages: buckets of a step follow one another, and the timeline of the compression search
  // (planner/compression/compression_timeline.hpp) knows such schedules better. Urgent moves gain
  // for one large collective alone. Where trees have unlike shares of links, rates gain more than
  // stages cost.
  std::vector<plan::TransferGraph> all_reduces(const ScheduleRequest& request) const override {
    const AllReduceForests forests = make_allreduce_forests(request.topology);
    std::vector<plan::TransferGraph> graphs;
    graphs.push_back(
        all_reduce_along(forests.reduction, forests.broadcast, request, 1, Pace::kStages));
    for (const std::size_t rounds : numbers_of_rounds(request, graphs[0].transfers().size())) {
      if (rounds > 1) {
        graphs.push_back(
            all_reduce_along(forests.reduction, forests.broadcast, request, rounds, Pace::kStages));
      }
    }
    if (request.may_have_rates && request.topology.rank_count() <= kMostRanksOfRatedSteps &&
        are_ranks_unlike(request.topology)) {
      add_rated(request, graphs);
    }
    return graphs;
  }

  std::vector<CollectiveForm> collectives(plan::Collective what,
                                          const ScheduleRequest& request) const override {
    std::vector<CollectiveForm> forms;
    const bool is_uneven = are_ranks_unlike(request.topology);
    if (what == plan::Collective::kAllReduce) {
      // First: what they reach, others may not have to be made for.
      for (const AllReduceForests& forests :
           settled_forests(request.topology, request.most_pieces() >= kMostTransfersSettled)) {
        add_settled(forests, request, forms);
        if (is_far_better(forests.algbw, rate_of_halves(request.topology))) {
          return forms;
        }
      }
    }
    if (what == plan::Collective::kAllReduce && is_uneven) {
      for (const AllReduceForests& forests : host_forests(request.topology)) {
        add_forms(what, forests, request, {Pace::kRatedTurns}, forms, kRoundsOfHosts);
      }
    }
    const std::vector<AllReduceForests> seen = all_forests(what, request.topology);
    for (const AllReduceForests& forests : seen) {
      add_forms(what, forests, request, paces_for(what, request, is_uneven), forms);
    }
    if (what == plan::Collective::kAllReduce && (is_uneven || are_deep(seen))) {
      for (const AllReduceForests& forests : priced_forests(request.topology)) {
        if (std::find(seen.begin(), seen.end(), forests) == seen.end()) {
          add_forms(what, forests, request,
                    is_uneven ? std::vector{Pace::kRated, Pace::kUrgent, Pace::kStages}
                              : std::vector{Pace::kRated},
                    forms);
        }
      }
    }
    return forms;
  }

 private:
  /// By all options that make a difference, each once: several may lead to the same trees.
  static std::vector<AllReduceForests> all_forests(plan::Collective what,
                                                   const topology::Topology& topology) {
    std::vector<AllReduceForests> seen;
    for (const ForestOptions& options : kOptions) {
      if (options.pairs != Pairs::kEven && topology.rank_count() > kMostRanksExactly) {
        continue;  // the same as without, or too many trees
      }
      for (AllReduceForests& forests : forests_for(what, topology, options)) {
        if (std::find(seen.begin(), seen.end(), forests) == seen.end()) {
          seen.push_back(std::move(forests));
        }
      }
    }
    return seen;
  }

  /// Nothing else has their rate, so they may have more transfers than others, if fewer than a
  /// graph of few ranks may have.
  static void add_settled(const AllReduceForests& forests, const ScheduleRequest& request,
                          std::vector<CollectiveForm>& forms) {
    ScheduleRequest finer = request;
    finer.most_transfers =
        std::max(request.most_transfers,
                 std::min(kTimesMoreSettled * request.most_transfers, kMostTransfersSettled));
    if (request.topology.node_count() == request.topology.rank_count()) {  // each has its own link
      const std::size_t arcs =
          2 * forests.broadcast.trees.size() * (request.topology.rank_count() - 1);
      if (request.most_of_pipelines > finer.most_transfers &&
          finer.most_transfers / arcs < kRoundsEnough) {
        finer.most_transfers = request.most_of_pipelines;
        add_forms(plan::Collective::kAllReduce, forests, finer, {Pace::kEvenTurns}, forms,
                  kRoundsOfMany);
        return;
      }
      add_forms(plan::Collective::kAllReduce, forests, finer, {Pace::kEvenTurns}, forms);
      return;
    }
    add_forms(plan::Collective::kAllReduce, forests, finer,
              {request.may_have_rates ? Pace::kRated : Pace::kUrgent}, forms, kCloseRounds);
  }

  static bool is_far_better(Bandwidth rate, Bandwidth than) {
    return static_cast<double>(rate.bytes_per_second()) >=
           kFarBetter * static_cast<double>(than.bytes_per_second());
  }

  /// Whether the fastest of them are, so that trees of other shapes may be filled sooner.
  static bool are_deep(const std::vector<AllReduceForests>& forests) {
    const auto fastest = std::max_element(
        forests.begin(), forests.end(),
        [](const AllReduceForests& a, const AllReduceForests& b) { return a.algbw < b.algbw; });
    return fastest != forests.end() && is_deep(*fastest);
  }

  static bool is_deep(const AllReduceForests& forests) {
    return std::max(depth_of(forests.reduction), depth_of(forests.broadcast)) > kDeep;
  }

  /// Forests that differ, those that may be the best first.
  static std::vector<AllReduceForests> uneven_forests(const topology::Topology& topology) {
    std::vector<AllReduceForests> all;
    const auto add = [&](std::vector<AllReduceForests> forests) {
      for (AllReduceForests& one : forests) {
        if (std::find(all.begin(), all.end(), one) == all.end()) {
          all.push_back(std::move(one));
        }
      }
    };
    for (const ForestOptions& options : kOptions) {
      add(allreduce_forests(topology, options));
    }
    add(priced_forests(topology));
    return all;
  }

  static void add_rated(const ScheduleRequest& request, std::vector<plan::TransferGraph>& graphs) {
    for (const AllReduceForests& forests : uneven_forests(request.topology)) {
      const auto in_rounds = [&](std::size_t rounds) {
        return all_reduce_along(forests.reduction, forests.broadcast, request, rounds,
                                Pace::kRated);
      };
      const std::size_t once =
          all_reduce_along(forests.reduction, forests.broadcast, request, 1, Pace::kStages)
              .transfers()
              .size();
      const std::size_t most = std::min(request.most_rounds, request.most_transfers / once);
      if (most > kFewRounds) {
        graphs.push_back(in_rounds(kFewRounds));
      }
      if (most > 0) {
        graphs.push_back(in_rounds(most));
      }
    }
  }

  /// What is likelier to be best first: forms that cannot be much faster than it are not simulated.
  static std::vector<Pace> paces_for(plan::Collective what, const ScheduleRequest& request,
                                     bool is_uneven) {
    if (is_uneven) {
      std::vector<Pace> paces = {Pace::kRated, Pace::kUrgent};
      if (what == plan::Collective::kReduceScatter) {
        paces.push_back(Pace::kRatedTurns);  // sums hold each other up at devices
      }
      return paces;
    }
    return request.topology.rank_count() > kMostRanksRated
               ? std::vector{Pace::kUrgent}
               : std::vector{Pace::kUrgent, Pace::kRated};
  }

  static std::vector<AllReduceForests> forests_for(plan::Collective what,
                                                   const topology::Topology& topology,
                                                   const ForestOptions& options) {
    if (what == plan::Collective::kAllReduce) {
      return allreduce_forests(topology, options);
    }
    AllReduceForests forests;
    if (what == plan::Collective::kAllGather) {
      forests.broadcast = make_forest(topology, options);
    } else {
      forests.reduction = make_forest(topology, options, true);
    }
    return {std::move(forests)};
  }

  /// In one round, and in ever more as long as the request allows.
  static void add_forms(plan::Collective what, const AllReduceForests& forests,
                        const ScheduleRequest& request, const std::vector<Pace>& paces,
                        std::vector<CollectiveForm>& forms,
                        std::span<const std::size_t> fine = kFineRounds) {
    const auto along = [what, request, trees = std::make_shared<const AllReduceForests>(forests)](
                           std::size_t rounds, Pace pace) {
      switch (what) {
        case plan::Collective::kAllGather:
          return all_gather_along(trees->broadcast, request, rounds, pace);
        case plan::Collective::kReduceScatter:
          return reduce_scatter_along(trees->reduction, request, rounds, pace);
        default:
          return all_reduce_along(trees->reduction, trees->broadcast, request, rounds, pace);
      }
    };
    const FormShape one = CollectiveForm(along(1, Pace::kStages), request.topology).shape();
    const Forest* reduction = what == plan::Collective::kAllGather ? nullptr : &forests.reduction;
    const Forest* broadcast =
        what == plan::Collective::kReduceScatter ? nullptr : &forests.broadcast;
    for (const Pace pace : paces) {
      if (has_rates(pace) && !request.may_have_rates) {
        continue;
      }
      for (const std::size_t rounds :
           numbers_of_rounds(request, static_cast<std::size_t>(one.transfers), kFewRounds, fine)) {
        forms.emplace_back(in_rounds(one, reduction, broadcast, rounds, pace),
                           [along, rounds, pace] { return along(rounds, pace); });
      }
    }
  }

  /// One, and ever more as long as the request allows for a graph of so many transfers in one
  /// round: from `few` on, if that is not 0.
  static std::vector<std::size_t> numbers_of_rounds(
      const ScheduleRequest& request, std::size_t transfers, std::size_t few = 0,
      std::span<const std::size_t> fine = kFineRounds) {
    const std::size_t most = std::min(request.most_rounds, request.most_transfers / transfers);
    std::vector<std::size_t> numbers = {1};
    if (few > 1 && few <= most) {
      numbers.push_back(few);
    }
    for (const std::size_t number : fine) {
      if (const std::size_t rounds = std::min(number, most); rounds > numbers.back()) {
        numbers.push_back(rounds);
      }
    }
    return numbers;
  }
};

}  // namespace

std::unique_ptr<ScheduleFamily> make_optimal_forest() { return std::make_unique<ForestFamily>(); }

}  // namespace rackrail::planner
