#include "explore/scenario.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <functional>
#include <utility>

#include "base/error.hpp"
#include "base/file.hpp"
#include "explore/document.hpp"
#include "explore/nearest.hpp"
#include "explore/plan_options.hpp"
#include "plan/device_class.hpp"
#include "plan/workload.hpp"
#include "sim/scenario.hpp"
#include "topology/configs.hpp"
#include "topology/reader.hpp"

namespace rackrail::explore {
namespace {

constexpr std::int64_t kMostTrials = 1'000'000;
constexpr int kMostRepetitions = 1000;
constexpr const char* kDocumentFormat = "yaml";  // of topology/readers
constexpr const char* kWholeCluster = "cluster";
constexpr const char* kWholeWorkload = "workload";
constexpr std::string_view kClusterPrefix = "cluster.";
constexpr std::string_view kWorkloadPrefix = "workload.";
constexpr std::string_view kPlanPrefix = "plan.";
constexpr std::string_view kFaultsPrefix = "faults.";

constexpr std::array kObjectives{Objective{"step_time_s", false, "s"},
                                 Objective{"throughput", true, "samples/s"},
                                 Objective{"goodput", true, "useful samples/s"},
                                 Objective{"sync_share", false, ""}, Objective{"gap", false, ""}};

/// A name or path as the scenario means it: beside the scenario if such a file is there.
std::string beside(const std::filesystem::path& scenario, const std::string& name) {
  const std::filesystem::path near = scenario.parent_path() / name;
  std::error_code status;
  return std::filesystem::is_regular_file(near, status) ? near.string() : name;
}

/// A document whose fields can vary, and what their paths begin with.
struct Document {
  std::string_view prefix;
  const Source& source;
};

void check_document(const Scenario& scenario, const Document& document, const std::string& text) {
  const std::filesystem::path& file = document.source.file;
  if (document.prefix == kClusterPrefix) {
    read_cluster_source({file, text});
  } else if (document.prefix == kWorkloadPrefix) {
    plan::read_workload_text(text, file);
  } else {
    const ConfigValue root = ConfigValue::parse(file.string(), text);
    for (const char* key : {"outages", "asynchronous", "jobs", "placement"}) {
      if (const ConfigValue* value = root.find(key)) {
        value->fail(fmt::format("'{}'", key), "a file without it: a sweep compares steps");
      }
    }
    sim::parse_scenario(file.string(), text, read_cluster_source(scenario.cluster));
  }
}

/// `path` is the field's within the document, `axis.path` that within the scenario.
void check_field(const Scenario& scenario, const Axis& axis, const Document& document,
                 const ConfigValue& value) {
  const Source& source = document.source;
  const std::string path = axis.path.substr(document.prefix.size());
  const FieldState state = find_field(source.text, path);
  if (state == FieldState::kThere) {
    return;
  }
  std::string found =
      state == FieldState::kBranch ? "a map or a list, not a single value" : "no such field";
  if (state == FieldState::kAddable) {
    // A field that may be left out, and was, can be varied too: whoever reads the document knows.
    const std::string text = axis.values.empty() ? axis.range->at(0) : axis.values.front();
    try {
      check_document(scenario, document, with_fields(source.text, {{path, text}}));
      return;
    } catch (const Error& e) {
      found += fmt::format(", and adding it is refused (found {}, expected {})", e.context().found,
                           e.context().expected);
    }
  }
  std::vector<std::string> known = field_paths(source.text);
  for (std::string& name : known) {
    name.insert(0, document.prefix);
  }
  value.fail(found, fmt::format("a field of {} like: {}", source.file.string(),
                                fmt::join(nearest(axis.path, known), ", ")));
}

void check_plan_option(const Scenario& scenario, const Axis& axis, const std::string& option,
                       const ConfigValue& value) {
  if (scenario.plan.contains(option)) {
    value.fail(fmt::format("'{}' here and below 'plan'", option), "one of the two");
  }
  std::vector<std::string> texts = axis.values;
  if (axis.range) {
    texts = {axis.range->at(0), axis.range->at(1)};
  }
  for (const std::string& text : texts) {
    try {
      read_plan_choice({{option, text}});
    } catch (const ConfigError& e) {
      value.fail(e.context().found, e.context().expected);
    }
  }
}

/// A field of a document that may be one of several: all must have it.
void check_field_of_all(const Scenario& scenario, const Axis& axis, const char* whole,
                        const Document& document, const ConfigValue& value) {
  check_field(scenario, axis, document, value);
  for (const auto& [axis_and_value, source] : scenario.documents) {
    if (axis_and_value.first == whole) {
      check_field(scenario, axis, {document.prefix, source}, value);
    }
  }
}

void check_axis(const Scenario& scenario, const Axis& axis, const ConfigValue& value) {
  const std::string& path = axis.path;
  if (path == kWholeCluster || path == kWholeWorkload) {
    return;  // its documents have been read
  }
  if (path.starts_with(kClusterPrefix)) {
    check_field_of_all(scenario, axis, kWholeCluster, {kClusterPrefix, scenario.cluster}, value);
  } else if (path.starts_with(kWorkloadPrefix)) {
    check_field_of_all(scenario, axis, kWholeWorkload, {kWorkloadPrefix, scenario.workload}, value);
  } else if (path.starts_with(kFaultsPrefix) && scenario.faults) {
    check_field(scenario, axis, {kFaultsPrefix, *scenario.faults}, value);
  } else if (path.starts_with(kPlanPrefix)) {
    check_plan_option(scenario, axis, path.substr(kPlanPrefix.size()), value);
  } else {
    value.fail("a path of nothing known",
               "cluster or workload (a list of names or files), cluster.<field>, workload.<field>, "
               "plan.<option>, or faults.<field> where there are 'faults'");
  }
}

void read_search(const ConfigValue& search, Scenario& scenario) {
  if (search.kind() == ConfigValue::Kind::kText && search.text() == "grid") {
    return;
  }
  const ConfigValue* random = search.is_map() ? search.find("random") : nullptr;
  if (random == nullptr) {
    search.fail("grid, or {random: {trials: 50}}");
  }
  search.allow_only({"random"});
  random->allow_only({"trials"});
  scenario.trials = random->require("trials").count(1, kMostTrials);
}

void read_plan_options(const ConfigValue& section, Scenario& scenario) {
  for (const auto& [name, value] : section.members()) {
    scenario.plan[name] = value.text();
    try {
      read_plan_choice({{name, value.text()}});
    } catch (const ConfigError& e) {
      value.fail(e.context().found, e.context().expected);
    }
  }
}

}  // namespace

const Objective& objective_named(std::string_view name) {
  const auto* const objective =
      std::find_if(kObjectives.begin(), kObjectives.end(),
                   [name](const Objective& known) { return known.name == name; });
  if (objective != kObjectives.end()) {
    return *objective;
  }
  std::vector<std::string_view> names;
  for (const Objective& known : kObjectives) {
    names.push_back(known.name);
  }
  throw ConfigError(ErrorContext{"", "objective", fmt::format("'{}'", name),
                                 fmt::format("one of: {}", fmt::join(names, ", "))});
}

Source cluster_source(const std::string& name_or_path,
                      const std::optional<std::filesystem::path>& overlay) {
  const std::filesystem::path file = topology::cluster_path(name_or_path);
  // Read in any case: what is wrong with the file itself is no matter of any cell.
  const topology::ReadResult read =
      topology::read_cluster(name_or_path, {.format = std::nullopt, .overlay = overlay});
  std::string content = read_file(file);
  const auto readers = topology::readers();
  const auto reader = std::find_if(readers.begin(), readers.end(), [&](const auto& candidate) {
    return candidate->accepts(file, content);
  });
  if (reader != readers.end() && (*reader)->format() == kDocumentFormat) {
    return {file, std::move(content)};
  }
  return {file, topology::to_flat_yaml(read.topology)};
}

topology::Topology read_cluster_source(const Source& cluster) {
  topology::Topology topology =
      topology::read_cluster_text(cluster.file, cluster.text,
                                  {.format = kDocumentFormat, .overlay = std::nullopt})
          .topology;
  plan::name_device_classes(topology);
  return topology;
}

Source workload_source(const std::string& name_or_path, const plan::WorkloadOptions& options) {
  const std::filesystem::path file = plan::workload_path(name_or_path, topology::configs_folder());
  std::string content = read_file(file);
  const plan::Workload workload = plan::read_workload_text(content, file, options);
  const bool is_yaml = plan::is_workload_yaml(content, file);
  return {file, is_yaml ? std::move(content) : plan::to_yaml(workload)};
}

namespace {

/// The document of a scenario that its key names, or the first of those that `vary` has under it.
/// All of these are left in the scenario.
Source read_document(const ConfigValue& root, const char* key, Scenario& scenario,
                     const std::function<Source(const std::string&)>& read) {
  const ConfigValue* vary = root.find("vary");
  const ConfigValue* wholes = vary != nullptr && vary->is_map() ? vary->find(key) : nullptr;
  if (wholes == nullptr) {
    Source source = read(root.require(key).name());
    scenario.inputs.push_back(source.file);
    return source;
  }
  if (const ConfigValue* one = root.find(key)) {
    one->fail(fmt::format("'{}' here and below 'vary'", key), "one of the two");
  }
  const Axis axis = read_axis(key, *wholes, false);
  for (const std::string& name : axis.values) {
    const Source& source =
        scenario.documents.emplace(std::pair(key, name), read(name)).first->second;
    scenario.inputs.push_back(source.file);
  }
  return scenario.documents.at({key, axis.values.front()});
}

}  // namespace

Scenario read_scenario(const std::filesystem::path& path) {
  const ConfigValue root = ConfigValue::parse(path.string(), read_file(path));
  if (!root.is_map()) {
    root.fail("a scenario: a map with cluster, workload and vary");
  }
  root.allow_only({"name", "cluster", "overlay", "workload", "faults", "plan", "vary", "search",
                   "repetitions", "objective", "seed"});
  Scenario scenario;
  scenario.name = root.find("name") != nullptr ? root.require("name").name() : path.stem().string();
  std::optional<std::filesystem::path> overlay;
  if (const auto* file = root.find("overlay")) {
    overlay = beside(path, file->name());
    scenario.inputs.push_back(*overlay);
  }
  scenario.cluster = read_document(root, kWholeCluster, scenario, [&](const std::string& name) {
    return cluster_source(beside(path, name), overlay);
  });
  scenario.workload = read_document(root, kWholeWorkload, scenario, [&](const std::string& name) {
    return workload_source(beside(path, name));
  });
  scenario.inputs.insert(scenario.inputs.begin(), path);
  if (const auto* faults = root.find("faults")) {
    const std::filesystem::path file = beside(path, faults->name());
    scenario.faults = Source{file, read_file(file)};
    check_document(scenario, {kFaultsPrefix, *scenario.faults}, scenario.faults->text);
    scenario.inputs.push_back(file);
  }
  if (const auto* options = root.find("plan")) {
    read_plan_options(*options, scenario);
  }
  if (const auto* search = root.find("search")) {
    read_search(*search, scenario);
  }
  if (const auto* repetitions = root.find("repetitions")) {
    scenario.repetitions = static_cast<int>(repetitions->count(1, kMostRepetitions));
  }
  if (const auto* seed = root.find("seed")) {
    scenario.seed = static_cast<std::uint64_t>(seed->count(0, INT64_MAX));
  }
  scenario.objective = &objective_named("step_time_s");
  if (const auto* objective = root.find("objective")) {
    try {
      scenario.objective = &objective_named(objective->text());
    } catch (const ConfigError& e) {
      objective->fail(e.context().expected);
    }
  }
  const ConfigValue& vary = root.require("vary");
  for (const auto& [field, value] : vary.members()) {
    scenario.axes.push_back(read_axis(field, value, scenario.trials.has_value()));
    check_axis(scenario, scenario.axes.back(), value);
  }
  if (scenario.axes.empty()) {
    vary.fail("nothing", "at least one field that varies");
  }
  return scenario;
}

}  // namespace rackrail::explore
