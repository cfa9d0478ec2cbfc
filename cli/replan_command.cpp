#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cmath>
#include <ctime>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/csv.hpp"
#include "base/error.hpp"
#include "base/file.hpp"
#include "base/parse_units.hpp"
#include "base/text.hpp"
#include "cli/commands.hpp"
#include "cli/inputs.hpp"
#include "cli/measured_run.hpp"
#include "cli/session.hpp"
#include "cli/shared_numbers.hpp"
#include "cli/simulation_notes.hpp"
#include "cli/table.hpp"
#include "plan/format.hpp"
#include "plan/reduced_error.hpp"
#include "planner/planner.hpp"
#include "planner/replan/replan.hpp"
#include "planner/search/survivors.hpp"
#include "sim/simulator.hpp"
#include "topology/reader.hpp"

namespace rackrail::cli {

namespace {

struct ReplanOptions {
  std::string plan;
  ClusterOptions cluster;
  std::string workload;
  std::vector<std::string> lost;
  std::string rates;
  std::string run;
  double tolerance = 0.05;
  bool any_schedule = false;
  bool compare_full = false;
  std::string route_rates = "auto";
  std::string output;
  std::string cluster_output;
};

/// Finds links by name (topology::links_named), each once.
class LinkNames {
 public:
  explicit LinkNames(const topology::Topology& cluster)
      : cluster_(cluster), is_named_(cluster.link_count()) {}

  /// None where no (further) link has the name; of parallel ones the first that is left.
  std::optional<LinkId> take(const std::string& typed) {
    for (const LinkId link : topology::links_named(cluster_, typed)) {
      if (take(link)) {
        return link;
      }
    }
    return std::nullopt;
  }
  /// All that are left of the name.
  std::vector<LinkId> take_all(const std::string& typed) {
    std::vector<LinkId> links = topology::links_named(cluster_, typed);
    std::erase_if(links, [this](LinkId link) { return !take(link); });
    return links;
  }
  /// Whether it was left.
  bool take(LinkId link) {
    const bool was_left = !is_named_[link.index()];
    is_named_[link.index()] = true;
    return was_left;
  }
  std::string expected() const {
    return fmt::format(
        "a link of the cluster, once each, such as {} (`rackrail topology convert` lists them)",
        cluster_.link_name(LinkId(0)));
  }

