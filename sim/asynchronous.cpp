// Asynchronous parameter servers: each rank with pushes and pulls of its own.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <unordered_map>
#include <utility>
#include <vector>

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
    transfer.route =
        own.add_route(graph.routes()[transfer.route.index()], graph.rate(transfer.route));
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

/// What updates met. Every rank makes the same number of steps, so when the fast ones have ended
/// the slow ones meet fewer than in a long run: of a bucket, only those updates count that were
/// applied before the first of its ranks had ended.
struct Conflicts {
  double updates = 0;
  double with_others = 0;  ///< updates that met one at least
  double others = 0;       ///< that they met

  /// The updates of one bucket, by rank and step; none of a rank that serves all of it.
  void add(const std::vector<std::vector<Update>>& of_bucket, const Engine& engine) {
    std::vector<Time> applied;
    Time until = INT64_MAX;
    for (std::size_t r = 0; r < of_bucket.size(); ++r) {
      for (const Update& update : of_bucket[r]) {
        applied.push_back(update.applied);
      }
      until = of_bucket[r].empty() ? until : std::min(until, engine.end_of(Rank(r)));
    }
    std::sort(applied.begin(), applied.end());
    for (const auto& of_rank : of_bucket) {
      for (const Update& update : of_rank) {
        if (update.applied > until) {
          break;
        }
        // Of updates at one time, as ranks in step make them, each is met by the other once, now or
        // in the next step: they count from the reading on, without the rank's own one there.
        const auto from = std::lower_bound(applied.begin(), applied.end(), update.read);
        const auto to = std::lower_bound(applied.begin(), applied.end(), update.applied);
        const std::ptrdiff_t own = update.read > 0 ? 1 : 0;
        const std::ptrdiff_t between = std::max<std::ptrdiff_t>(to - from - own, 0);
        updates += 1;
        with_others += between > 0 ? 1 : 0;
        others += static_cast<double>(between);
      }
    }
  }
};

/// Steps of each rank, made one after the other as it comes to them, and the updates in them.
class Workers {
 public:
  Workers(const plan::Plan& plan, const plan::Workload& workload,
          const topology::Topology& topology, const SimulationOptions& options, Engine& engine)
      : plan_(plan),
        workload_(workload),
        topology_(topology),
        options_(options),
        engine_(engine),
        indices_(topology.rank_count()),
        updates_(plan.buckets.size(), std::vector<std::vector<Update>>(topology.rank_count())) {
    Routing routing(topology, options);
    engine.when_done([this](std::uint32_t run) { updated(run); });
    for (std::size_t r = 0; r < topology.rank_count(); ++r) {
      std::uint64_t slice_ends = 0;
      for (const plan::Bucket& bucket : plan.buckets) {
        const auto index = index_graph(exchange_of(plan.schedules[bucket.schedule], Rank(r)),
                                       bucket.elements, bucket.slice_elements, routing);
        slice_ends = std::accumulate(index->slices_at.begin(), index->slices_at.end(), slice_ends);
        indices_[r].push_back(index);
      }
      const auto steps = static_cast<std::size_t>(options.steps);
      const Rank rank(r);
      engine.add_program({&rank, 1}, steps, slice_ends * steps,
                         [this, rank](std::size_t step) { make_step(rank, step); });
    }
  }

  Conflicts conflicts() const {
    Conflicts all;
    for (const auto& of_bucket : updates_) {
      all.add(of_bucket, engine_);
    }
    return all;
  }

 private:
  /// Whose updates of which bucket a collective is.
  struct Owner {
    Rank rank;
    std::size_t bucket = 0;
  };

  void make_step(Rank rank, std::size_t step) {
    Program program = program_of(plan_, workload_, topology_.node(topology_.node_of(rank)), rank, 0,
                                 slowdown(options_.disturbances, rank, static_cast<int>(step)));
    std::vector<std::uint32_t> runs(plan_.buckets.size());
    std::vector<std::uint32_t> made;
    for (std::size_t b = 0; b < plan_.buckets.size(); ++b) {
      const auto& index = indices_[rank.index()][b];
      if (index->slices_at[rank.index()] > 0) {  // else the rank serves the whole bucket
        // Steps of different ranks are not before or after each other.
        runs[b] = engine_.add_run(index, fmt::format("bucket {} of rank {}", b, rank.value()),
                                  urgency_of(0, plan_.buckets[b].priority), rank);
        owners_[runs[b]] = {rank, b};
        made.push_back(runs[b]);
      }
    }
    for (ComputePiece& piece : program.pieces) {
      std::vector<std::uint32_t> ready;
      for (const std::uint32_t b : piece.ready) {
        if (indices_[rank.index()][b]->slices_at[rank.index()] > 0) {
          ready.push_back(runs[b]);
        }
      }
      piece.ready = std::move(ready);
    }
    engine_.add_step(rank, std::move(program.pieces), std::move(made), program.optimizer);
  }

  void updated(std::uint32_t run) {
    const auto [rank, bucket] = owners_.at(run);
    owners_.erase(run);
    std::vector<Update>& updates = updates_[bucket][rank.index()];
    const Time read = updates.empty() ? 0 : updates.back().applied;
    updates.push_back({read, engine_.run_added(run)});
  }

  const plan::Plan& plan_;
  const plan::Workload& workload_;
  const topology::Topology& topology_;
  const SimulationOptions& options_;
  Engine& engine_;
  std::vector<std::vector<std::shared_ptr<const GraphIndex>>> indices_;  ///< by rank and bucket
  std::unordered_map<std::uint32_t, Owner> owners_;        ///< of collectives under way
  std::vector<std::vector<std::vector<Update>>> updates_;  ///< by bucket, rank and step
};

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
  const Workers workers(plan, workload, topology, quiet, engine);
  engine.run();

  AsynchronousResult result;
  for (std::size_t r = 0; r < topology.rank_count(); ++r) {
    const Duration mean(engine.end_of(Rank(r)) / static_cast<Time>(options.steps));
    result.step_times.push_back(mean);
    result.samples_per_s +=
        static_cast<double>(plan.batch.local_batch[r] * plan.batch.accumulation) / mean.seconds();
  }
  const Conflicts conflicts = workers.conflicts();
  if (conflicts.updates > 0) {
    result.conflict_rate = conflicts.with_others / conflicts.updates;
    result.staleness = conflicts.others / conflicts.updates;
  }
  return result;
}

}  // namespace rackrail::sim
