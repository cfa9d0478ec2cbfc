#include "explore/outages.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "base/error.hpp"
#include "base/parse_units.hpp"
#include "planner/search/survivors.hpp"
#include "topology/remove.hpp"

namespace rackrail::explore {

namespace {

constexpr std::int64_t kMostSteps = std::int64_t{1} << 40U;
// Steps follow each other before each other's optimisers are through, so how often one ends is not
// how long one takes: it is measured between the ends of some, when the first are over.
constexpr int kStepsToSteadyState = 2;
constexpr int kStepsMeasured = 4;
constexpr Duration kLongestRun(7'776'000'000'000'000'000);  // 90 days

/// Both directions of a cable, or of all that are parallel.
std::vector<LinkId> cables(const topology::Topology& topology, const ConfigValue& name) {
  std::vector<LinkId> links = topology::links_named(topology, name.text());
  if (links.empty()) {
    name.fail("a link of the cluster, such as " + topology.link_name(LinkId(0)));
  }
  const std::size_t there = links.size();
  for (std::size_t i = 0; i < there; ++i) {
    if (const auto back = topology::way_back(topology, links[i])) {
      links.push_back(*back);
    }
  }
  return links;
}

Reaction reaction(const ConfigValue& value) {
  const std::map<std::string, Reaction> known = {
      {"replan", Reaction::kReplan}, {"restart", Reaction::kRestart}, {"wait", Reaction::kWait}};
  const auto found = known.find(value.text());
  if (found == known.end()) {
    value.fail("replan, restart or wait");
  }
  return found->second;
}

Outage outage(const ConfigValue& value, const topology::Topology& topology, Duration duration) {
  value.allow_only({"host", "link", "at", "back", "detection", "recovery", "then", "drain"});
  Outage outage;
  if ((value.find("host") != nullptr) == (value.find("link") != nullptr)) {
    value.fail("neither or both", "one of host and link");
  }
  if (const ConfigValue* host = value.find("host")) {
    outage.host = host->name();
    try {
      (void)topology::without(topology, {&outage.host, 1}, {});
    } catch (const ConfigError& e) {
      host->fail(e.context().found, e.context().expected);
    }
  } else {
    outage.links = cables(topology, value.require("link"));
  }
  outage.at = value.require("at").duration(kLongestRun);
  if (outage.at >= duration) {
    value.require("at").fail("a time before the end of the run, " + to_string(duration));
  }
  if (const ConfigValue* back = value.find("back")) {
    outage.back = back->duration(kLongestRun);
    if (*outage.back <= outage.at) {
      back->fail("a time after " + to_string(outage.at));
    }
  }
  outage.is_drain = value.find("drain") != nullptr && value.require("drain").flag();
  if (const ConfigValue* detection = value.find("detection")) {
    outage.detection = detection->duration();
  }
  if (const ConfigValue* recovery = value.find("recovery")) {
    outage.recovery = recovery->duration();
  }
  if (const ConfigValue* then = value.find("then")) {
    outage.then = reaction(*then);
  }
  if (outage.then == Reaction::kWait && !outage.back) {
    value.fail("waiting for what never comes back", "'back' beside 'then: wait'");
  }
  return outage;
}

/// What is gone cannot be lost again before it is back.
void require_not_lost(const Outage& outage, const std::vector<Outage>& others,
                      const ConfigValue& value) {
  for (const Outage& other : others) {
    const bool is_same =
        (!outage.host.empty() && outage.host == other.host) ||
        std::find_first_of(outage.links.begin(), outage.links.end(), other.links.begin(),
                           other.links.end()) != outage.links.end();
    const bool is_before = outage.back && *outage.back <= other.at;
    const bool is_after = other.back && *other.back <= outage.at;
    if (is_same && !is_before && !is_after) {
      value.fail("lost twice at the same time",
                 "one outage of it from " + to_string(std::min(outage.at, other.at)) + " on");
    }
  }
}

/// Which outages are in force, by their place in the scenario.
using Missing = std::set<std::size_t>;

class Run {
 public:
  Run(const plan::Plan& plan, const plan::Workload& workload, const topology::Topology& topology,
      const OutageScenario& scenario, const planner::PlannerOptions& options,
      const sim::SimulationOptions& simulation)
      : plan_(plan),
        workload_(workload),
        topology_(topology),
        scenario_(scenario),
        options_(options),
        simulation_(simulation) {}

