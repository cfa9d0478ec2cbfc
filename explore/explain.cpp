#include "explore/explain.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <mutex>

#include "explore/altered.hpp"
#include "explore/changes.hpp"
#include "explore/parallel.hpp"
#include "planner/planner.hpp"
#include "planner/search/survivors.hpp"
#include "sim/simulator.hpp"

namespace rackrail::explore {
namespace {

/// What the critical path covers.
Duration span_of_reported(const sim::StepResult& step) {
  const sim::StepSpan& span = step.steps[step.reported];
  return span.end - span.start;
}

std::vector<Part> parts_of(const sim::StepResult& step, const topology::Topology& topology) {
  struct Times {
    Duration all;
    std::map<LinkId, Duration> by_link;
  };
  std::map<std::string, Times> times;
  for (const sim::PathPiece& piece : step.records.critical_path) {
    std::string what = piece.kind;
    if (piece.link) {
      const topology::Link& link = topology.link(*piece.link);
      what += ": " + (link.tier.empty() ? std::string(to_string(link.kind)) : link.tier);
    }
    Times& of_kind = times[what];
    of_kind.all += piece.end - piece.start;
    if (piece.link) {
      of_kind.by_link[*piece.link] += piece.end - piece.start;
    }
  }
  std::vector<Part> parts;
  for (const auto& [what, of_kind] : times) {
    Part& part = parts.emplace_back(
        Part{.what = what, .time = of_kind.all, .share = of_kind.all / span_of_reported(step)});
    for (const auto& [link, time] : of_kind.by_link) {
      if (time > part.link_time) {
        part.link = topology.link_name(link);
        part.link_time = time;
      }
    }
  }
  std::stable_sort(parts.begin(), parts.end(),
                   [](const Part& a, const Part& b) { return a.time > b.time; });
  return parts;
}

/// Step time of a plan made for these circumstances, with the batch and error budget of `plan`.
Duration replanned_time(const plan::Plan& plan, const plan::Workload& workload,
                        const topology::Topology& topology, const Conditions& conditions) {
  planner::PlannerOptions options = planner::options_in_place_of(plan, workload, topology);
  options.schedule.reset();  // what any plan would gain, whatever this one was asked to have
  options.bucket_size = planner::PlannerOptions{}.bucket_size;
  options.local_batch = plan.batch.local_batch.front();
  sim::SimulationOptions undisturbed;
  undisturbed.device_rates = conditions.simulation.device_rates;
  const auto cost_model = sim::make_cost_model(topology, undisturbed);
  plan::Plan anew = planner::make_plan(topology, workload, *cost_model, options);
  anew.batch = plan.batch;
  return time_per_step(anew, workload, topology, conditions);
}

Gain try_out(const Change& change, const plan::Plan& plan, const plan::Workload& workload,
             const topology::Topology& topology, const ExplainOptions& options) {
  topology::Topology cluster = change.links ? with_links(topology, change.links) : topology;
  if (change.ranks) {
    cluster = with_ranks(std::move(cluster), change.ranks);
  }
  const plan::Workload work =
      change.device_speed == 1 ? workload : with_speed(workload, change.device_speed);
  Conditions conditions = conditions_of(options.conditions, cluster);
  conditions.simulation.device_rates = change.device_rates;
  if (change.conditions) {
    change.conditions(conditions);
  }
  Gain gain{.what = change.what,
            .change = change.by,
            .step_time = time_per_step(plan, work, cluster, conditions),
            .gain = 0,
            .is_marginal = change.is_marginal,
            .breadth = change.breadth,
            .is_disturbance = change.is_disturbance};
  if (options.replan) {
    gain.kept_plan_time = gain.step_time;
    gain.step_time = std::min(gain.step_time, replanned_time(plan, work, cluster, conditions));
  }
  return gain;
}

/// The link that the critical path waited for longest, unless it was asked about or is, with its
/// way back, all that its tier has.
std::optional<NamedLinks> critical_link(const std::vector<Part>& parts,
                                        const topology::Topology& topology,
                                        const ExplainOptions& options) {
  const auto longest = std::ranges::max_element(parts, {}, &Part::link_time);
  if (longest == parts.end() || longest->link.empty()) {
    return std::nullopt;
  }
  const std::vector<LinkId> links = topology::links_named(topology, longest->link);
  const auto is_asked_about = [&](const NamedLinks& asked) { return asked.links == links; };
  if (std::ranges::any_of(options.links, is_asked_about)) {  // under whichever of its names
    return std::nullopt;
  }
  const topology::Link& link = topology.link(links.front());
  std::size_t alike = 0;
  for (std::size_t l = 0; l < topology.link_count(); ++l) {
    alike += topology.link(LinkId(l)).tier == link.tier ? 1 : 0;
  }
  const bool is_whole_tier = alike <= 2 * links.size();
  return is_whole_tier || link.kind == topology::LinkKind::kShared
             ? std::nullopt
             : std::optional(NamedLinks{longest->link, links});
}

/// Of the link that the step waits for, what more bandwidth would do.
std::vector<Change> changes_of_critical(const topology::Topology& topology,
                                        const NamedLinks& link) {
  std::vector<Change> changes = changes_of_links(topology, link);
  std::erase_if(changes, [](const Change& change) { return !change.what.ends_with("bandwidth"); });
  return changes;
}

/// All that is tried: what was asked for, the link that the step waits for longest, what the
/// conditions have, what the cluster has.
std::vector<Change> all_changes(const topology::Topology& topology, const Conditions& conditions,
                                const ExplainOptions& options, const std::vector<Part>& parts,
                                std::vector<std::string>& notes) {
  std::vector<Change> changes;
  const auto add = [&](std::vector<Change> more) {
    std::move(more.begin(), more.end(), std::back_inserter(changes));
  };
  for (const NamedLinks& links : options.links) {
    add(changes_of_links(topology, links));
  }
  if (const auto critical = critical_link(parts, topology, options)) {
    add(changes_of_critical(topology, *critical));
  }
  add(changes_of_conditions(conditions, topology, notes));
  add(changes_of(topology, notes));
  if (options.replan) {
    changes.push_back({.what = "plan",
                       .by = "anew",
                       .is_marginal = false,
                       .links = {},
                       .device_speed = 1,
                       .device_rates = std::nullopt});
  }
  return changes;
}

/// The largest gain that is meant and above 0, or the narrowest of those that are hardly smaller.
/// `gains` are in order.
template <typename IsMeant>
const Gain* narrowest_of_largest(const std::vector<Gain>& gains, const IsMeant& is_meant) {
  constexpr double kAsMuch = 0.99;
  const Gain* found = nullptr;
  double largest = 0;
  for (const Gain& gain : gains) {
    if (!is_meant(gain) || gain.gain <= 0 || gain.gain < kAsMuch * largest) {
      continue;
    }
    largest = std::max(largest, gain.gain);
    if (found == nullptr || gain.breadth < found->breadth) {
      found = &gain;
    }
  }
  return found;
}

}  // namespace

const Gain* Explanation::bottleneck() const {
  const auto largest = [&](bool is_of_all) {
    return narrowest_of_largest(gains, [is_of_all](const Gain& gain) {
      return gain.is_marginal && (gain.breadth == Breadth::kAll) == is_of_all;
    });
  };
  const Gain* single = largest(false);
  const Gain* of_all = largest(true);
  return of_all != nullptr && (single == nullptr || of_all->gain > 2 * single->gain) ? of_all
                                                                                     : single;
}

const Gain* Explanation::worst_disturbance() const {
  const Gain* one = narrowest_of_largest(
      gains, [](const Gain& gain) { return gain.is_disturbance && gain.breadth == Breadth::kOne; });
  return one != nullptr
             ? one
             : narrowest_of_largest(gains, [](const Gain& gain) { return gain.is_disturbance; });
}

Explanation explain(const plan::Plan& plan, const plan::Workload& workload,
                    const topology::Topology& topology, const ExplainOptions& options) {
  Explanation result;
  const Conditions conditions = conditions_of(options.conditions, topology);
  const sim::StepResult step = sim::simulate_step(plan, workload, topology, conditions.simulation);
  result.step_time =
      conditions.outages ? time_per_step(plan, workload, topology, conditions) : mean_time(step);
  result.steps = step.steps.size();
  result.reported = step.reported;
  result.reported_time = span_of_reported(step);
  result.parts = parts_of(step, topology);

  const std::vector<Change> changes =
      all_changes(topology, conditions, options, result.parts, result.notes);
  if (options.replan && options.conditions.scenario) {
    result.notes.emplace_back(
        "--replan makes plans for undisturbed steps, then simulates them under the scenario");
  }
  if (!conditions.simulation.disturbances.capacity.empty()) {
    result.notes.emplace_back("a link whose rate the scenario sets has that rate in every row");
  }
  std::vector<std::optional<Gain>> gains(changes.size());
  const auto is_stopped = [&] { return options.stop && options.stop(); };
  std::mutex mutex;
  std::size_t done = 0;
  for_each_index(changes.size(), thread_count(options.threads, changes.size()), [&](std::size_t i) {
    if (is_stopped()) {
      return;
    }
    Gain gain = try_out(changes[i], plan, workload, topology, options);
    gain.gain = 1 - gain.step_time / result.step_time;
    const std::lock_guard lock(mutex);
    gains[i] = std::move(gain);
    if (options.progress) {
      options.progress(++done, changes.size());
    }
  });
  for (std::optional<Gain>& gain : gains) {
    if (gain) {
      result.gains.push_back(*std::move(gain));
    }
  }
  result.left_out = changes.size() - result.gains.size();
  std::stable_sort(result.gains.begin(), result.gains.end(),
                   [](const Gain& a, const Gain& b) { return a.gain > b.gain; });
  return result;
}

}  // namespace rackrail::explore
