#include "cli/emulated_messages.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <set>
#include <tuple>
#include <utility>

#include "base/error.hpp"
#include "plan/cost_model.hpp"
#include "plan/empty_plan.hpp"
#include "plan/slice_unit.hpp"
#include "topology/queries.hpp"

namespace rackrail::cli {

namespace {

/// What links have in common that are alike; rates whichever way round.
using LinkSort = std::tuple<std::string, Bandwidth, Bandwidth>;

/// The machine or the switch.
const std::string& station_name(const topology::Topology& network, NodeId id) {
  const topology::Node& node = network.node(id);
  return node.host.empty() ? node.name : node.host;
}

bool is_inside_machine(const topology::Topology& network, const topology::Link& link) {
  const std::string& host = network.node(link.from).host;
  return !host.empty() && host == network.node(link.to).host;
}

LinkId opposite(const topology::Topology& network, LinkId id) {
  const topology::Link& link = network.link(id);
  for (const LinkId other : network.links_out_of(link.to)) {
    if (network.link(other).to == link.from) {
      return other;
    }
  }
  throw ConfigError(ErrorContext{"", fmt::format("link {}", network.link_name(id)), "no link back",
                                 "both directions of every link"});
}

/// The first rank of each machine.
std::vector<Rank> machines(const topology::Topology& network) {
  std::vector<Rank> first;
  std::set<std::string> known;
  for (std::size_t r = 0; r < network.rank_count(); ++r) {
    if (known.insert(station_name(network, network.node_of(Rank(r)))).second) {
      first.emplace_back(r);
    }
  }
  return first;
}

bool is_slowest_of(const topology::Topology& network, LinkId id, const std::vector<LinkId>& way) {
  return std::ranges::all_of(way, [&](LinkId other) {
    return network.link(id).bandwidth <= network.link(other).bandwidth;
  });
}

bool is_better(const LinkWay& one, const LinkWay& other) {
  return one.is_slowest != other.is_slowest ? one.is_slowest
                                            : one.there.size() < other.there.size();
}

/// Kinds of links, with the best way over one of each so far.
class LinkSorts {
 public:
  explicit LinkSorts(const topology::Topology& network) : network_(network) {}

  void add(Rank from, Rank to, const std::vector<LinkId>& there) {
    std::vector<LinkId> back;
    for (auto link = there.rbegin(); link != there.rend(); ++link) {
      back.push_back(opposite(network_, *link));
    }
    for (std::size_t i = 0; i < there.size(); ++i) {
      const topology::Link& link = network_.link(there[i]);
      if (is_inside_machine(network_, link)) {
        continue;
      }
      const LinkId reverse = back[back.size() - 1 - i];
      const Bandwidth rate_back = network_.link(reverse).bandwidth;
      const LinkSort sort{link.tier, std::min(link.bandwidth, rate_back),
                          std::max(link.bandwidth, rate_back)};
      LinkWay way{.link = fmt::format("{} - {}", station_name(network_, link.from),
                                      station_name(network_, link.to)),
                  .from = from,
                  .to = to,
                  .there = there,
                  .back = back,
                  .is_slowest = is_slowest_of(network_, there[i], there) &&
                                is_slowest_of(network_, reverse, back)};
      const LinkId first = std::min(there[i], reverse);
      const auto known = best_.find(sort);
      if (known == best_.end()) {
        best_.emplace(sort, Best{first, std::move(way)});
      } else {
        known->second.first = std::min(known->second.first, first);
        if (is_better(way, known->second.way)) {
          known->second.way = std::move(way);
        }
      }
    }
  }

  std::vector<LinkWay> take() {
    std::vector<Best> sorted;
    for (auto& [sort, best] : best_) {
      sorted.push_back(std::move(best));
    }
    std::ranges::sort(sorted, {}, &Best::first);
    std::vector<LinkWay> ways;
    for (Best& best : sorted) {
      ways.push_back(std::move(best.way));
    }
    return ways;
  }

 private:
  struct Best {
    LinkId first;  ///< of the kind that was seen, by number
    LinkWay way;
  };
  const topology::Topology& network_;
  std::map<LinkSort, Best> best_;
};

/// Between two of so many ranks.
plan::TransferGraph there_and_back(std::size_t ranks, Rank from, Rank to, const LinkWay& way) {
  plan::TransferGraph graph("message there and back", plan::Collective::kAllReduce, ranks, {1});
  const TransferId there = graph.add_transfer({.src = from,
                                               .dst = to,
                                               .op = plan::TransferOp::kReduce,
                                               .route = graph.add_route(way.there)},
                                              {});
  graph.add_transfer(
      {.src = to, .dst = from, .op = plan::TransferOp::kCopy, .route = graph.add_route(way.back)},
      {&there, 1});
  return graph;
}

const std::string& rank_name(const topology::Topology& network, Rank rank) {
  return network.node(network.node_of(rank)).name;
}

/// Without buckets.
MessagePlan empty_message_plan(const topology::Topology& network, const LinkWay& way) {
  MessagePlan messages{.plan = plan::empty_plan(network), .ranks = {way.from, way.to}, .cases = {}};
  messages.plan.name = "messages over " + way.link;
  messages.plan.rank_names = {rank_name(network, way.from), rank_name(network, way.to)};
  messages.plan.batch.local_batch.resize(messages.ranks.size());
  messages.plan.schedules.push_back(there_and_back(messages.ranks.size(), Rank(0), Rank(1), way));
  return messages;
}

}  // namespace

std::vector<LinkWay> link_ways(const topology::Topology& network) {
  LinkSorts sorts(network);
  topology::Router router(network);
  const std::vector<Rank> ranks = machines(network);
  for (std::size_t a = 0; a < ranks.size(); ++a) {
    for (std::size_t b = a + 1; b < ranks.size(); ++b) {
      sorts.add(ranks[a], ranks[b], router.route(ranks[a], ranks[b]));
    }
  }
  return sorts.take();
}

std::vector<MessagePlan> plan_messages(const topology::Topology& network,
                                       const sim::SimulationOptions& simulation,
                                       std::span<const Bytes> sizes) {
  std::vector<MessagePlan> plans;
  if (sizes.empty()) {
    return plans;
  }
  const auto costs = sim::make_cost_model(network, simulation);
  for (const LinkWay& way : link_ways(network)) {
    const plan::TransferGraph in_network =
        there_and_back(network.rank_count(), way.from, way.to, way);
    MessagePlan messages = empty_message_plan(network, way);
    for (const Bytes size : sizes) {
      plan::Bucket bucket;
      bucket.tensors = {static_cast<std::uint32_t>(messages.plan.buckets.size())};
      bucket.elements = size.count() / 4;
      bucket.slice_elements = plan::one_slice(bucket.elements);
      const Duration both =
          costs->collective_time(in_network, bucket.elements, bucket.slice_elements);
      messages.cases.push_back({.link = way.link,
                                .from = messages.plan.rank_names[0],
                                .to = messages.plan.rank_names[1],
                                .is_slowest = way.is_slowest,
                                .size = size,
                                .predicted = scaled(both, kOneWay),
                                .measured = {}});
      messages.plan.buckets.push_back(std::move(bucket));
    }
    plans.push_back(std::move(messages));
  }
  return plans;
}

}  // namespace rackrail::cli