  OutageResult simulate() {
    if (state().step_time > scenario_.duration) {
      throw ConfigError(
          ErrorContext{"", "duration", to_string(scenario_.duration),
                       "a step of the plan at least, which takes " + to_string(state().step_time)});
    }
    struct Event {
      Duration at;
      bool is_end = false;
      std::size_t outage = 0;
    };
    std::vector<Event> events;
    for (std::size_t i = 0; i < scenario_.outages.size(); ++i) {
      const Outage& outage = scenario_.outages[i];
      events.push_back({outage.at, false, i});
      if (outage.back && *outage.back < scenario_.duration) {
        events.push_back({*outage.back, true, i});
      }
    }
    std::stable_sort(events.begin(), events.end(),
                     [](const Event& a, const Event& b) { return a.at < b.at; });
    for (const Event& event : events) {
      const Outage& outage = scenario_.outages[event.outage];
      const bool is_announced = event.is_end || outage.is_drain;
      train_until(event.at, is_announced);
      if (event.is_end) {
        missing_.erase(event.outage);
      } else {
        missing_.insert(event.outage);
        if (outage.then == Reaction::kRestart && !outage.is_drain) {
          go_back_to_checkpoint();
        }
      }
      pause(outage, event.at, event.is_end);
    }
    train_until(scenario_.duration, false);
    return result();
  }

 private:
  struct State {
    std::size_t ranks = 0;
    Duration step_time;
    double samples = 0;  // per step
  };

  bool waits() const {
    return std::any_of(missing_.begin(), missing_.end(),
                       [&](std::size_t i) { return scenario_.outages[i].then == Reaction::kWait; });
  }

  std::string name() const {
    std::string text;
    for (const std::size_t i : missing_) {
      text += (text.empty() ? "without " : ", ") + what(scenario_.outages[i]);
    }
    return text.empty() ? "all there" : text;
  }
  std::string what(const Outage& outage) const {
    if (!outage.host.empty()) {
      return outage.host;
    }
    const topology::Link& first = topology_.link(outage.links.front());
    const bool is_one =
        outage.links.size() == 1 || topology_.link(outage.links[1]).from != first.from;
    return is_one ? topology_.link_name(outage.links.front())
                  : fmt::format("{}→{}", topology_.node(first.from).name,
                                topology_.node(first.to).name);
  }

