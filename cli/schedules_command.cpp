#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/parse_units.hpp"
#include "cli/collective.hpp"
#include "cli/commands.hpp"
#include "cli/inputs.hpp"
#include "cli/interrupt.hpp"
#include "cli/progress.hpp"
#include "cli/session.hpp"
#include "cli/simulation_notes.hpp"
#include "cli/table.hpp"
#include "plan/codec_name.hpp"
#include "planner/tuning/schedule_table.hpp"
#include "sim/simulator.hpp"

namespace rackrail::cli {

namespace {

struct SchedulesOptions {
  ClusterOptions cluster;
  std::string codec = "fp32";
  std::string from = "1 KiB";
  std::string to = "4 GiB";
  std::string search = "quick";
  bool all = false;
};

nlohmann::json table_json(const planner::ScheduleTable& table) {
  nlohmann::json sizes = nlohmann::json::array();
  for (const planner::TableRow& row : table.rows) {
    nlohmann::json times = nlohmann::json::object();
    for (std::size_t i = 0; i < row.times.size(); ++i) {
      nlohmann::json& time = times[table.families[i]];
      time = {{row.times[i].is_simulated ? "time_s" : "at_least_s", row.times[i].time.seconds()}};
      if (row.times[i].is_cut) {
        time["is_cut"] = true;
      }
    }
    sizes.push_back({{"bytes", row.bytes.count()},
                     {"best", table.families[row.best]},
                     {"mechanism", row.mechanism},
                     {"time_s", row.times[row.best].time.seconds()},
                     {"slice_bytes", row.times[row.best].slice_elements * 4},
                     {"schedules", times}});
  }
  nlohmann::json crossovers = nlohmann::json::array();
  for (const planner::Crossover& crossover : table.crossovers) {
    crossovers.push_back({{"bytes", crossover.bytes.count()},
                          {"from", table.families[crossover.from]},
                          {"to", table.families[crossover.to]}});
  }
  nlohmann::json refused = nlohmann::json::object();
  for (const auto& refusal : table.refusals) {
    refused[refusal.family] = refusal.reason;
  }
  return {{"sizes", sizes}, {"crossovers", crossovers}, {"refused", refused}};
}

/// How the best schedules were made, but for their number of rounds, and at which sizes.
std::vector<std::pair<std::string, std::string>> sizes_by_mechanism(
    const planner::ScheduleTable& table) {
  const auto text_of = [&](const planner::TableRow& row) {
    return row.mechanism.empty() ? std::string()
                                 : table.families[row.best] + ": " +
                                       row.mechanism.substr(0, row.mechanism.rfind(','));
  };
  std::vector<std::pair<std::string, std::string>> all;
  std::size_t first = 0;
  for (std::size_t row = 0; row < table.rows.size(); ++row) {
    const std::string text = text_of(table.rows[row]);
    if (row + 1 < table.rows.size() && text_of(table.rows[row + 1]) == text) {
      continue;
    }
    const std::string from = to_string(table.rows[first].bytes);
    if (!text.empty()) {
      all.emplace_back(text,
                       first == row ? from : from + " to " + to_string(table.rows[row].bytes));
    }
    first = row + 1;
  }
  return all;
}

void print_table(const planner::ScheduleTable& table) {
  std::vector<Table::Column> columns = {{"size", Align::kRight}, {"best"}};
  for (const std::string& family : table.families) {
    columns.push_back({family, Align::kRight});
  }
  Table text(columns);
  for (const planner::TableRow& row : table.rows) {
    std::vector<std::string> cells = {to_string(row.bytes), table.families[row.best]};
    for (const planner::TableTime& time : row.times) {
      const char* const sign = !time.is_simulated ? "> " : time.is_cut ? "< " : "";
      cells.push_back(sign + to_string(time.time));
    }
    text.add_row(std::move(cells));
  }
  fmt::print("{}\n", text.to_string());
  fmt::print("small messages   {}\n", table.families[table.rows.front().best]);
  for (const planner::Crossover& crossover : table.crossovers) {
    fmt::print("from {:<11} {} (before: {})\n", to_string(crossover.bytes),
               table.families[crossover.to], table.families[crossover.from]);
  }
  for (const auto& [text, sizes] : sizes_by_mechanism(table)) {
    fmt::print("mechanism        {} ({})\n", text, sizes);
  }
  for (const auto& refusal : table.refusals) {
    fmt::print("not here         {}: {}\n", refusal.family, refusal.reason);
  }
}

void run_schedules(Session& session, const SchedulesOptions& options) {
  planner::ScheduleTableOptions chosen;
  chosen.codec =
      named("<command line>", "--codec", [&] { return plan::parse_codec(options.codec); });
  chosen.smallest = named("<command line>", "--from", [&] { return parse_bytes(options.from); });
  chosen.largest = named("<command line>", "--to", [&] { return parse_bytes(options.to); });
  chosen.simulate_all = options.all;
  chosen.effort = parse_search(options.search);
  const topology::Topology cluster = options.cluster.load(session);
  std::vector<std::string> notes;
  if (auto note = gpus_without_class_note(cluster)) {
    notes.push_back(*std::move(note));
  }
  notes = say_notes(session, cluster, std::move(notes));
  const auto cost_model = sim::make_cost_model(cluster, {});
  const EndsEarly ends_early;
  chosen.stop = was_interrupted;
  ProgressBar bar("schedules", session.progress_elsewhere());
  chosen.progress = [&bar](double share, const std::string& what) { bar.update(share, what); };
  const planner::ScheduleTable table = named(options.cluster.cluster, "", [&] {
    return planner::make_schedule_table(cluster, *cost_model, chosen);
  });
  bar.clear();
  if (table.was_stopped) {
    if (table.rows.empty()) {
      throw NothingFound();
    }
    session.status = kInterrupted;
  }
  if (session.json) {
    nlohmann::json result = table_json(table);
    if (table.was_stopped) {
      result["interrupted"] = true;
    }
    result["cluster"] = cluster.name();
    result["ranks"] = cluster.rank_count();
    result["codec"] = plan::to_string(chosen.codec);
    result["notes"] = notes;
    session.print_json(result);
    return;
  }
  fmt::print(
      "{}: all-reduce over {} ranks, codec {}\n"
      "'>': at least, not simulated; '<': at most, a quick search ended there\n\n",
      cluster.name(), cluster.rank_count(), plan::display_name(chosen.codec));
  print_table(table);
  if (table.was_stopped) {
    fmt::print("stopped by Ctrl-C: larger sizes are missing\n");
  }
}

}  // namespace

void add_schedules_command(CLI::App& app, Session& session) {
  CLI::App* command = app.add_subcommand(
      "schedules", "Show which all-reduce schedule is fastest at which message size");
  add_common_options(*command, session);
  const auto options = std::make_shared<SchedulesOptions>();
  command
      ->add_option("cluster,--cluster", options->cluster.cluster,
                   "Cluster file, or the name of a shipped cluster such as two-racks-40g")
      ->required();
  options->cluster.add_to(*command);
  options->cluster.add_calibration_to(*command);
  command
      ->add_option("--codec", options->codec,
                   "Codec of every transfer, e.g. fp16; 'rackrail info' lists them")
      ->capture_default_str();
  command->add_option("--from", options->from, "Smallest message, e.g. '1 KiB'")
      ->capture_default_str();
  command->add_option("--to", options->to, "Largest message, e.g. '4 GiB'. Sizes double up to it")
      ->capture_default_str();
  command->add_flag("--all", options->all,
                    "Simulate every schedule at every size, also those that cannot be the best");
  add_search_option(*command, options->search);
  command->footer("Example: rackrail schedules two-racks-40g");
  command->callback([&session, options] {
    session.command = "schedules";
    run_schedules(session, *options);
  });
}

}  // namespace rackrail::cli
