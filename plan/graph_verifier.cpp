#include "plan/graph_verifier.hpp"

#include <algorithm>
#include <numeric>
#include <set>
#include <tuple>

#include "plan/chunk_execution.hpp"
#include "plan/in_network.hpp"
#include "plan/mutual_sum.hpp"

namespace rackrail::plan {
namespace {

// A file may claim anything; this and kMostVerifiedMovements keep memory and time within what a
// verifier may take. The sets of 2¹⁵ ranks take 128 MiB.
constexpr std::size_t kMostRanks = std::size_t{1} << 15U;

/// Chunks that every transfer moves together or not at all, by their first chunk, and the transfers
/// that move them: what happens to one of them happens to all.
struct ChunkGroups {
  std::vector<std::uint32_t> first;
  std::vector<std::size_t> begin;  ///< of group i in `transfers`; one more than groups
  std::vector<TransferId> transfers;
};

std::vector<std::uint32_t> group_boundaries(const TransferGraph& graph) {
  std::vector<std::uint32_t> first{0};
  for (const Transfer& t : graph.transfers()) {
    first.push_back(t.chunk_begin);
    first.push_back(t.chunk_begin + t.chunk_count);
  }
  const auto owners = graph.owners();
  for (std::uint32_t chunk = 1; chunk < owners.size(); ++chunk) {
    if (owners[chunk] != owners[chunk - 1]) {
      first.push_back(chunk);
    }
  }
  std::sort(first.begin(), first.end());
  first.erase(std::unique(first.begin(), first.end()), first.end());
  if (first.back() == graph.chunk_count()) {
    first.pop_back();
  }
  return first;
}

/// Calls `visit(group, id)` for each transfer and group that it moves, in id order.
template <typename Visit>
void for_each_group(const TransferGraph& graph, const std::vector<std::uint32_t>& first,
                    Visit visit) {
  const auto transfers = graph.transfers();
  for (std::size_t id = 0; id < transfers.size(); ++id) {
    const Transfer& t = transfers[id];
    auto group = std::lower_bound(first.begin(), first.end(), t.chunk_begin);
    for (; group != first.end() && *group - t.chunk_begin < t.chunk_count; ++group) {
      visit(static_cast<std::size_t>(group - first.begin()), TransferId(id));
    }
  }
}

/// Number of (transfer, group) pairs, without visiting them one by one.
std::uint64_t count_visits(const TransferGraph& graph, const std::vector<std::uint32_t>& first) {
  std::uint64_t visits = 0;
  for (const Transfer& t : graph.transfers()) {
    const auto begin = std::lower_bound(first.begin(), first.end(), t.chunk_begin);
    const auto end = std::lower_bound(begin, first.end(), t.chunk_begin + t.chunk_count);
    visits += static_cast<std::uint64_t>(end - begin);
  }
  return visits;
}

ChunkGroups group_chunks(const TransferGraph& graph, std::vector<std::uint32_t> first) {
  ChunkGroups groups;
  groups.first = std::move(first);
  groups.begin.assign(groups.first.size() + 1, 0);
  for_each_group(graph, groups.first,
                 [&](std::size_t group, TransferId) { ++groups.begin[group + 1]; });
  std::partial_sum(groups.begin.begin(), groups.begin.end(), groups.begin.begin());
  groups.transfers.resize(groups.begin.back());
  std::vector<std::size_t> next(groups.begin.begin(), groups.begin.end() - 1);
  for_each_group(graph, groups.first,
                 [&](std::size_t group, TransferId id) { groups.transfers[next[group]++] = id; });
  return groups;
}

/// Whether so few transfers move a chunk that something cannot get where it belongs, which is told
/// before the sets of a large job are gone through for each chunk. Each other rank sends or gets
/// something at least once.
bool moves_too_little(const TransferGraph& graph, const ChunkGroups& groups,
                      ProblemList& problems) {
  constexpr std::size_t kSmallJob = 1024;
  const std::size_t least = graph.rank_count() - 1;
  for (std::size_t i = 0; i < groups.first.size() && graph.rank_count() > kSmallJob; ++i) {
    if (const std::size_t moves = groups.begin[i + 1] - groups.begin[i]; moves < least) {
      problems.add([&] {
        return fmt::format("chunk {}: {} transfers move it, {} ranks need at least {}",
                           groups.first[i], moves, graph.rank_count(), least);
      });
      return true;
    }
  }
  return false;
}

void execute(const TransferGraph& graph, ProblemList& problems) {
  if (graph.rank_count() > kMostRanks) {
    problems.add([&] {
      return fmt::format("{} ranks, at most {} can be verified", graph.rank_count(), kMostRanks);
    });
    return;
  }
  if (graph.collective() != Collective::kAllReduce &&
      graph.owners().size() != graph.chunk_count()) {
    problems.add([&] {
      return fmt::format("{} chunks have an owner, expected {}", graph.owners().size(),
                         graph.chunk_count());
    });
    return;
  }
  std::vector<std::uint32_t> first = group_boundaries(graph);
  if (const std::uint64_t visits = count_visits(graph, first); visits > kMostVerifiedMovements) {
    problems.add([&] {
      return fmt::format("{} movements of chunks, at most {} can be verified", visits,
                         kMostVerifiedMovements);
    });
    return;
  }
  const ChunkGroups groups = group_chunks(graph, std::move(first));
  if (moves_too_little(graph, groups, problems)) {
    return;
  }
  ChunkExecution execution(graph, problems);
  for (std::size_t i = 0; i < groups.first.size(); ++i) {
    execution.run(groups.first[i],
                  std::span(groups.transfers)
                      .subspan(groups.begin[i], groups.begin[i + 1] - groups.begin[i]));
  }
}

/// Dependencies that no one could wait for, and the figures of the report.
void check_dependencies(const TransferGraph& graph, ProblemList& problems, VerifyReport& report) {
  const auto transfers = graph.transfers();
  report.transfers = transfers.size();
  std::vector<std::uint32_t> depth(transfers.size(), 1);
  std::vector<std::pair<std::uint32_t, std::uint32_t>> arrivals;  // (destination, depth)
  arrivals.reserve(transfers.size());
  for (std::size_t i = 0; i < transfers.size(); ++i) {
    const Transfer& transfer = transfers[i];
    for (const TransferId dependency : graph.dependencies(TransferId(i))) {
      const Transfer& d = graph.transfer(dependency);
      depth[i] = std::max(depth[i], depth[dependency.index()] + 1);
      if (d.dst != transfer.src && d.src != transfer.src) {
        problems.add([&] {
          return fmt::format(
              "transfer {} (rank {} to rank {}) waits for transfer {} (rank {} to rank {}), which "
              "rank {} cannot see",
              i, transfer.src.value(), transfer.dst.value(), dependency.value(), d.src.value(),
              d.dst.value(), transfer.src.value());
        });
      }
    }
    report.depth = std::max<std::size_t>(report.depth, depth[i]);
    arrivals.emplace_back(transfer.dst.value(), depth[i]);
  }
  std::sort(arrivals.begin(), arrivals.end());
  for (auto run = arrivals.begin(); run != arrivals.end();) {
    const auto end = std::upper_bound(run, arrivals.end(), *run);
    report.largest_fan_in = std::max(report.largest_fan_in, static_cast<std::size_t>(end - run));
    run = end;
  }
}

void check_routes(const TransferGraph& graph, const topology::Topology& topology,
                  ProblemList& problems) {
  if (graph.rank_count() != topology.rank_count()) {
    problems.add([&] {
      return fmt::format("made for {} ranks, the cluster '{}' has {}", graph.rank_count(),
                         topology.name(), topology.rank_count());
    });
    return;
  }
  // Transfers share routes, so that each (route, src, dst) is looked at once.
  std::set<std::tuple<RouteId, Rank, Rank>> checked;
  for (std::size_t i = 0; i < graph.transfers().size(); ++i) {
    const Transfer& t = graph.transfers()[i];
    const std::vector<LinkId>& route = graph.routes()[t.route.index()];
    if (route.empty() || !checked.emplace(t.route, t.src, t.dst).second) {
      continue;
    }
    const auto complain = [&](const std::string& what) {
      problems.add([&] {
        return fmt::format("transfer {} (rank {} to rank {}), route {}: {}", i, t.src.value(),
                           t.dst.value(), t.route.value(), what);
      });
    };
    const auto unknown = std::find_if(route.begin(), route.end(), [&topology](LinkId link) {
      return link.index() >= topology.link_count();
    });
    if (unknown != route.end()) {
      complain(fmt::format("link {} is not in the cluster, which has {}", unknown->value(),
                           topology.link_count()));
      continue;
    }
    NodeId here = topology.node_of(t.src);
    for (const LinkId link : route) {
      if (topology.link(link).from != here) {
        complain(fmt::format("link {} does not start at '{}'", topology.link_name(link),
                             topology.node(here).name));
        break;
      }
      here = topology.link(link).to;
    }
    if (topology.link(route.back()).to != topology.node_of(t.dst)) {
      complain(fmt::format("ends at '{}', not at '{}'",
                           topology.node(topology.link(route.back()).to).name,
                           topology.node(topology.node_of(t.dst)).name));
    }
  }
}

/// `topology` may be null, or not the graph's; check_routes says the latter.
void check_groups(const TransferGraph& graph, const topology::Topology* topology,
                  ProblemList& problems) {
  const bool knows_routes = topology != nullptr && graph.rank_count() == topology->rank_count();
  for (std::size_t g = 0; g < graph.groups().size(); ++g) {
    const TransferGroup& group = graph.groups()[g];
    auto problem = problem_of(graph, group);
    if (!problem && knows_routes) {
      problem = problem_of(graph, group, *topology);
    }
    if (problem) {
      problems.add([&] {
        return fmt::format("group {} (transfers {} to {}): {}", g, group.first.value(),
                           group.first.value() + group.count - 1, *problem);
      });
    }
  }
}

void check_mutual_sums(const TransferGraph& graph, ProblemList& problems) {
  for (const TransferGroup& sum : graph.mutual_sums()) {
    if (const auto problem = mutual_sum_problem(graph, sum)) {
      problems.add([&] {
        return fmt::format("mutual sum (transfers {} to {}): {}", sum.first.value(),
                           sum.first.value() + sum.count - 1, *problem);
      });
    }
  }
}

}  // namespace

VerifyReport check_graph(const TransferGraph& graph, const topology::Topology* topology,
                         ProblemList& problems) {
  VerifyReport report;
  check_dependencies(graph, problems, report);
  check_mutual_sums(graph, problems);
  execute(graph, problems);
  if (topology != nullptr) {
    check_routes(graph, *topology, problems);
  }
  check_groups(graph, topology, problems);
  return report;
}

}  // namespace rackrail::plan
