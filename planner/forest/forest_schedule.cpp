#include "planner/forest/forest_schedule.hpp"

#include <algorithm>
#include <map>
#include <numeric>
#include <tuple>
#include <utility>

#include "base/error.hpp"
#include "planner/schedules/builder.hpp"

namespace rackrail::planner {

namespace {

/// A chunk and the trees it takes.
struct Part {
  Rank root;
  std::int64_t weight = 0;
  const Tree* reduction = nullptr;
  const Tree* broadcast = nullptr;
};

std::map<Rank, std::vector<const Tree*>> trees_by_root(const Forest& forest) {
  std::map<Rank, std::vector<const Tree*>> by_root;
  for (const Tree& tree : forest.trees) {
    by_root[tree.root].push_back(&tree);
  }
  return by_root;
}

/// Every root's data, divided wherever the trees of either forest end. Either may be null.
std::vector<Part> parts_of(const Forest* reduction, const Forest* broadcast) {
  const std::int64_t reduction_k = reduction != nullptr ? reduction->trees_per_rank : 1;
  const std::int64_t broadcast_k = broadcast != nullptr ? broadcast->trees_per_rank : 1;
  const std::int64_t whole = std::lcm(reduction_k, broadcast_k);
  std::map<Rank, std::vector<Part>> parts;
  const auto divide = [&](const Forest* forest, std::int64_t k, const Tree* Part::*tree_of) {
    if (forest == nullptr) {
      return;
    }
    for (const auto& [root, trees] : trees_by_root(*forest)) {
      std::int64_t weight = 0;
      for (const Tree* tree : trees) {
        weight += tree->units * (whole / k);
      }
      auto& of_root = parts.try_emplace(root, std::vector<Part>{{root, weight}}).first->second;
      std::size_t next = 0;
      for (const Tree* tree : trees) {
        for (std::int64_t left = tree->units * (whole / k); left > 0; ++next) {
          if (of_root[next].weight > left) {
            Part rest = of_root[next];
            rest.weight -= left;
            of_root[next].weight = left;
            of_root.insert(of_root.begin() + static_cast<std::ptrdiff_t>(next) + 1, rest);
          }
          of_root[next].*tree_of = tree;
          left -= of_root[next].weight;
        }
      }
    }
  };
  divide(reduction, reduction_k, &Part::reduction);
  divide(broadcast, broadcast_k, &Part::broadcast);
  std::vector<Part> all;
  for (const auto& [root, of_root] : parts) {
    all.insert(all.end(), of_root.begin(), of_root.end());
  }
  return all;
}

/// One arc of one part's trees, and how many have to be done before.
struct Due {
  std::size_t stage;
  std::uint32_t part;
  plan::TransferOp op;
  TreeArc arc;
};

void append_reduction(std::vector<Due>& due, const Tree& tree, std::uint32_t part,
                      std::size_t ranks) {
  std::vector<std::size_t> height(ranks);
  for (auto arc = tree.arcs.rbegin(); arc != tree.arcs.rend(); ++arc) {
    due.push_back({height[arc->to.index()], part, plan::TransferOp::kReduce, *arc});
    height[arc->from.index()] = std::max(height[arc->from.index()], height[arc->to.index()] + 1);
  }
}

void append_broadcast(std::vector<Due>& due, const Tree& tree, std::uint32_t part,
                      std::size_t ranks, std::size_t first_stage) {
  std::vector<std::size_t> depth(ranks, first_stage);
  for (const TreeArc& arc : tree.arcs) {
    due.push_back({depth[arc.from.index()], part, plan::TransferOp::kCopy, arc});
    depth[arc.to.index()] = depth[arc.from.index()] + 1;
  }
}

plan::TransferGraph make_graph(plan::Collective collective, const Forest* reduction,
                               const Forest* broadcast, const ScheduleRequest& request,
                               std::size_t rounds) {
  const std::size_t ranks = request.topology.rank_count();
  const std::vector<Part> parts = parts_of(reduction, broadcast);
  std::vector<Due> due;
  for (std::uint32_t i = 0; i < parts.size(); ++i) {
    if (parts[i].reduction != nullptr) {
      append_reduction(due, *parts[i].reduction, i, ranks);
    }
  }
  std::size_t first_copy = 0;
  for (const Due& d : due) {
    first_copy = std::max(first_copy, d.stage + 1);
  }
  for (std::uint32_t i = 0; i < parts.size(); ++i) {
    if (parts[i].broadcast != nullptr) {
      append_broadcast(due, *parts[i].broadcast, i, ranks, first_copy);
    }
  }
  std::stable_sort(due.begin(), due.end(), [](const Due& a, const Due& b) {
    return std::tie(a.stage, a.part) < std::tie(b.stage, b.part);
  });
  std::vector<std::uint32_t> weights;
  std::vector<Rank> owners;
  for (const Part& part : parts) {
    weights.insert(weights.end(), rounds, static_cast<std::uint32_t>(part.weight));
    owners.insert(owners.end(), rounds, part.root);
  }
  GraphBuilder builder("forest", request, std::move(weights), collective);
  // What the next transfer of a chunk out of a rank waits for: additions into it, or the copy that
  // brought the result.
  std::vector<std::vector<TransferId>> arrived(parts.size() * rounds * ranks);
  const auto add = [&](const Due& next, std::size_t round) {
    const bool is_copy = next.op == plan::TransferOp::kCopy;
    const Rank src = is_copy ? next.arc.from : next.arc.to;
    const Rank dst = is_copy ? next.arc.to : next.arc.from;
    const Forest& forest = is_copy ? *broadcast : *reduction;
    const std::size_t chunk = next.part * rounds + round;
    const TransferId id =
        builder.add(next.op, src, dst, {static_cast<std::uint32_t>(chunk), 1},
                    arrived[chunk * ranks + src.index()], forest.routes[next.arc.route]);
    auto& at = arrived[chunk * ranks + dst.index()];
    if (is_copy) {
      at.clear();
    }
    at.push_back(id);
  };
  // In the order in which a pipeline gets to them.
  std::vector<std::size_t> begin{0};  // of each stage in `due`
  for (std::size_t i = 0; i < due.size(); ++i) {
    begin.resize(due[i].stage + 2, i);
    begin.back() = i + 1;
  }
  const std::size_t stages = begin.size() - 1;
  for (std::size_t step = 0; step < stages + rounds - 1; ++step) {
    for (std::size_t round = step < stages ? 0 : step - stages + 1; round < rounds && round <= step;
         ++round) {
      const std::size_t stage = step - round;
      for (std::size_t i = begin[stage]; i < begin[stage + 1]; ++i) {
        add(due[i], round);
      }
    }
  }
  plan::TransferGraph graph = builder.take();
  if (collective != plan::Collective::kAllReduce) {
    graph.set_owners(std::move(owners));
  }
  return graph;
}

}  // namespace

plan::TransferGraph all_gather_along(const Forest& broadcast, const ScheduleRequest& request,
                                     std::size_t rounds) {
  return make_graph(plan::Collective::kAllGather, nullptr, &broadcast, request, rounds);
}

plan::TransferGraph reduce_scatter_along(const Forest& reduction, const ScheduleRequest& request,
                                         std::size_t rounds) {
  return make_graph(plan::Collective::kReduceScatter, &reduction, nullptr, request, rounds);
}

plan::TransferGraph all_reduce_along(const Forest& reduction, const Forest& broadcast,
                                     const ScheduleRequest& request, std::size_t rounds) {
  return make_graph(plan::Collective::kAllReduce, &reduction, &broadcast, request, rounds);
}

std::optional<Forest> mirrored(const Forest& forest, const topology::Topology& topology) {
  // The i-th link from a to b is the opposite of the i-th from b to a.
  std::map<std::pair<NodeId, NodeId>, std::vector<LinkId>> between;
  std::vector<std::size_t> place(topology.link_count());
  for (std::size_t l = 0; l < topology.link_count(); ++l) {
    const topology::Link& link = topology.link(LinkId(l));
    auto& links = between[{link.from, link.to}];
    place[l] = links.size();
    links.push_back(LinkId(l));
  }
  Forest other = forest;
  for (topology::Route& route : other.routes) {
    for (LinkId& id : route) {
      const topology::Link& link = topology.link(id);
      const auto opposite = between.find({link.to, link.from});
      if (opposite == between.end() || opposite->second.size() <= place[id.index()]) {
        return std::nullopt;
      }
      const LinkId back = opposite->second[place[id.index()]];
      if (topology.link(back).bandwidth != link.bandwidth) {
        return std::nullopt;
      }
      id = back;
    }
    std::reverse(route.begin(), route.end());
  }
  return other;
}

}  // namespace rackrail::planner
