#include "cli/collective_search.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "base/work.hpp"
#include "cli/interrupt.hpp"
#include "plan/codec_name.hpp"
#include "planner/algorithms/schedule_family.hpp"
#include "planner/groups/many_ranks.hpp"
#include "planner/request/interruptible.hpp"
#include "planner/request/search_limits.hpp"
#include "planner/tuning/candidates.hpp"
#include "planner/tuning/collective_forms.hpp"
#include "planner/tuning/schedule_table.hpp"
#include "topology/queries.hpp"

namespace rackrail::cli {

namespace {

constexpr std::int64_t kBytesPerFloat = 4;
constexpr double kShareOfLooks = 0.5;  // of the progress of a quick search
constexpr double kWorthSaying = 0.01;  // over the bound, that a search ended early

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
  const std::int64_t slice = c.slice_elements.value_or(kUsualSlice.count() / kBytesPerFloat);
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
  const std::int64_t slice = kUsualSlice.count() / kBytesPerFloat;
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

}  // namespace

FastestOfFamilies simulate_schedule(const CollectiveCase& c, const std::string& schedule) {
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

}  // namespace rackrail::cli
