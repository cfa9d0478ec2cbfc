#include "cli/collective.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "base/parse_units.hpp"
#include "cli/collective_search.hpp"
#include "cli/interrupt.hpp"
#include "cli/progress.hpp"
#include "cli/simulation_json.hpp"
#include "cli/simulation_notes.hpp"
#include "cli/simulation_text.hpp"
#include "cli/table.hpp"
#include "cli/usage.hpp"
#include "plan/codec_name.hpp"
#include "plan/cost_model.hpp"
#include "planner/request/search_limits.hpp"
#include "planner/tuning/bound.hpp"
#include "planner/tuning/schedule_table.hpp"
#include "sim/simulator.hpp"
#include "topology/queries.hpp"

namespace rackrail::cli {

namespace {

constexpr std::int64_t kBytesPerElement = 4;
constexpr Bytes kSmallestSlice = 4_KiB;

struct Collective {
  std::string_view name;
  plan::Collective what;
};
constexpr Collective kCollectives[] = {{"all-reduce", plan::Collective::kAllReduce},
                                       {"reduce-scatter", plan::Collective::kReduceScatter},
                                       {"all-gather", plan::Collective::kAllGather}};

plan::Collective parse_collective(const std::string& name) {
  for (const Collective& known : kCollectives) {
    if (known.name == name) {
      return known.what;
    }
  }
  throw ConfigError(ErrorContext{"<command line>", "--collective", fmt::format("'{}'", name),
                                 "all-reduce, reduce-scatter or all-gather"});
}

std::string_view name_of(plan::Collective what) {
  for (const Collective& known : kCollectives) {
    if (known.what == what) {
      return known.name;
    }
  }
  return {};
}

/// Simulates it again with what is to be written, and writes that.
sim::Records write_records(const CollectiveCase& c, const FastestOfFamilies& fastest,
                           const RecordFiles& files) {
  sim::SimulationOptions options = c.simulation;
  files.ask(options);
  sim::Records records = fastest.again(options).records;
  files.write(records, c.cluster, options.disturbances,
              fmt::format("simulated: {}", fastest.family));
  return records;
}

constexpr std::string_view kInNetwork = "in-network";  // the family whose sums switches make

bool is_staged(const topology::Topology& cluster) {
  for (std::size_t r = 0; r < cluster.rank_count(); ++r) {
    if (cluster.node(cluster.node_of(Rank(r))).host_staging > Bandwidth()) {
      return true;
    }
  }
  return false;
}

Bandwidth bound_of_rate(const topology::Topology& cluster, plan::Collective what,
                        bool may_add_in_network) {
  switch (what) {
    case plan::Collective::kAllReduce:
      return may_add_in_network ? planner::network_bound(cluster).algbw
                                : topology::joint_allreduce_bound(cluster).algbw;
    case plan::Collective::kReduceScatter:
      return topology::reducescatter_bound(cluster).algbw;
    case plan::Collective::kAllGather:
      break;
  }
  return topology::allgather_bound(cluster).algbw;
}

/// Times that no schedule can be below.
struct LowerBound {
  Duration latency;
  Duration bandwidth;
  Duration time() const { return std::max(latency, bandwidth); }
  const char* decided_by() const { return latency > bandwidth ? "latency" : "bandwidth"; }
};

/// For so many bytes, of schedules that leave adding to ranks, or of all.
LowerBound lower_bound(const topology::Topology& cluster, plan::Collective what, Bytes encoded,
                       bool may_add_in_network) {
  return {.latency = topology::latency_bound(cluster),
          .bandwidth = encoded / bound_of_rate(cluster, what, may_add_in_network) -
                       topology::longest_burst_time(cluster)};
}

}  // namespace

void run_collective(Session& session, const topology::Topology& cluster,
                    const CollectiveOptions& options, const sim::SimulationOptions& simulation,
                    const RecordFiles& files) {
  files.add_outputs(session);
  const plan::Collective what =
      options.graph ? options.graph->collective() : parse_collective(options.collective);
  const auto option = [](const char* name, const std::string& text, auto parse) {
    return named("<command line>", name, [&] { return parse(text); });
  };
  const Bytes size = option("--bytes", options.bytes, parse_bytes);
  const std::int64_t elements =
      size.count() / kBytesPerElement + (size.count() % kBytesPerElement > 0 ? 1 : 0);
  const Bytes whole(elements * kBytesPerElement);
  if (elements == 0) {
    throw ConfigError(ErrorContext{"<command line>", "--bytes", fmt::format("'{}'", options.bytes),
                                   "at least one float (4 B)"});
  }
  const plan::Codec codec = option("--codec", options.codec, plan::parse_codec);
  std::optional<std::int64_t> slice_elements;
  if (!options.slice.empty()) {
    const Bytes slice = option("--slice", options.slice, parse_bytes);
    if (slice < kSmallestSlice) {
      throw ConfigError(ErrorContext{"<command line>", "--slice",
                                     fmt::format("'{}'", options.slice),
                                     "at least " + to_string(kSmallestSlice)});
    }
    slice_elements = slice.count() / kBytesPerElement;
  }
  const std::optional<std::int64_t> slice_of_regular = slice_elements;
  if (!slice_elements &&
      (options.schedule != kBestSchedule || cluster.rank_count() > planner::kMostTableRanks)) {
    slice_elements = kUsualSlice.count() / kBytesPerElement;
  }
  const std::unique_ptr<plan::CostModel> costs = sim::make_cost_model(cluster, simulation);
  CollectiveCase c{.cluster = cluster,
                   .what = what,
                   .codecs = {codec, codec},
                   .elements = elements,
                   .slice_elements = slice_elements,
                   .slice_of_regular = slice_of_regular,
                   .simulation = simulation,
                   .costs = *costs,
                   .progress = {},
                   .bound = {},
                   .is_quick = parse_search(options.search) == planner::SearchEffort::kQuick,
                   .decisions = options.decisions->log()};
  session.add_output(options.decisions->path());
  const Bytes encoded = plan::encoded_size(codec, elements);
  const bool has_changes = !simulation.disturbances.capacity.empty();
  if (options.schedule == kBestSchedule && c.is_quick && !has_changes) {
    c.bound = lower_bound(cluster, what, encoded, true).time();
  }
  ProgressBar bar("simulating", session.progress_elsewhere());
  const auto progress = [&bar](double share) { bar.update(share); };
  (options.schedule == kBestSchedule ? c.progress : c.simulation.progress) = progress;
  std::optional<EndsEarly> ends_early;
  if (options.schedule == kBestSchedule) {
    ends_early.emplace();
  }
  const auto start = std::chrono::steady_clock::now();
  const FastestOfFamilies fastest =
      options.graph ? simulate_graph(c, options.graph) : simulate_schedule(c, options.schedule);
  const auto& [family, mechanism, result, largest_message, again, ended_early] = fastest;
  const double wall = seconds_since(start);
  options.decisions->write();
  const bool is_partial = ends_early.has_value() && was_interrupted();
  session.status = is_partial ? kInterrupted : kDone;
  const sim::Records records = files.any() ? write_records(c, fastest, files) : sim::Records();
  bar.clear();
  std::vector<std::string> notes = simulation_notes(cluster, simulation.network);
  if (whole != size) {
    notes.push_back(fmt::format("{} is not a whole number of floats (4 B): {} is simulated instead",
                                to_string(size), to_string(whole)));
  }
  if (!options.slice.empty() && *slice_elements >= largest_message) {
    notes.push_back(fmt::format("--slice {} changes nothing: no message is larger than {}",
                                options.slice,
                                to_string(Bytes(largest_message * kBytesPerElement))));
  }
  if (is_staged(cluster)) {
    notes.emplace_back(
        "the lower bound counts the network only: copies to and from host memory add to it");
  }
  const auto n = static_cast<double>(cluster.rank_count());
  const auto moved = static_cast<double>(whole.count());
  const double algbw = moved / result.time.seconds();
  // Of each byte of the buffer, so much crosses a rank's port (nccl-tests, PERFORMANCE.md).
  const double busbw = algbw * (what == plan::Collective::kAllReduce ? 2 : 1) * (n - 1) / n;
  const LowerBound lower = lower_bound(
      has_changes ? sim::at_best(cluster, simulation.disturbances, result.time) : cluster, what,
      encoded, family == kInNetwork);
  const Duration bound = lower.time();
  const double gap = bound > Duration() ? result.time / bound - 1 : 0;
  if (ended_early && !is_partial) {
    notes.push_back(fmt::format(
        "the search ended early, {} over the lower bound, as other schedules would take "
        "long to make: --search thorough looks further",
        percent(gap)));
  }
  if (is_partial) {
    notes.push_back(
        fmt::format("stopped by Ctrl-C: the fastest schedule found so far, {} over the lower bound",
                    percent(gap)));
  }
  notes = say_notes(session, cluster, std::move(notes));
  if (session.json) {
    session.print_json({{"collective", name_of(what)},
                        {"bytes", whole.count()},
                        {"codec", plan::to_string(codec)},
                        {"time_s", result.time.seconds()},
                        {"schedule", family},
                        {"mechanism", mechanism},
                        {"algbw_Bps", algbw},
                        {"busbw_Bps", busbw},
                        {"bound_s", bound.seconds()},
                        {"bound_by", lower.decided_by()},
                        {"bound_of", has_changes ? "links at their best in this time" : "cluster"},
                        {"links", links_json(cluster, result.links)},
                        {"queues", queues_json(cluster, result.queues)},
                        {"critical_path", critical_path_json(records.critical_path)},
                        {"events", result.events},
                        {"flows", result.flows},
                        {"copies", result.copies},
                        {"notes", notes},
                        {"wall_s", wall},
                        {"peak_rss_bytes", peak_rss_bytes()}});
    return;
  }
  fmt::print("{} of {} over {} ranks of {}, {}\n\n", name_of(what), to_string(whole),
             cluster.rank_count(), cluster.name(),
             mechanism.empty() ? std::string(family) : fmt::format("{}: {}", family, mechanism));
  Table table({{"time", Align::kRight},
               {"algbw", Align::kRight},
               {"busbw", Align::kRight},
               {"lower bound", Align::kRight},
               {"by", Align::kLeft},
               {"gap", Align::kRight}});
  table.add_row({to_string(result.time), to_string(Bandwidth(static_cast<std::int64_t>(algbw))),
                 to_string(Bandwidth(static_cast<std::int64_t>(busbw))), to_string(bound),
                 lower.decided_by(),
                 bound > Duration() ? fmt::format("{:+.1f} %", gap * 100) : "none"});
  fmt::print("{}{}\n", table.to_string(),
             has_changes ? "the lower bound takes every link at its best rate in this time\n" : "");
  if (!records.critical_path.empty()) {
    print_critical_path(records.critical_path);
    fmt::print("\n");
  }
  fmt::print("{}\n{}simulated {} flows with {} events in {:.3f} s\n",
             busiest_links(cluster, result.links), longest_queues(cluster, result.queues),
             result.flows, result.events, wall);
  if (result.copies > 1) {
    fmt::print("each flow stands for {} identical ones; --every-flow simulates all\n",
               result.copies);
  }
  files.print_written();
}

}  // namespace rackrail::cli
