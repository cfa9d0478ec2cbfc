#include "explore/cells.hpp"

#include <fmt/format.h>

#include <set>

#include "base/build_config.hpp"
#include "base/digest.hpp"
#include "base/error.hpp"
#include "base/file.hpp"
#include "sim/scenario.hpp"

namespace rackrail::explore {
namespace {

constexpr std::size_t kMostCells = 1'000'000;
constexpr std::int64_t kDrawsPerTrial = 20;

using Values = std::vector<std::string>;

std::vector<Values> grid(const Scenario& scenario) {
  std::size_t count = 1;
  for (const Axis& axis : scenario.axes) {
    if (axis.values.size() > kMostCells / count) {
      throw ConfigError(ErrorContext{"", fmt::format("vary of '{}'", scenario.name),
                                     fmt::format("more than {} combinations", kMostCells),
                                     "fewer values, or a random search"});
    }
    count *= axis.values.size();
  }
  std::vector<Values> cells(count);
  for (std::size_t i = 0; i < count; ++i) {
    std::size_t rest = i;
    Values& values = cells[i];
    values.resize(scenario.axes.size());
    for (std::size_t a = scenario.axes.size(); a-- > 0;) {
      const Values& choices = scenario.axes[a].values;
      values[a] = choices[rest % choices.size()];
      rest /= choices.size();
    }
  }
  return cells;
}

std::vector<Values> draws(const Scenario& scenario, std::int64_t trials) {
  std::vector<Values> cells;
  std::set<Values> seen;
  for (std::int64_t i = 0; i < kDrawsPerTrial * trials; ++i) {
    Values values;
    for (const Axis& axis : scenario.axes) {
      values.push_back(axis.draw(scenario.seed, static_cast<std::uint64_t>(i)));
    }
    if (seen.insert(values).second) {
      cells.push_back(std::move(values));
      if (cells.size() == static_cast<std::size_t>(trials)) {
        break;
      }
    }
  }
  return cells;
}

/// Messages shall not take the lines of the text for those of the file.
Source varied(const Source& source, const std::vector<FieldValue>& values) {
  return values.empty()
             ? source
             : Source{source.file.string() + " (varied)", with_fields(source.text, values)};
}

}  // namespace

std::string Cell::digest() const {
  // Lengths keep the parts apart whatever characters they have.
  std::string content = fmt::format("rackrail {}\n", build_config::kVersion);
  const auto add = [&content](std::string_view part) {
    content += fmt::format("{}:{}\n", part.size(), part);
  };
  add(cluster.text);
  add(workload.text);
  add(faults ? faults->text : "");
  if (faults) {
    for (const auto& file : sim::files_of_scenario(faults->file.string(), faults->text)) {
      add(read_file(file));
    }
  }
  for (const auto& [name, value] : plan) {
    add(name);
    add(value);
  }
  content += fmt::format("seed {} repetitions {}\n", seed, repetitions);
  return sha256_hex(content);
}

Cells::Cells(const Scenario& scenario)
    : scenario_(scenario),
      values_(scenario.trials ? draws(scenario, *scenario.trials) : grid(scenario)) {}

Cell Cells::at(std::size_t number) const {
  Cell cell;
  cell.number = number;
  cell.plan = scenario_.plan;
  cell.repetitions = scenario_.repetitions;
  cell.seed = scenario_.seed;
  std::vector<FieldValue> of_cluster;
  std::vector<FieldValue> of_workload;
  std::vector<FieldValue> of_faults;
  Source cluster = scenario_.cluster;
  Source workload = scenario_.workload;
  const Values& values = values_.at(number);
  for (std::size_t a = 0; a < values.size(); ++a) {
    const std::string& path = scenario_.axes[a].path;
    const std::size_t dot = path.find('.');
    const std::string field = path.substr(dot + 1);
    if (path == "cluster" || path == "workload") {
      (path == "cluster" ? cluster : workload) = scenario_.documents.at({path, values[a]});
    } else if (path.starts_with("cluster.")) {
      of_cluster.emplace_back(field, values[a]);
    } else if (path.starts_with("workload.")) {
      of_workload.emplace_back(field, values[a]);
    } else if (path.starts_with("faults.")) {
      of_faults.emplace_back(field, values[a]);
    } else {
      cell.plan[field] = values[a];
    }
    cell.varied.emplace_back(path, values[a]);
  }
  cell.cluster = varied(cluster, of_cluster);
  cell.workload = varied(workload, of_workload);
  if (scenario_.faults) {
    cell.faults = varied(*scenario_.faults, of_faults);
  }
  return cell;
}

}  // namespace rackrail::explore
