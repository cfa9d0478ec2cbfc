#include "planner/search/held_rates.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "plan/alpha_beta.hpp"
#include "plan/changed_graph.hpp"
#include "planner/packing/colours.hpp"
#include "planner/packing/pacing.hpp"
#include "planner/tuning/candidates.hpp"

namespace rackrail::planner {

namespace {

std::int64_t encoded_weight(const plan::TransferGraph& graph, const plan::Transfer& transfer) {
  constexpr std::int64_t kElements = 1 << 16;  // for a unit of weight: more than any block has
  std::int64_t weight = 0;
  for (std::uint32_t i = 0; i < transfer.chunk_count; ++i) {
    weight += graph.chunk_weights()[transfer.chunk_begin + i];
  }
  return weight * plan::encoded_size(graph.codecs()[transfer.codec], kElements).count();
}

/// Whether a bucket of this schedule takes long, and whether others do not.
struct Users {
  std::vector<std::size_t> that_take_long;
  bool are_all = true;
};

Users users_of(const plan::Plan& plan, std::uint32_t schedule, const topology::Topology& topology) {
  Users users;
  const plan::AlphaBeta model = plan::alpha_beta(plan.schedules[schedule], topology);
  for (std::size_t b = 0; b < plan.buckets.size(); ++b) {
    if (plan.buckets[b].schedule != schedule) {
      continue;
    }
    if (model.at_least(plan.buckets[b].elements) >= kLongForRates) {
      users.that_take_long.push_back(b);
    } else {
      users.are_all = false;
    }
  }
  return users;
}

/// Of messages of `elements`, in the codecs that transfers have: a graph knows FP32 even if none
/// has.
bool are_short(const plan::TransferGraph& graph, std::int64_t elements) {
  std::vector<bool> is_short;
  for (const plan::Codec& codec : graph.codecs()) {
    is_short.push_back(plan::encoded_size(codec, elements) <= kMostAtOnce);
  }
  return std::ranges::all_of(
      graph.transfers(), [&](const plan::Transfer& transfer) { return is_short[transfer.codec]; });
}

}  // namespace

bool has_many_senders(const plan::TransferGraph& graph, std::size_t fewest) {
  const std::size_t others = graph.rank_count() - 1;
  if (others < fewest) {
    return false;
  }
  std::map<Rank, std::set<Rank>> senders;  // by destination
  for (std::size_t i = 0; i < graph.transfers().size(); ++i) {
    if (graph.dependencies(TransferId(i)).empty()) {
      const plan::Transfer& transfer = graph.transfers()[i];
      senders[transfer.dst].insert(transfer.src);
    }
  }
  return std::ranges::any_of(senders,
                             [&](const auto& to_one) { return to_one.second.size() == others; });
}

bool gains_from_rates(const plan::TransferGraph& graph, const topology::Topology& topology) {
  return !are_ranks_unlike(topology) &&
         std::ranges::all_of(graph.transfers(), [&](const plan::Transfer& transfer) {
           return graph.codecs()[transfer.codec].survives_many_hops();
         });
}

bool is_crowded(const plan::TransferGraph& graph, const topology::Topology& topology) {
  constexpr double kNearlyAsBusy = 0.99;
  const std::vector<plan::LinkLoad> loads = plan::link_loads(graph, topology);
  double longest = 0;
  for (const plan::LinkLoad& load : loads) {
    longest = std::max(longest, load.seconds_per_element);
  }
  using Stream = std::pair<std::optional<LinkId>, Rank>;  // from such a link before, or from a rank
  std::map<LinkId, std::set<Stream>> streams;             // by link that is busy longest
  for (const plan::LinkLoad& load : loads) {
    if (load.seconds_per_element >= kNearlyAsBusy * longest) {
      streams[load.link];
    }
  }
  for (const plan::Transfer& transfer : graph.transfers()) {
    Stream stream(std::nullopt, transfer.src);
    for (const LinkId link : graph.routes()[transfer.route.index()]) {
      if (const auto of_link = streams.find(link); of_link != streams.end()) {
        of_link->second.insert(stream);
        stream = {link, Rank()};
      }
    }
  }
  return std::ranges::any_of(
      streams, [](const auto& of_link) { return of_link.second.size() >= kManySenders; });
}

Duration judged_by_rates(Duration time, const plan::TransferGraph& graph, std::int64_t elements,
                         const topology::Topology& topology) {
  if (time < kLongForRates) {
    return time;
  }
  const bool is_short = are_short(graph, elements);
  Duration judged = is_short ? time : scaled(time, kMostForShortMessages);
  if (!graph.has_rates() && has_many_senders(graph, kSeveralSenders)) {
    judged = scaled(judged, kMostForRates);
  }
  if (!gains_from_rates(graph, topology)) {
    return judged;
  }
  const bool is_held = graph.has_rates() && is_short && is_crowded(graph, topology);
  return is_held ? judged : scaled(judged, kMostForSharedRates);
}

bool has_short_messages(const plan::Plan& plan, const plan::Bucket& bucket) {
  const plan::TransferGraph& graph = plan.schedules[bucket.schedule];
  const auto largest = static_cast<std::int64_t>(
      std::ceil(shape_of(graph).largest_share * static_cast<double>(bucket.elements)));
  return are_short(graph, std::min(bucket.slice_elements, largest));
}

plan::TransferGraph with_proportional_rates(const plan::TransferGraph& graph,
                                            const topology::Topology& topology) {
  std::vector<Move> moves;
  moves.reserve(graph.transfers().size());
  for (const plan::Transfer& transfer : graph.transfers()) {
    moves.push_back({.weight = encoded_weight(graph, transfer),
                     .route = &graph.routes()[transfer.route.index()]});
  }
  const std::vector<Bandwidth> rates = proportional_rates(moves, topology);
  std::vector<plan::RatedRoute> routes = plan::rated_routes(graph);
  for (std::size_t i = 0; i < moves.size(); ++i) {
    routes[graph.transfers()[i].route.index()].rate = rates[i];
  }
  return plan::with_routes(graph, std::move(routes));
}

void hold_to_rates(plan::Plan& plan, const plan::Workload& workload,
                   const topology::Topology& topology, plan::CostModel& cost_model,
                   HeldSchedules which) {
  const std::size_t schedules = plan.schedules.size();
  const Duration start = plan.prediction.step_time;
  for (std::uint32_t schedule = 0; schedule < schedules; ++schedule) {
    const Users users = users_of(plan, schedule, topology);
    if (users.that_take_long.empty() || plan.schedules[schedule].has_rates() ||
        !gains_from_rates(plan.schedules[schedule], topology)) {
      continue;
    }
    const bool has_many = has_many_senders(plan.schedules[schedule]);
    if (which == HeldSchedules::kOfManySenders && !has_many) {
      continue;
    }
    const double most =
        has_many ? kMostForRatesOfMany
        : is_crowded(plan.schedules[schedule], topology) &&
                std::ranges::all_of(
                    users.that_take_long,
                    [&](std::size_t b) { return has_short_messages(plan, plan.buckets[b]); })
            ? kMostForSharedRates
            : kMostForRates;
    const Duration limit = std::max(scaled(start, most), plan.prediction.step_time);
    const plan::Plan before = plan;
    plan::TransferGraph rated = with_proportional_rates(plan.schedules[schedule], topology);
    if (users.are_all) {
      plan.schedules[schedule] = std::move(rated);
    } else {
      plan.schedules.push_back(std::move(rated));
      for (const std::size_t b : users.that_take_long) {
        plan.buckets[b].schedule = static_cast<std::uint32_t>(plan.schedules.size() - 1);
      }
    }
    const plan::StepEstimate estimate = cost_model.step(plan, workload);
    if (estimate.step_time > limit) {
      plan = before;
      continue;
    }
    plan.prediction.step_time = estimate.step_time;
    plan.prediction.sync_share = estimate.sync_share;
  }
}

DividedCollective judged_division(const std::vector<CollectiveForm>& forms,
                                  const plan::Codec& codec, std::int64_t elements,
                                  plan::CostModel& cost_model, const topology::Topology& topology) {
  const std::vector<FormShape> shapes = shapes_of(forms);
  const auto coarsest =
      static_cast<std::size_t>(std::min_element(shapes.begin(), shapes.end(),
                                                [](const FormShape& a, const FormShape& b) {
                                                  return a.transfers < b.transfers;
                                                }) -
                               shapes.begin());
  // Messages are at least so long, as sent, or such a share of the buffer.
  constexpr Bytes kLeastMessage = 32_KiB;
  constexpr std::int64_t kMessagesOfBuffer = 64;
  const Bytes least = std::min(
      kLeastMessage, Bytes(plan::encoded_size(codec, elements).count() / kMessagesOfBuffer));
  return fastest_division(shapes, elements, [&](std::size_t form, std::int64_t slice) {
    const auto largest =
        static_cast<std::int64_t>(shapes[form].largest_share * static_cast<double>(elements));
    const bool is_whole = form == coarsest && slice >= largest;
    if (!is_whole && plan::encoded_size(codec, std::min(slice, largest)) < least) {
      return CandidateSet::kNoLimit;
    }
    const plan::TransferGraph& graph = forms[form].graph();
    return judged_by_rates(cost_model.collective_time(graph, elements, slice), graph,
                           std::min(slice, largest), topology);
  });
}

}  // namespace rackrail::planner