 private:
  const topology::Topology& cluster_;
  std::vector<bool> is_named_;
};

/// Both directions of every cable that is lost.
std::vector<planner::LinkChange> losses_of(const ReplanOptions& options,
                                           const topology::Topology& cluster, LinkNames& names) {
  std::vector<planner::LinkChange> changes;
  for (const std::string& name : options.lost) {
    const std::vector<LinkId> links = names.take_all(name);
    if (links.empty()) {
      throw ConfigError(
          ErrorContext{"<command line>", "--lost-link", "'" + name + "'", names.expected()});
    }
    for (const LinkId link : links) {
      changes.push_back({link, std::nullopt});
      if (const auto back = topology::way_back(cluster, link); back && names.take(*back)) {
        changes.push_back({*back, std::nullopt});
      }
    }
  }
  return changes;
}

/// Whether the rate differs from the planned one by more than the tolerance.
bool counts(const ReplanOptions& options, const topology::Topology& cluster, LinkId link,
            Bandwidth rate) {
  const double planned = static_cast<double>(cluster.link(link).bandwidth.bytes_per_second());
  const double now = static_cast<double>(rate.bytes_per_second());
  return std::abs(now / planned - 1) > options.tolerance;
}

void add_rates(const ReplanOptions& options, const topology::Topology& cluster, LinkNames& names,
               std::vector<planner::LinkChange>& changes) {
  const CsvTable table = CsvTable::read(options.rates);
  table.require({"link", "bandwidth"});
  for (std::size_t row = 0; row < table.rows(); ++row) {
    const auto link = names.take(table.text(row, "link"));
    if (!link) {
      table.fail(row, "link", names.expected());
    }
    const std::string& text = table.text(row, "bandwidth");
    if (text == "lost") {
      changes.push_back({*link, std::nullopt});
      continue;
    }
    std::optional<Bandwidth> bandwidth;
    try {
      bandwidth = parse_bandwidth(text);
    } catch (const ConfigError& error) {
      table.fail(row, "bandwidth", error.context().expected + ", or 'lost'");
    }
    if (*bandwidth == Bandwidth()) {
      table.fail(row, "bandwidth", "more than 0, or 'lost'");
    }
    if (counts(options, cluster, *link, *bandwidth)) {
      changes.push_back({*link, bandwidth});
    }
  }
}

/// A link that is named elsewhere, too, has the rate that is said there.
void add_run(const ReplanOptions& options, const MeasuredRun& run,
             const topology::Topology& cluster, LinkNames& names,
             std::vector<planner::LinkChange>& changes) {
  for (const MeasuredRun::Link& measured : run.links) {
    const std::vector<LinkId> links = topology::links_named(cluster, measured.name);
    if (links.size() != 1) {
      throw ConfigError(ErrorContext{options.run, fmt::format("link_rates '{}'", measured.name),
                                     links.empty() ? "no link of the cluster" : "several links",
                                     "a run on the plan's cluster"});
    }
    if (names.take(links.front()) && counts(options, cluster, links.front(), measured.rate)) {
      changes.push_back({links.front(), measured.rate});
    }
  }
}

std::vector<planner::LinkChange> changes_of(const ReplanOptions& options,
                                            const std::optional<MeasuredRun>& run,
                                            const topology::Topology& cluster) {
  LinkNames names(cluster);
  std::vector<planner::LinkChange> changes = losses_of(options, cluster, names);
  if (!options.rates.empty()) {
    add_rates(options, cluster, names, changes);
  }
  if (run) {
    add_run(options, *run, cluster, names, changes);
  }
  return changes;
}

double cpu_seconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

struct Outcome {
  planner::Replan replan;
  std::optional<Duration> kept;
  double cpu_s = 0;
  double gradient_error = 0;  ///< of a reduced gradient, by the new plan
  std::optional<plan::Plan> full;
  double full_cpu_s = 0;
  double full_gradient_error = 0;
  bool is_full_better = false;  ///< by kWorthAFullPlan; it is the one that is written then
};

constexpr double kWorthAFullPlan = 1.03;

void print_json(Session& session, const Outcome& outcome,
                const std::vector<planner::LinkChange>& changes,
                const topology::Topology& cluster) {
  const planner::Replan& replan = outcome.replan;
  nlohmann::json links = nlohmann::json::array();
  for (const planner::LinkChange& change : changes) {
    nlohmann::json link = {
        {"name", cluster.link_name(change.link)},
        {"before_Bps", cluster.link(change.link).bandwidth.bytes_per_second()},
        {"now_Bps", change.bandwidth ? change.bandwidth->bytes_per_second() : 0}};
    links.push_back(link);
  }
  nlohmann::json buckets = nlohmann::json::array();
  for (const planner::BucketChange& change : replan.changes) {
    buckets.push_back({{"bucket", change.bucket},
                       {"before", change.before},
                       {"after", change.after},
                       {"routes", change.routes}});
  }
  nlohmann::json result = {{"links", links},
                           {"changes", buckets},
                           {"buckets", replan.plan.buckets.size()},
                           {"touched_buckets", replan.touched_buckets},
                           {"touched_schedules", replan.touched_schedules},
                           {"before_step_time_s", replan.before.seconds()},
                           {"rerouted_step_time_s", replan.rerouted.seconds()},
                           {"step_time_s", replan.after.seconds()},
                           {"bound_s", replan.plan.prediction.bound.seconds()},
                           {"bound_reason", replan.plan.prediction.bound_reason},
                           {"gap", replan.plan.prediction.gap},
                           {"gradient_error", outcome.gradient_error},
                           {"only_schedule", replan.plan.only_schedule},
                           {"notes", replan.plan.notes},
                           {"bytes_before", replan.bytes_before.count()},
                           {"bytes_after", replan.bytes_after.count()},
                           {"simulated_steps", replan.simulated_steps},
                           {"replan_cpu_s", outcome.cpu_s}};
  result["kept_step_time_s"] =
      outcome.kept ? nlohmann::json(outcome.kept->seconds()) : nlohmann::json();
  if (outcome.full) {
    result["full_step_time_s"] = outcome.full->prediction.step_time.seconds();
    result["full_gap"] = outcome.full->prediction.gap;
    result["full_gradient_error"] = outcome.full_gradient_error;
    result["full_cpu_s"] = outcome.full_cpu_s;
    result["full_is_better"] = outcome.is_full_better;
  }
  session.print_json(result);
}

std::string gap_text(const plan::Prediction& prediction) {
  return fmt::format("{:+.1f} % against the lower bound, {}", prediction.gap * kPercent,
                     to_string(prediction.bound));
}

std::string rounding_text(double gradient_error) {
  return gradient_error > 0 ? fmt::format("compression changes summed gradients by up to {:.2g} %",
                                          gradient_error * kPercent)
                            : "none: gradients are summed in FP32";
}

void print_text(const ReplanOptions& options, const Outcome& outcome,
                const std::vector<planner::LinkChange>& changes,
                const topology::Topology& cluster) {
  const planner::Replan& replan = outcome.replan;
  if (changes.empty()) {
    fmt::print(
        "no link has another rate than planned (differences up to {:.3g} % do not count)\n\n",
        options.tolerance * kPercent);
  }
  Table links({{"changed link"}, {"before", Align::kRight}, {"now", Align::kRight}});
  for (const planner::LinkChange& change : changes) {
    links.add_row({cluster.link_name(change.link), to_string(cluster.link(change.link).bandwidth),
                   change.bandwidth ? to_string(*change.bandwidth) : "lost"});
  }
  if (!changes.empty()) {
    fmt::print("{}\n", links.to_string());
  }
  std::map<std::pair<std::string, std::string>, std::pair<std::size_t, std::size_t>> kinds;
  for (const planner::BucketChange& change : replan.changes) {
    auto& [count, routes] = kinds[{change.before, change.after}];
    ++count;
    routes = change.routes;
  }
  Table buckets({{"buckets", Align::kRight}, {"before"}, {"now"}});
  for (const auto& [kind, figures] : kinds) {
    buckets.add_row({std::to_string(figures.first), kind.first,
                     kind.first == kind.second && figures.second > 0
                         ? fmt::format("the same on {} other routes", figures.second)
                         : kind.second});
  }
  if (!buckets.empty()) {
    fmt::print("{}\n", buckets.to_string());
  }
  fmt::print("touched         {} of {} buckets used a changed link; {} were planned again\n",
             replan.touched_buckets, replan.plan.buckets.size(), replan.changes.size());
  fmt::print("step before     {}\n", to_string(replan.before));
  fmt::print("old plan kept   {}\n",
             outcome.kept ? to_string(*outcome.kept) : "cannot run: it uses a lost link");
  fmt::print("only rerouted   {}\n", to_string(replan.rerouted));
  const plan::Prediction& prediction = replan.plan.prediction;
  fmt::print("step now        {} ({})\n", to_string(replan.after), gap_text(prediction));
  fmt::print("bound           {}\n", prediction.bound_reason);
  fmt::print("rounding        {}\n", rounding_text(outcome.gradient_error));
  for (const std::string& note : replan.plan.notes) {
    fmt::print("note            {}\n", note);
  }
  if (outcome.full) {
    fmt::print("full plan       {} ({}; {:.2f} s of CPU against {:.2f} s)\n",
               to_string(outcome.full->prediction.step_time), gap_text(outcome.full->prediction),
               outcome.full_cpu_s, outcome.cpu_s);
    fmt::print("                rounding {}\n", rounding_text(outcome.full_gradient_error));
    if (outcome.is_full_better) {
      fmt::print("                use this one{}\n",
                 options.output.empty() ? "" : ": it was written");
    }
  }
  fmt::print("bytes           {} per step over the changed links before, {} now\n",
             to_string(replan.bytes_before), to_string(replan.bytes_after));
  fmt::print("planned again   in {:.2f} s, {} simulated\n", outcome.cpu_s,
             counted(replan.simulated_steps, "step"));
  for (const std::string& file : {options.output, options.cluster_output}) {
    if (!file.empty()) {
      fmt::print("wrote           {}\n", file);
    }
  }
}

/// So that nobody takes the new plan for one of the cluster as it was.
std::string changed_name(const std::string& name) {
  constexpr std::string_view kChanged = " (changed)";
  return name.ends_with(kChanged) ? name : name + std::string(kChanged);
}

void run_replan(Session& session, const ReplanOptions& options) {
  PlanInput input = load_plan_input(session, options.plan, options.cluster, options.workload);
  if (options.any_schedule) {
    input.plan.only_schedule.clear();
  }
  if (!options.rates.empty()) {
    session.add_input(options.rates);
  }
  session.add_output(options.output);
  session.add_output(options.cluster_output);
  std::optional<MeasuredRun> run;
  if (!options.run.empty()) {
    run = read_measured_run(session, options.run, input.plan);
    for (const std::string& line : run->notes) {
      session.note("note: " + line);
    }
  }
  const std::vector<planner::LinkChange> changes = changes_of(options, run, input.cluster);
  // What no link is left for is not the cluster file's fault.
  const std::string blamed =
      options.lost.empty() && !options.rates.empty() ? options.rates : "<command line>";
  const topology::Topology now = named(blamed, "", [&] {
    topology::Topology changed = planner::changed_cluster(input.cluster, changes);
    changed.set_name(changed_name(input.cluster.name()));
    return changed;
  });
  const planner::RouteRates route_rates = named("<command line>", "--route-rates", [&] {
    return planner::parse_route_rates(options.route_rates);
  });
  Outcome outcome;
  ProgressBar bar("planning again", session.progress_elsewhere());
  double start = cpu_seconds();
  const auto costs = sim::make_cost_model(now, {});
  outcome.replan =
      planner::replan(input.plan, input.cluster, now, changes, input.workload, *costs, route_rates);
  outcome.cpu_s = cpu_seconds() - start;
  outcome.gradient_error = plan::reduced_error(outcome.replan.plan, input.workload);
  outcome.kept =
      planner::step_if_kept(input.plan, input.cluster, now, changes, input.workload, *costs);
  if (options.compare_full) {
    start = cpu_seconds();
    planner::PlannerOptions full = planner::options_in_place_of(input.plan, input.workload, now);
    full.route_rates = route_rates;
    full.progress = [&bar](double share, const std::string& what) {
      bar.update(share, "a full plan: " + what);
    };
    const auto fresh = sim::make_cost_model(now, {});
    const plan::Plan& plan =
        outcome.full.emplace(planner::make_plan(now, input.workload, *fresh, full));
    outcome.full_cpu_s = cpu_seconds() - start;
    outcome.full_gradient_error = plan::reduced_error(plan, input.workload);
    outcome.is_full_better =
        scaled(plan.prediction.step_time, kWorthAFullPlan) <= outcome.replan.after;
    if (!options.output.empty() && outcome.is_full_better) {
      plan::save_plan(plan, options.output);
    }
  }
  bar.clear();
  if (!options.output.empty() && !outcome.is_full_better) {
    plan::save_plan(outcome.replan.plan, options.output);
  }
  if (!options.cluster_output.empty()) {
    write_file_atomically(options.cluster_output, topology::to_flat_yaml(now));
  }
  if (auto note = without_class_note(now, input.workload)) {
    outcome.replan.plan.notes.push_back(*std::move(note));  // of what was read; files are without
  }
  if (session.json) {
    print_json(session, outcome, changes, input.cluster);
  } else {
    print_text(options, outcome, changes, input.cluster);
  }
}

}  // namespace

void add_replan_command(CLI::App& app, Session& session) {
  CLI::App* command =
      app.add_subcommand("replan", "Plan again after links were lost or changed their speed");
  add_common_options(*command, session);
  const auto options = std::make_shared<ReplanOptions>();
  command->add_option("plan", options->plan, "Plan file that is in use")->required();
  command->add_option("--cluster", options->cluster.cluster,
                      "Cluster file of the plan; not needed for a shipped cluster");
  options->cluster.add_to(*command);
  options->cluster.add_calibration_to(*command);
  command->add_option("--workload,--model", options->workload,
                      "Workload file of the plan; not needed for a shipped model");
  CLI::Option* lost =
      command->add_option("--lost-link", options->lost,
                          "Cable that is gone, both directions, e.g. 'nic0.0->tor0'. Parallel "
                          "cables all count; 'tor0->tor1#2' is the second. May be repeated");
  CLI::Option* rates = command->add_option(
      "--link-rates", options->rates,
      "CSV file with the columns link (one direction) and bandwidth ('10 Gbit/s' or 'lost')");
  CLI::Option* run = command->add_option("--run", options->run,
                                         "Output of 'rackrail train --on-slow report --json' with "
                                         "this plan: its measured link rates are used");
  add_share_option(*command, "--tolerance", options->tolerance, 1,
                   "Ignore rates that differ by less than this share from the planned ones");
  command
      ->add_option("--route-rates", options->route_rates,
                   "Whether transfers may be paced to a rate. auto: as in the plan, or yes except "
                   "between GPUs. Or always, never")
      ->capture_default_str();
  command->add_flag(
      "--any-schedule", options->any_schedule,
      "Also try other families than the one that 'rackrail plan --schedule' asked for");
  command->add_flag("--compare-full", options->compare_full,
                    "Also make a plan from nothing and compare. It is written instead if its step "
                    "is 3 % shorter");
  command->add_option("-o,--output", options->output, "Plan file to write");
  command->add_option("--cluster-output", options->cluster_output,
                      "Also write the changed cluster, which the new plan is for (YAML)");
  command->footer(
      "Example: rackrail replan plan.json --lost-link 'nic0.0->tor0' -o new-plan.json "
      "--cluster-output now.yaml");
  command->callback([&session, options, lost, rates, run] {
    session.command = "replan";
    if (lost->count() + rates->count() + run->count() == 0) {
      throw ConfigError(ErrorContext{"<command line>", "", "no change",
                                     "--lost-link, --link-rates, --run or several of them"});
    }
    run_replan(session, *options);
  });
}

}  // namespace rackrail::cli
