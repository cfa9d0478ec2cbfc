#include "explore/conditions.hpp"

#include <fmt/format.h>

#include "base/config_tree.hpp"
#include "base/error.hpp"
#include "base/parse_units.hpp"
#include "planner/planner.hpp"
#include "sim/scenario.hpp"

namespace rackrail::explore {

namespace {

/// What has no step of one plan that all its ranks wait for.
void refuse_without_steps(const ConfigValue& root) {
  for (const char* const key : {"jobs", "placement"}) {
    if (const ConfigValue* value = root.find(key)) {
      value->fail(
          "a plan that is not alone on the whole cluster",
          "a scenario without 'jobs' and 'placement'; rackrail simulate says what jobs cost "
          "each other");
    }
  }
  const ConfigValue* asynchronous = root.find("asynchronous");
  if (asynchronous != nullptr && asynchronous->flag()) {
    asynchronous->fail(
        "ranks that wait for nobody",
        "a scenario whose ranks are synchronous: what they wait for is what is explained");
  }
}

}  // namespace

Conditions conditions_of(const ConditionOptions& options, const topology::Topology& topology) {
  Conditions conditions;
  sim::SimulationOptions& simulation = conditions.simulation;
  if (options.scenario) {
    const std::string file = options.scenario->file.string();
    const ConfigValue root = ConfigValue::parse(file, options.scenario->text);
    refuse_without_steps(root);
    sim::Scenario scenario = sim::parse_scenario(file, options.scenario->text, topology);
    if (scenario.sets_packets && scenario.options.network != sim::NetworkLevel::kPacket) {
      root.require("packets").fail("the flow level", "'network: packet' beside it");
    }
    simulation = std::move(scenario.options);
    conditions.outages = read_outages(root, topology);
  }
  if (options.steps > 0) {
    simulation.steps = options.steps;
  }
  simulation.report = options.step;
  if (options.seed) {
    simulation.disturbances.seed = *options.seed;
    simulation.packets.seed = *options.seed;
  }
  return conditions;
}

Duration mean_time(const sim::StepResult& result) {
  return result.steps.size() > 1 ? result.mean_step_time : result.estimate.step_time;
}

Duration time_per_step(const plan::Plan& plan, const plan::Workload& workload,
                       const topology::Topology& topology, const Conditions& conditions) {
  if (!conditions.outages) {
    sim::SimulationOptions simulation = conditions.simulation;
    simulation.record_critical_path = false;
    simulation.report = {};
    return mean_time(sim::simulate_step(plan, workload, topology, simulation));
  }
  planner::PlannerOptions planning;
  planning.seed = conditions.simulation.disturbances.seed;
  planning.compare_baselines = false;
  const OutageResult run = simulate_outages(plan, workload, topology, *conditions.outages, planning,
                                            conditions.simulation);
  if (run.samples_per_s <= 0) {
    throw ConfigError(ErrorContext{
        "", "outages",
        fmt::format("no step that counts in {}", to_string(conditions.outages->duration)),
        "a longer run, or more checkpoints in it"});
  }
  return Duration::from_seconds(static_cast<double>(plan.batch.global_batch()) / run.samples_per_s);
}

}  // namespace rackrail::explore
