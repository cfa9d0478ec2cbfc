#include "cli/collective.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "base/parse_units.hpp"
#include "base/work.hpp"
#include "cli/interrupt.hpp"
#include "cli/progress.hpp"
#include "cli/simulation_json.hpp"
#include "cli/simulation_notes.hpp"
#include "cli/simulation_text.hpp"
#include "cli/table.hpp"
#include "cli/usage.hpp"
#include "plan/codec_name.hpp"
#include "plan/cost_model.hpp"
#include "planner/algorithms/schedule_family.hpp"
#include "planner/groups/many_ranks.hpp"
#include "planner/request/interruptible.hpp"
#include "planner/request/search_limits.hpp"
#include "planner/tuning/bound.hpp"
#include "planner/tuning/candidates.hpp"
#include "planner/tuning/collective_forms.hpp"
#include "planner/tuning/fastest_collective.hpp"
#include "planner/tuning/schedule_table.hpp"
#include "sim/simulator.hpp"
#include "topology/queries.hpp"

namespace rackrail::cli {

namespace {

constexpr std::int64_t kBytesPerElement = 4;
constexpr Bytes kSmallestSlice = 4_KiB;
constexpr Bytes kUsualSlice = 1_MiB;
constexpr const char* kBestSchedule = "best";
constexpr double kShareOfLooks = 0.5;  // of the progress of a quick search
constexpr double kWorthSaying = 0.01;  // over the bound, that a search ended early

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

/// One collective over a cluster, and what it is simulated with.
struct CollectiveCase {
  const topology::Topology& cluster;
  plan::Collective what;
  planner::TierCodecs codecs;
  std::int64_t elements = 0;
  std::optional<std::int64_t> slice_elements;    ///< of all schedules; none: what is fastest
  std::optional<std::int64_t> slice_of_regular;  ///< of those given by formulas, likewise
  sim::SimulationOptions simulation;
  plan::CostModel& costs;                      ///< of the same simulation, for comparisons
  std::function<void(double share)> progress;  ///< of the search for the fastest
  Duration bound;                              ///< no schedule takes less
  bool is_quick = false;                       ///< whether the search for the fastest is
  planner::DecisionLog decisions;
};

struct FastestOfFamilies {
  std::string_view family;
  std::string mechanism;  ///< as plan::TransferGraph has it
  sim::CollectiveResult result;
  std::int64_t largest_message = 0;  ///< elements, were it not sent in slices
  /// The same once more, with what other options record.
  std::function<sim::CollectiveResult(const sim::SimulationOptions&)> again;
  bool ended_early = false;  ///< there may be a faster one, which a quick search does not look for
};

/// Folded by symmetry and at the flow level, where trying several takes no time.
std::int64_t fastest_slice(const plan::RegularSchedule& schedule, const CollectiveCase& c) {
  sim::SimulationOptions quick = c.simulation;
  quick.network = sim::NetworkLevel::kFlow;
  quick.use_symmetry = true;
  const planner::FormShape shape = planner::shape_of(schedule);
  const auto time = [&](std::size_t, std::int64_t slice) {
    return sim::simulate_collective(schedule, c.elements, slice, c.cluster, quick).time;
  };
  return planner::fastest_division({&shape, 1}, c.elements, time).slice_elements;
}

/// Whether a bound by routes as pinned and links as fast as the topology says is one here.
bool has_bounds(const CollectiveCase& c) {
  return c.simulation.multipath == sim::Multipath::kPinned && c.simulation.disturbances.empty();
}

/// Whether a form in such slices is known to take no less time, which is found out sooner than
/// how long it takes.
bool is_no_faster(const planner::CollectiveForm& form, const CollectiveCase& c,
                  std::int64_t slice_elements, Duration time) {
  const auto& bound = form.shape().bound;
  return (has_bounds(c) && bound && bound->at_least(c.elements) >= time) ||
         !c.costs.exact_collective_time_below(form.graph(), c.elements, slice_elements, time);
}

const std::string& mechanism_of(const plan::TransferGraph& graph) { return graph.mechanism(); }
std::string mechanism_of(const plan::RegularSchedule& /*schedule*/) { return {}; }

/// Simulates it, and keeps it where it is the fastest so far.
template <typename Schedule>
Duration simulate(const planner::ScheduleFamily& family, const CollectiveCase& c,
                  const std::shared_ptr<const Schedule>& schedule, std::int64_t slice_elements,
                  std::optional<FastestOfFamilies>& fastest) {
  const auto run = [schedule, slice_elements, &c](const sim::SimulationOptions& options) {
    return sim::simulate_collective(*schedule, c.elements, slice_elements, c.cluster, options);
  };
  sim::CollectiveResult result = run(c.simulation);
  const Duration time = result.time;
  const bool is_fastest = !fastest || time < fastest->result.time;
  if (c.decisions) {
    const std::string& mechanism = mechanism_of(*schedule);
    c.decisions(
        {.about = "families",
         .schedule = std::string(family.name()) + (mechanism.empty() ? "" : ": ") + mechanism,
         .codecs = planner::codecs_text(c.codecs),
         .bound = {},
         .time = time,
         .outcome = is_fastest ? "the fastest so far" : "slower"});
  }
  if (is_fastest) {
    const auto largest = static_cast<std::int64_t>(
        std::ceil(planner::shape_of(*schedule).largest_share * static_cast<double>(c.elements)));
    fastest = {family.name(), mechanism_of(*schedule), std::move(result), largest, run};
  }
  return time;
}

/// None where the family has none for this case.
std::shared_ptr<const plan::RegularSchedule> regular_schedule(const planner::ScheduleFamily& family,
                                                              const CollectiveCase& c) {
  std::shared_ptr<const plan::RegularSchedule> regular =
      c.what == plan::Collective::kAllReduce ? family.regular_all_reduce(c.cluster) : nullptr;
  const bool is_usable = regular != nullptr && !c.codecs.inside.is_lossy() &&
                         c.elements >= static_cast<std::int64_t>(regular->chunk_count());
  return is_usable ? regular : nullptr;
}

/// Why the family cannot be used here, if so.
std::optional<std::string> simulate_with(const planner::ScheduleFamily& family,
                                         const CollectiveCase& c,
                                         const std::function<void(double share)>& progress,
                                         const std::function<bool()>& stop,
                                         std::optional<FastestOfFamilies>& fastest) {
  if (auto refusal = family.refusal(c.cluster, c.codecs)) {
    if (c.decisions) {
      c.decisions({.about = "families",
                   .schedule = std::string(family.name()),
                   .codecs = {},
                   .bound = {},
                   .time = {},
                   .outcome = "refused: " + *refusal});
    }
    return refusal;
  }
  if (const auto regular = regular_schedule(family, c)) {
    simulate(family, c, regular,
             c.slice_of_regular ? *c.slice_of_regular : fastest_slice(*regular, c), fastest);
    return std::nullopt;
  }
  if (auto refusal = planner::graph_refusal(family, c.cluster, c.codecs)) {
    return refusal;
  }
  // Where links let bursts pass at once, costs are those of one of many in a row.
  const bool is_comparable = topology::longest_burst_time(c.cluster) == Duration();
  if (!c.slice_elements) {
    const auto found = planner::fastest_collective(
        family,
        {.what = c.what,
         .elements = c.elements,
         .topology = c.cluster,
         .codecs = c.codecs,
         .costs = c.costs,
         .has_bounds = has_bounds(c),
         .stop = fastest ? stop : std::function<bool()>(),
         .decisions = c.decisions},
        fastest && is_comparable ? std::optional(fastest->result.time) : std::nullopt);
    if (found) {
      simulate(family, c, found->graph, found->slice_elements, fastest);
    }
  }
  if (fastest && (c.is_quick || was_interrupted()) && !c.slice_elements) {
    return std::nullopt;
  }
  // What was found is by times that are not exact on many ranks, so that these may be faster.
  const std::int64_t slice = c.slice_elements.value_or(kUsualSlice.count() / kBytesPerElement);
  topology::Router router = planner::make_router(c.cluster);
  const std::vector<planner::CollectiveForm> forms =
      planner::collective_forms(family, c.what, c.cluster, router, c.codecs);
  for (std::size_t i = 0; i < forms.size() && !(fastest && was_interrupted()); ++i) {
    progress(static_cast<double>(i) / static_cast<double>(forms.size()));
    if (!fastest || !is_comparable || !is_no_faster(forms[i], c, slice, fastest->result.time)) {
      simulate(family, c, forms[i].shared_graph(), slice, fastest);
    }
  }
  return std::nullopt;
}

/// Of a family's plainest schedule in usual slices.
struct FirstLook {
  const planner::ScheduleFamily* family;
  Duration time{INT64_MAX};  ///< as it is where the family has none, or it takes too much work
  std::function<void(std::optional<FastestOfFamilies>&)> simulate;  ///< exactly
};

/// `stop`: ends it.
FirstLook first_look(const planner::ScheduleFamily& family, const CollectiveCase& c,
                     const std::function<bool()>& stop) {
  FirstLook look{.family = &family, .simulate = {}};
  if (family.refusal(c.cluster, c.codecs)) {
    return look;
  }
  const std::int64_t slice = kUsualSlice.count() / kBytesPerElement;
  const auto keep = [&](const auto& schedule, Duration time) {
    look.time = time;
    look.simulate = [&family, &c, schedule, slice](std::optional<FastestOfFamilies>& fastest) {
      simulate(family, c, schedule, slice, fastest);
    };
  };
  if (const auto regular = regular_schedule(family, c)) {
    sim::SimulationOptions folded = c.simulation;
    folded.network = sim::NetworkLevel::kFlow;
    folded.use_symmetry = true;
    keep(regular, sim::simulate_collective(*regular, c.elements, slice, c.cluster, folded).time);
    return look;
  }
  if (planner::graph_refusal(family, c.cluster, c.codecs)) {
    return look;
  }
  topology::Router router = planner::make_router(c.cluster);
  try {
    const StoppableWork stoppable(stop);
    const planner::Interruptible interruptible(c.costs, stop);
    std::shared_ptr<const plan::TransferGraph> graph;
    if (c.what == plan::Collective::kAllReduce) {
      graph = std::make_shared<const plan::TransferGraph>(
          family.all_reduce({c.cluster, router, c.codecs}));
    } else if (const auto forms =
                   planner::collective_forms(family, c.what, c.cluster, router, c.codecs);
               !forms.empty()) {
      graph = forms.front().shared_graph();
    }
    const auto time =
        graph ? c.costs.collective_time_below(*graph, c.elements, slice, look.time) : std::nullopt;
    if (time) {
      keep(graph, *time);
    }
  } catch (const WorkStopped&) {
    // It takes too much.
  }
  return look;
}

/// Those with the fastest plain schedules first: a quick search may not come to all.
/// The looks take as much work at most as the search after them, each a third of that.
std::vector<const planner::ScheduleFamily*> most_promising_first(
    const CollectiveCase& c, std::optional<FastestOfFamilies>& fastest) {
  constexpr std::int64_t kShare = 3;
  const planner::QuickLimit limit(c.cluster.rank_count());
  const std::int64_t whole = limit.left();
  std::vector<FirstLook> looks;
  for (const auto& family : planner::schedule_families()) {
    c.progress(kShareOfLooks * static_cast<double>(looks.size()) /
               static_cast<double>(planner::schedule_families().size()));
    const std::int64_t least = std::max<std::int64_t>(0, limit.left() - whole / kShare);
    const auto stop = [&] { return was_interrupted() || limit.left() <= least; };
    looks.push_back(first_look(*family, c, stop));
  }
  std::ranges::stable_sort(looks, {}, &FirstLook::time);
  if (looks.front().simulate) {
    looks.front().simulate(fastest);
  }
  std::vector<const planner::ScheduleFamily*> families;
  for (const FirstLook& look : looks) {
    families.push_back(look.family);
  }
  return families;
}

/// Throws ConfigError that lists what there is, kBestSchedule too.
const planner::ScheduleFamily& family_named(const std::string& schedule) {
  try {
    return planner::schedule_family(schedule);
  } catch (const ConfigError& error) {
    ErrorContext context = error.context();
    context.where = "--schedule";
    context.expected += fmt::format("; or {}, the fastest of them", kBestSchedule);
    throw ConfigError(context);
  }
}

/// With the family that was asked for, or the fastest of all.
FastestOfFamilies simulate_collective(const CollectiveCase& c, const std::string& schedule) {
  std::optional<FastestOfFamilies> fastest;
  if (schedule == kBestSchedule) {
    bool was_stopped = false;
    std::vector<const planner::ScheduleFamily*> families;
    const bool has_looked = c.is_quick && !c.slice_elements;
    if (has_looked) {
      families = most_promising_first(c, fastest);
    } else {
      for (const auto& family : planner::schedule_families()) {
        families.push_back(family.get());
      }
    }
    planner::QuickLimit limit(c.cluster.rank_count());
    limit.set_bound(c.bound);
    if (fastest) {
      limit.found(fastest->result.time);
    }
    for (std::size_t i = 0; i < families.size() && !(fastest && was_interrupted()); ++i) {
      const auto progress = [&](double share) {
        const double done = (static_cast<double>(i) + share) / static_cast<double>(families.size());
        c.progress(has_looked ? kShareOfLooks + (1 - kShareOfLooks) * done : done);
      };
      progress(0);
      if (fastest && c.is_quick && limit.is_reached()) {
        was_stopped = true;
        break;
      }
      // The last ones must not find all of the work done: each may take half of what is left.
      const std::int64_t left = limit.left() / 2;
      const auto stop = [&, left] {
        const bool is_enough = c.is_quick && limit.left() <= left;
        was_stopped = was_stopped || is_enough;
        return was_interrupted() || is_enough;
      };
      simulate_with(*families[i], c, progress, stop, fastest);
      if (fastest) {
        limit.found(fastest->result.time);
      }
    }
    if (fastest) {
      fastest->ended_early =
          was_stopped && fastest->result.time > scaled(c.bound, 1 + kWorthSaying);
    }
  } else {
    const planner::ScheduleFamily& family = family_named(schedule);
    if (const auto refusal = simulate_with(
            family, c, [](double) {}, {}, fastest)) {
      throw ConfigError(ErrorContext{"<command line>", "--schedule " + schedule,
                                     "a schedule that cannot be used here: " + *refusal,
                                     "another schedule or codec"});
    }
  }
  if (!fastest) {
    throw ConfigError(ErrorContext{"<command line>", "--schedule " + schedule,
                                   fmt::format("no schedule for this collective with codec {}",
                                               plan::display_name(c.codecs.inside)),
                                   "another schedule or codec"});
  }
  return std::move(*fastest);
}

/// With a schedule from a file, which has no family.
FastestOfFamilies simulate_graph(const CollectiveCase& c,
                                 const std::shared_ptr<const plan::TransferGraph>& graph) {
  if (graph->rank_count() != c.cluster.rank_count()) {
    throw ConfigError(ErrorContext{
        "", "schedule '" + graph->name() + "'", fmt::format("{} ranks", graph->rank_count()),
        fmt::format("{}, as cluster '{}' has", c.cluster.rank_count(), c.cluster.name())});
  }
  const std::int64_t slice = *c.slice_elements;
  const auto run = [graph, slice, &c](const sim::SimulationOptions& options) {
    return sim::simulate_collective(*graph, c.elements, slice, c.cluster, options);
  };
  const auto largest = static_cast<std::int64_t>(
      std::ceil(planner::shape_of(*graph).largest_share * static_cast<double>(c.elements)));
  return {graph->name(), graph->mechanism(), run(c.simulation), largest, run};
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
      options.graph ? simulate_graph(c, options.graph) : simulate_collective(c, options.schedule);
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