  /// The plan's steps with what is there; planned and simulated once for each set.
  const State& state() {
    const auto [it, is_new] = states_.try_emplace(missing_);
    if (is_new) {
      std::vector<std::string> hosts;
      std::vector<LinkId> links;
      for (const std::size_t i : missing_) {
        const Outage& outage = scenario_.outages[i];
        if (!outage.host.empty()) {
          hosts.push_back(outage.host);
        }
        links.insert(links.end(), outage.links.begin(), outage.links.end());
      }
      sim::SimulationOptions simulation;
      simulation.device_rates = simulation_.device_rates;
      simulation.network = simulation_.network;
      simulation.packets = simulation_.packets;
      simulation.multipath = simulation_.multipath;
      simulation.connections = simulation_.connections;
      simulation.disturbances.seed = simulation_.disturbances.seed;
      simulation.steps = kStepsToSteadyState + kStepsMeasured;
      simulation.record_critical_path = false;
      if (missing_.empty()) {
        it->second = measured(plan_, topology_, simulation);
      } else {
        const topology::Topology rest = reachable(hosts, links);
        sim::SimulationOptions planned_with;
        planned_with.device_rates = simulation_.device_rates;
        const auto cost_model = sim::make_cost_model(rest, planned_with);
        it->second = measured(plan_for(rest, *cost_model), rest, simulation);
      }
    }
    return it->second;
  }
  /// What is left without these; hosts whose own cables are gone are lost with them.
  topology::Topology reachable(std::vector<std::string> hosts,
                               const std::vector<LinkId>& links) const {
    topology::Topology rest = topology::without(topology_, hosts, links);
    std::vector<std::string> cut_off;
    for (std::size_t r = 0; r < rest.rank_count(); ++r) {
      const topology::Node& node = rest.node(rest.node_of(Rank(r)));
      const std::string& host = node.host.empty() ? node.name : node.host;
      if (std::find(cut_off.begin(), cut_off.end(), host) == cut_off.end() &&
          is_cut_off(rest, host)) {
        cut_off.push_back(host);
      }
    }
    if (!cut_off.empty()) {
      hosts.insert(hosts.end(), cut_off.begin(), cut_off.end());
      rest = topology::without(topology_, hosts, links);
    }
    rest.require_connected();
    return rest;
  }
  /// Whether no link leaves a machine.
  static bool is_cut_off(const topology::Topology& topology, const std::string& host) {
    const auto is_inside = [&](NodeId id) {
      return topology.node(id).host == host || topology.node(id).name == host;
    };
    for (std::size_t i = 0; i < topology.link_count(); ++i) {
      const topology::Link& link = topology.link(LinkId(i));
      if (link.kind != topology::LinkKind::kShared && is_inside(link.from) != is_inside(link.to)) {
        return false;
      }
    }
    return true;
  }
  /// As a job goes on (`train --on-loss continue`): a step keeps its samples, divided anew, and
  /// nothing is sent more coarsely than before.
  plan::Plan plan_for(const topology::Topology& rest, plan::CostModel& cost_model) const {
    std::vector<Rank> left;
    for (std::size_t r = 0; r < plan_.rank_count(); ++r) {
      if (rest.find_node(plan_.rank_names[r])) {
        left.emplace_back(r);
      }
    }
    plan::BatchPlan batch = plan_.batch;
    batch.local_batch = planner::divide_batch(plan_.batch.local_batch, left);
    if (std::ranges::min(batch.local_batch) < 1) {
      throw ConfigError(fmt::format("a step of {} samples is too small for the {} ranks {}",
                                    plan_.batch.global_batch(), left.size(), name()));
    }
    planner::PlannerOptions options = options_;
    options.error_budget = planner::budget_in_use(plan_);
    options.protect_outer_layers = planner::protects_outer_layers(plan_, workload_);
    options.compression_warmup = plan_.compression_warmup_steps;
    options.local_batch = std::ranges::max(batch.local_batch);
    plan::Plan plan = planner::make_plan(rest, workload_, cost_model, options);
    plan.batch = batch;
    return plan;
  }
  State measured(const plan::Plan& plan, const topology::Topology& topology,
                 const sim::SimulationOptions& simulation) const {
    const auto step = sim::simulate_step(plan, workload_, topology, simulation);
    const Duration measured =
        step.steps.back().end - step.steps[static_cast<std::size_t>(kStepsToSteadyState) - 1].end;
    return {topology.rank_count(), Duration(measured.picoseconds() / kStepsMeasured),
            static_cast<double>(plan.batch.global_batch())};
  }

  /// Steps from now on; one that does not end by then is finished or lost.
  void train_until(Duration end, bool finishes) {
    if (now_ >= end) {
      return;  // still recovering from what was before
    }
    Phase phase{.what = name(), .start = now_, .end = end};
    if (waits()) {
      phase.what += ", waiting";
    } else {
      const State& with = state();
      phase.ranks = with.ranks;
      phase.step_time = with.step_time;
      phase.steps = (end - now_).picoseconds() / with.step_time.picoseconds();
      if (finishes && now_ + with.step_time * phase.steps < end) {
        ++phase.steps;
      }
      phase.end = std::max(end, now_ + with.step_time * phase.steps);
      phase.samples = with.samples * static_cast<double>(phase.steps);
      since_checkpoint_ += phase.steps;
      last_samples_ = with.samples;
    }
    now_ = phase.end;
    phases_.push_back(phase);
    recovers_ = false;
  }

  void go_back_to_checkpoint() {
    const std::int64_t lost = since_checkpoint_ % scenario_.checkpoint_every;
    since_checkpoint_ -= lost;
    if (lost > 0 && !phases_.empty()) {
      phases_.back().lost += lost;
      lost_samples_ += static_cast<double>(lost) * last_samples_;
    }
  }

