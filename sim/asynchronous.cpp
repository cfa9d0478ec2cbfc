// Asynchronous parameter servers: each rank with pushes and pulls of its own.
#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "base/error.hpp"
#include "sim/engine.hpp"
#include "sim/programs.hpp"

namespace rackrail::sim {

namespace {

/// The part of a parameter server's all-reduce that is one rank's: its pushes, and for each the
/// pull of the same range. What the rank serves itself does not move.
plan::TransferGraph exchange_of(const plan::TransferGraph& graph, Rank rank) {
  plan::TransferGraph own(graph.name(), graph.collective(), graph.rank_count(),
                          {graph.chunk_weights().begin(), graph.chunk_weights().end()});
  for (std::size_t i = 1; i < graph.codecs().size(); ++i) {
    own.add_codec(graph.codecs()[i]);
  }
  const auto add = [&](plan::Transfer transfer, std::span<const TransferId> after) {
    transfer.route = own.add_route(graph.routes()[transfer.route.index()]);
    return own.add_transfer(transfer, after);
  };
  const auto key = [](const plan::Transfer& transfer, Rank server) {
    return (std::uint64_t{transfer.chunk_begin} << 32U) | server.value();
  };
  std::unordered_map<std::uint64_t, TransferId> pushes;
  for (const plan::Transfer& transfer : graph.transfers()) {
    if (transfer.op == plan::TransferOp::kReduce && transfer.src == rank) {
      pushes.emplace(key(transfer, transfer.dst), add(transfer, {}));
    }
  }
  for (const plan::Transfer& transfer : graph.transfers()) {
    if (transfer.op == plan::TransferOp::kCopy && transfer.dst == rank) {
      const auto push = pushes.find(key(transfer, transfer.src));
      if (push == pushes.end()) {
        throw PlanError("schedule '" + graph.name() +
                        "' pulls what was not pushed to the same server");
      }
      add(transfer, {&push->second, 1});
    }
  }
  return own;
}

/// When a server read the parameters of a bucket that a rank computed on, and when the rank's
/// update of it was applied. It reads them for the pull that follows the rank's update before: what
/// it applies while the pull is under way is not in them.
struct Update {
  Time read = 0;
  Time applied = 0;
};

/// Adds to `conflicts` and `stale` what the updates of one bucket, by rank and step, met.
void count_conflicts(const std::vector<std::vector<Update>>& updates, double* conflicts,
                     double* stale) {
  std::vector<Time> applied;
  for (const auto& of_rank : updates) {
    for (const Update& update : of_rank) {
      applied.push_back(update.applied);
    }
  }
  std::sort(applied.begin(), applied.end());
  for (const auto& of_rank : updates) {
    for (const Update& update : of_rank) {
      // Of updates at one time, as ranks in step make them, each is met by the other once, now or
      // in the next step: they count from the reading on, without the rank's own one there.
      const auto from = std::lower_bound(applied.begin(), applied.end(), update.read);
      const auto to = std::lower_bound(applied.begin(), applied.end(), update.applied);
      const std::ptrdiff_t own = update.read > 0 ? 1 : 0;
      const std::ptrdiff_t between = std::max<std::ptrdiff_t>(to - from - own, 0);
      *conflicts += between > 0 ? 1 : 0;
      *stale += static_cast<double>(between);
    }
  }
}

}  // namespace

AsynchronousResult simulate_asynchronous(const plan::Plan& plan, const plan::Workload& workload,
                                         const topology::Topology& topology,
                                         const SimulationOptions& options) {
  require_matching(plan, workload, topology);
  for (const plan::Bucket& bucket : plan.buckets) {
    const std::string& name = plan.schedules.at(bucket.schedule).name();
    if (name != "parameter-server") {
      throw PlanError(ErrorContext{"", "plan '" + plan.name + "'", "a bucket with schedule " + name,
                                   "parameter-server for all, to be asynchronous"});
    }
  }
  SimulationOptions quiet = options;
  quiet.record_critical_path = false;
  quiet.record_timeline = false;
  quiet.record_flows = false;
  Engine engine(topology, quiet);
  Routing routing(topology, options.multipath, options.disturbances.seed);
  const std::size_t ranks = topology.rank_count();
  const std::size_t buckets = plan.buckets.size();
  // Runs of a rank's step follow each other: at [(rank · steps + step) · buckets + bucket].
  const auto steps = static_cast<std::size_t>(options.steps);
  for (std::size_t r = 0; r < ranks; ++r) {
    std::vector<std::shared_ptr<const GraphIndex>> indices;
    for (const plan::Bucket& bucket : plan.buckets) {
      indices.push_back(index_graph(exchange_of(plan.schedules[bucket.schedule], Rank(r)),
                                    bucket.elements, bucket.slice_elements, routing));
    }
    for (std::size_t step = 0; step < steps; ++step) {
      std::vector<std::uint32_t> runs;
      for (std::size_t b = 0; b < buckets; ++b) {
        // Steps of different ranks are not before or after each other.
        runs.push_back(engine.add_run(indices[b], fmt::format("bucket {} of rank {}", b, r),
                                      urgency_of(0, plan.buckets[b].priority), Rank(r)));
      }
      Program program =
          program_of(plan, workload, topology.node(topology.node_of(Rank(r))).device_class, Rank(r),
                     runs.empty() ? 0 : runs.front(),
                     slowdown(options.disturbances, Rank(r), static_cast<int>(step)));
      engine.add_step(Rank(r), std::move(program.pieces), runs, program.optimizer);
    }
  }
  engine.run();

  AsynchronousResult result;
  for (std::size_t r = 0; r < ranks; ++r) {
    const Duration mean(engine.end_of(Rank(r)) / static_cast<Time>(steps));
    result.step_times.push_back(mean);
    result.samples_per_s +=
        static_cast<double>(plan.batch.local_batch[r] * plan.batch.accumulation) / mean.seconds();
  }
  double conflicts = 0;
  double stale = 0;
  std::size_t counted = 0;
  for (std::size_t b = 0; b < buckets; ++b) {
    std::vector<std::vector<Update>> updates(ranks);
    for (std::size_t r = 0; r < ranks; ++r) {
      Time read = 0;
      for (std::size_t step = 0; step < steps; ++step) {
        const auto run = static_cast<std::uint32_t>((r * steps + step) * buckets + b);
        if (engine.run_added(run) > 0) {  // else the rank serves the whole bucket
          updates[r].push_back({read, engine.run_added(run)});
          read = engine.run_added(run);
          ++counted;
        }
      }
    }
    count_conflicts(updates, &conflicts, &stale);
  }
  if (counted > 0) {
    result.conflict_rate = conflicts / static_cast<double>(counted);
    result.staleness = stale / static_cast<double>(counted);
  }
  return result;
}

}  // namespace rackrail::sim
