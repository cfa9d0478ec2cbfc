#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/build_config.hpp"
#include "base/error.hpp"
#include "base/file.hpp"
#include "base/parse_units.hpp"
#include "base/text.hpp"
#include "cli/commands.hpp"
#include "cli/health.hpp"
#include "cli/html.hpp"
#include "cli/inputs.hpp"
#include "cli/plan_text.hpp"
#include "cli/progress.hpp"
#include "cli/session.hpp"
#include "cli/table.hpp"
#include "cli/training_report.hpp"
#include "planner/batch/batch.hpp"
#include "planner/planner.hpp"
#include "sim/simulator.hpp"

namespace rackrail::cli {

namespace {

constexpr std::size_t kLinksShown = 15;

struct ReportOptions {
  std::string plan;
  ClusterOptions cluster;
  std::string workload;
  std::vector<std::string> runs;
  std::string output = "report.html";
};

struct Run {
  std::string name;
  nlohmann::json result;
};

/// None where a run has no such number: nobody measured it, or it was not finite.
std::optional<double> number(const nlohmann::json& run, const char* key) {
  const auto it = run.find(key);
  return it != run.end() && it->is_number() ? std::optional(it->get<double>()) : std::nullopt;
}

std::string time_cell(const nlohmann::json& run, const char* key) {
  const auto seconds = number(run, key);
  return seconds ? to_string(Duration::from_seconds(*seconds)) : "-";
}

std::string share_cell(const nlohmann::json& run, const char* key) {
  const auto share = number(run, key);
  return share ? percent(*share) : "-";
}

nlohmann::json tiers_in(const nlohmann::json& run) {
  const auto it = run.find("bytes_over_tier");
  return it != run.end() && it->is_object() ? *it : nlohmann::json::object();
}

/// How far the prediction for this machine is from what was measured on it.
std::string difference_cell(const nlohmann::json& run) {
  const auto predicted = number(run, "predicted_step_time_s");
  const auto measured = number(run, "step_time_s");
  if (!predicted || !measured || *measured <= 0) {
    return "-";
  }
  return run.value("times_count", true)
             ? fmt::format("{:+.1f} %", (*predicted / *measured - 1) * 100)
             : "none (machine was busy)";
}

/// What tells the runs apart: the names of their files as far as the first dot, else whole paths.
std::vector<std::string> run_names(const std::vector<std::string>& files) {
  std::vector<std::string> names;
  for (const std::string& file : files) {
    const std::string name = std::filesystem::path(file).filename().string();
    names.push_back(name.substr(0, name.find('.')));
  }
  return std::set<std::string>(names.begin(), names.end()).size() == names.size() ? names : files;
}

std::vector<Run> read_runs(Session& session, const std::vector<std::string>& files) {
  std::vector<Run> runs;
  const std::vector<std::string> names = run_names(files);
  for (std::size_t i = 0; i < files.size(); ++i) {
    const std::string& file = files[i];
    session.add_input(file);
    nlohmann::json result = nlohmann::json::parse(read_file(file), nullptr, false);
    if (!result.is_object() || !result.contains("command") || result["command"] != "train") {
      throw ConfigError(ErrorContext{file, "", "no result of rackrail train",
                                     "the output of 'rackrail train --json'"});
    }
    const bool has_no_steps = result.contains("step_time_s") && result["step_time_s"].is_null();
    if (!has_no_steps && !number(result, "step_time_s").has_value()) {
      throw ConfigError(ErrorContext{file, "step_time_s", "no number",
                                     "the step time that 'rackrail train --json' printed"});
    }
    runs.push_back({names[i], std::move(result)});
  }
  return runs;
}

std::string card(const std::string& value, const std::string& label) {
  return fmt::format("<div class=\"card\"><b>{}</b><span>{}</span></div>", escape_html(value),
                     escape_html(label));
}

std::string section(const std::string& title, const std::string& content) {
  return fmt::format("<h2>{}</h2><section>{}</section>\n", escape_html(title), content);
}

std::string bucket_rows(const plan::Plan& plan) {
  std::vector<std::vector<std::string>> rows = {
      {"bucket", "size", "tensors", "schedule", "codec by tier", "slice"}};
  for (std::size_t i = 0; i < plan.buckets.size(); ++i) {
    const plan::Bucket& bucket = plan.buckets[i];
    rows.push_back({std::to_string(i), to_string(Bytes(bucket.elements * 4)),
                    std::to_string(bucket.tensors.size()),
                    plan.schedules.at(bucket.schedule).name(), codec_text(bucket),
                    to_string(Bytes(bucket.slice_elements * 4))});
  }
  return html_table(rows);
}

std::string link_rows(const topology::Topology& cluster, std::vector<sim::LinkUse> links) {
  std::stable_sort(links.begin(), links.end(), [](const sim::LinkUse& a, const sim::LinkUse& b) {
    return a.utilization > b.utilization;
  });
  std::vector<std::vector<std::string>> rows = {{"link", "tier", "bytes", "utilisation"}};
  for (std::size_t i = 0; i < std::min(kLinksShown, links.size()); ++i) {
    rows.push_back({cluster.link_name(links[i].link), cluster.link(links[i].link).tier,
                    to_string(links[i].bytes), percent(links[i].utilization)});
  }
  return html_table(rows);
}

std::string run_rows(const std::vector<Run>& runs) {
  std::vector<std::vector<std::string>> rows = {{"measured run", "step time", "predicted",
                                                 "difference", "synchronisation", "final loss",
                                                 "final accuracy"}};
  for (const Run& run : runs) {
    const auto loss = number(run.result, "final_loss");
    rows.push_back({run.name, time_cell(run.result, "step_time_s"),
                    time_cell(run.result, "predicted_step_time_s"), difference_cell(run.result),
                    share_cell(run.result, "sync_share"), loss ? fmt::format("{:.4f}", *loss) : "-",
                    share_cell(run.result, "final_accuracy")});
  }
  return html_table(rows);
}

/// What is to be said where a run had another network than the plan is for; empty: nothing.
std::string on_other_networks(const std::vector<Run>& runs) {
  std::vector<std::string> names;
  for (const Run& run : runs) {
    const auto network = run.result.find("network");
    if (network != run.result.end() && *network == name_of(TrainingNetwork::kThisMachine)) {
      names.push_back(run.name);
    }
  }
  return names.empty()
             ? std::string()
             : fmt::format(
                   "{}: measured on one machine, without the cluster's network (train "
                   "--emulate builds it); only what is predicted for that machine compares",
                   fmt::join(names, ", "));
}

std::string run_curves(const std::vector<Run>& runs) {
  std::string html;
  for (const Run& run : runs) {
    if (!run.result.contains("losses") || !run.result["losses"].is_array()) {
      continue;
    }
    std::vector<double> losses;
    for (const nlohmann::json& loss : run.result["losses"]) {
      losses.push_back(loss.is_number() ? loss.get<double>()
                                        : std::numeric_limits<double>::quiet_NaN());
    }
    html += curve_svg(losses, "loss by step: " + run.name);
  }
  return html;
}

std::string headline(const PlanInput& input, const sim::StepResult& chosen,
                     const sim::StepResult& naive) {
  const plan::StepEstimate& estimate = chosen.estimate;
  const double gap = input.plan.prediction.bound.picoseconds() > 0
                         ? estimate.step_time / input.plan.prediction.bound - 1
                         : 0;
  std::string cards;
  for (const HealthFigure& figure : health(chosen, input.cluster, false)) {
    cards += card(figure.text(),
                  fmt::format("{} ({}: {})", figure.what,
                              figure.is_healthy ? "healthy" : "healthy would be", figure.limit));
  }
  return "<div class=\"cards\">" + card(to_string(estimate.step_time), "step time, simulated") +
         card(fmt::format("{:.2f} ×", naive.estimate.step_time / estimate.step_time),
              "faster than the naive plan") +
         card(fmt::format("{:+.1f} %", gap * 100), "above the lower bound") + cards +
         card(std::to_string(input.plan.batch.global_batch()), "samples per step") + "</div>";
}

std::string report_html(const Session& session, const PlanInput& input,
                        const std::vector<Run>& runs) {
  sim::SimulationOptions recorded;
  recorded.record_timeline = true;
  ProgressBar bar("simulating", session.progress_elsewhere());
  recorded.progress = [&bar](double share) { bar.update(share / 2, "this plan"); };
  const sim::StepResult chosen =
      sim::simulate_step(input.plan, input.workload, input.cluster, recorded);
  const auto cost_model = sim::make_cost_model(input.cluster, {});
  planner::PlannerOptions naive_options;
  // As many samples on every rank as fit into the smallest memory.
  naive_options.local_batch =
      std::min(planner::same_everywhere(input.plan.batch).local_batch.at(0),
               planner::local_batches(input.cluster, input.workload, {}).back());
  const plan::Plan naive_plan =
      planner::make_naive_plan(input.cluster, input.workload, *cost_model, naive_options);
  recorded.progress = [&bar](double share) { bar.update((1 + share) / 2, "the naive plan"); };
  const sim::StepResult naive =
      sim::simulate_step(naive_plan, input.workload, input.cluster, recorded);
  const Duration horizon = std::max(naive.estimate.step_time, chosen.estimate.step_time);

  std::string body = fmt::format(
      "<h1>{} on {}</h1><p class=\"lead\">{} ranks, {} of gradients per step, {}. {}</p>",
      escape_html(input.workload.name), escape_html(input.cluster.name()),
      input.cluster.rank_count(), to_string(input.workload.gradient_bytes()),
      counted(static_cast<std::int64_t>(input.plan.buckets.size()), "bucket"),
      escape_html(input.plan.batch.learning_rate_rule));
  body += headline(input, chosen, naive);
  std::vector<Bar> bars = {{"lower bound", input.plan.prediction.bound, false},
                           {"this plan", chosen.estimate.step_time, true}};
  for (const auto& [name, time] : input.plan.prediction.baselines) {
    bars.push_back({baseline_text(input.plan, name), time, false});
  }
  body += section("Step time against bound and alternatives", bars_svg(bars));
  if (!runs.empty()) {
    const std::string where = on_other_networks(runs);
    body += section("Predicted and measured on real workers",
                    run_rows(runs) + (where.empty() ? "" : "<p>" + escape_html(where) + "</p>") +
                        run_curves(runs));
  }
  body += section("The cluster, links coloured by their use in a step",
                  topology_svg(input.cluster, chosen.links));
  body += section("One step of this plan", timeline_svg(chosen.records.timeline, horizon));
  body +=
      section("The same step with the naive plan", timeline_svg(naive.records.timeline, horizon));
  body += section("Buckets", bucket_rows(input.plan));
  body += section("Busiest links", link_rows(input.cluster, chosen.links));
  std::string notes = "<ul>";
  for (const std::string& note : input.plan.notes) {
    notes += "<li>" + escape_html(note) + "</li>";
  }
  body += section("Why",
                  notes + "<li>" + escape_html(input.plan.prediction.bound_reason) + "</li></ul>");
  body += fmt::format("<footer>rackrail {}, seed {}, cluster {:.12}, model {:.12}</footer>",
                      build_config::kVersion, input.plan.seed, input.plan.cluster_digest,
                      input.plan.workload_digest);
  return html_page(fmt::format("rackrail: {} on {}", input.workload.name, input.cluster.name()),
                   body);
}

/// What the runs say beside each other: on the plan's cluster (simulated) and here (measured).
std::string comparison(const std::vector<Run>& runs) {
  std::vector<Table::Column> columns = {{""}};
  for (const Run& run : runs) {
    columns.push_back({run.name, Align::kRight});
  }
  Table table(columns);
  const auto row = [&](const std::string& title, const auto& cell) {
    std::vector<std::string> cells = {title};
    for (const Run& run : runs) {
      cells.push_back(cell(run.result));
    }
    table.add_row(std::move(cells));
  };
  const auto time = [](const char* key) {
    return [key](const nlohmann::json& run) { return time_cell(run, key); };
  };
  const auto share = [](const char* key) {
    return [key](const nlohmann::json& run) { return share_cell(run, key); };
  };
  row("step time on the cluster, simulated", time("plan_step_time_s"));
  row("synchronisation share there", share("plan_sync_share"));
  row("step time here, predicted", time("predicted_step_time_s"));
  row("step time here, measured", time("step_time_s"));
  row("prediction against measurement", difference_cell);
  row("synchronisation share here", share("sync_share"));
  std::set<std::string> tiers;
  for (const Run& run : runs) {
    const nlohmann::json bytes = tiers_in(run.result);  // must outlive its items()
    for (const auto& item : bytes.items()) {
      tiers.insert(item.key());
    }
  }
  for (const std::string& tier : tiers) {
    row("bytes over " + tier + " per step", [&tier](const nlohmann::json& run) {
      const auto bytes = number(tiers_in(run), tier.c_str());
      const auto steps = number(run, "steps");
      return bytes && steps && *steps > 0
                 ? to_string(Bytes(static_cast<std::int64_t>(*bytes / *steps)))
                 : std::string("-");
    });
  }
  row("final accuracy", share("final_accuracy"));
  return table.to_string();
}

void run_report(Session& session, const ReportOptions& options) {
  const PlanInput input = load_plan_input(session, options.plan, options.cluster, options.workload);
  const std::vector<Run> runs = read_runs(session, options.runs);
  session.add_output(options.output);
  const std::string page = report_html(session, input, runs);
  write_file_atomically(options.output, page);
  if (session.json) {
    session.print_json({{"output", options.output}, {"bytes", page.size()}});
  } else {
    if (!runs.empty()) {
      const std::string where = on_other_networks(runs);
      fmt::print("{}{}\n", comparison(runs), where.empty() ? where : where + "\n");
    }
    fmt::print("wrote {}\n", options.output);
  }
}

}  // namespace

void add_report_command(CLI::App& app, Session& session) {
  CLI::App* command = app.add_subcommand(
      "report", "Write a plan, its simulation and measured runs as one HTML page");
  add_common_options(*command, session);
  const auto options = std::make_shared<ReportOptions>();
  command->add_option("plan", options->plan, "Plan file")->required();
  command->add_option("--cluster", options->cluster.cluster,
                      "Cluster file of the plan; not needed for a shipped cluster");
  options->cluster.add_to(*command);
  options->cluster.add_calibration_to(*command);
  command->add_option("--workload,--model", options->workload,
                      "Workload file of the plan; not needed for a shipped model");
  command->add_option("--run", options->runs,
                      "Output of 'rackrail train --json' to show beside the plan. May be repeated");
  command->add_option("-o,--output", options->output, "HTML file to write")->capture_default_str();
  command->footer("Example: rackrail report plan.json --run train.json -o report.html");
  command->callback([&session, options] {
    session.command = "report";
    run_report(session, *options);
  });
}

}  // namespace rackrail::cli