  /// What an outage, or its end, holds up after the step that was under way. One that comes while
  /// others are being recovered from has its own detection and recovery beside theirs.
  void pause(const Outage& outage, Duration at, bool is_end) {
    const bool waits = outage.then == Reaction::kWait && !is_end;
    const Duration detection = is_end || outage.is_drain ? Duration() : outage.detection;
    const Duration pause = detection + (waits ? Duration() : outage.recovery);
    if (pause == Duration() || (!recovers_ && now_ >= scenario_.duration)) {
      return;
    }
    const char* happened = is_end            ? " back: recovery"
                           : outage.is_drain ? " drained: recovery"
                           : waits           ? " lost: detection"
                                             : " lost: detection and recovery";
    Duration start = now_;
    if (recovers_) {
      start = std::max(at, phases_.back().start);
      phases_.back().end = start;
      if (phases_.back().start == start) {
        phases_.pop_back();
      }
    }
    // What is back before it was missed is waited for until it was.
    const Duration known = is_end && !outage.is_drain ? outage.at + outage.detection : start;
    const Duration end =
        std::min(std::max(now_, std::max(start, known) + pause), scenario_.duration);
    phases_.push_back({.what = what(outage) + happened, .start = start, .end = end});
    now_ = end;
    recovers_ = true;
  }

  OutageResult result() {
    OutageResult result;
    double samples = -lost_samples_;
    for (const Phase& phase : phases_) {
      samples += phase.samples;
    }
    const double seconds = scenario_.duration.seconds();
    result.samples_per_s = samples / std::max(now_, scenario_.duration).seconds();
    missing_.clear();
    const State& all = state();
    const auto steps = scenario_.duration.picoseconds() / all.step_time.picoseconds();
    result.undisturbed_samples_per_s = all.samples * static_cast<double>(steps) / seconds;
    result.phases = std::move(phases_);
    return result;
  }

  const plan::Plan& plan_;
  const plan::Workload& workload_;
  const topology::Topology& topology_;
  const OutageScenario& scenario_;
  const planner::PlannerOptions& options_;
  const sim::SimulationOptions& simulation_;
  std::map<Missing, State> states_;
  Missing missing_;
  Duration now_;
  bool recovers_ = false;  // in the last phase
  std::vector<Phase> phases_;
  std::int64_t since_checkpoint_ = 0;  // steps
  double last_samples_ = 0;
  double lost_samples_ = 0;
};

}  // namespace

std::optional<OutageScenario> read_outages(const ConfigValue& root,
                                           const topology::Topology& topology) {
  const ConfigValue* list = root.find("outages");
  if (list == nullptr) {
    return std::nullopt;
  }
  for (const auto& [key, value] : root.members()) {
    constexpr std::string_view kKnown[] = {
        "name",    "seed",    "steps",   "duration",  "checkpoint_every",
        "outages", "network", "packets", "multipath", "connections"};
    if (std::find(std::begin(kKnown), std::end(kKnown), key) == std::end(kKnown)) {
      value.fail(fmt::format("'{}' beside outages", key),
                 "a scenario of its own: between outages steps go as planned");
    }
  }
  OutageScenario scenario;
  scenario.duration = root.require("duration").duration(kLongestRun);
  if (const ConfigValue* every = root.find("checkpoint_every")) {
    scenario.checkpoint_every = every->count(1, kMostSteps);
  }
  for (const ConfigValue& value : list->elements()) {
    Outage one = outage(value, topology, scenario.duration);
    require_not_lost(one, scenario.outages, value);
    scenario.outages.push_back(std::move(one));
  }
  return scenario;
}

OutageResult simulate_outages(const plan::Plan& plan, const plan::Workload& workload,
                              const topology::Topology& topology, const OutageScenario& scenario,
                              const planner::PlannerOptions& options,
                              const sim::SimulationOptions& simulation) {
  return Run(plan, workload, topology, scenario, options, simulation).simulate();
}

}  // namespace rackrail::explore
