#include "cli/measured_run.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "base/file.hpp"
#include "plan/format.hpp"

namespace rackrail::cli {

namespace {

[[noreturn]] void fail(const std::string& path, const std::string& where, const std::string& found,
                       const std::string& expected) {
  throw ConfigError(ErrorContext{path, where, found, expected});
}

/// The elements of a list; none where there is no such list.
const nlohmann::json& list_in(const nlohmann::json& object, const char* key) {
  static const nlohmann::json none = nlohmann::json::array();
  const auto it = object.find(key);
  return it != object.end() && it->is_array() ? *it : none;
}

std::string text_in(const nlohmann::json& object, const char* key) {
  const auto it = object.is_object() ? object.find(key) : object.end();
  return object.is_object() && it != object.end() && it->is_string() ? it->get<std::string>() : "";
}

MeasuredRun::Link link_in(const nlohmann::json& entry, std::size_t number,
                          const std::string& path) {
  const std::string where = fmt::format("link_rates[{}]", number);
  const std::string name = text_in(entry, "link");
  if (name.empty()) {
    fail(path, where + ".link", "no name", "the link that was measured");
  }
  const auto rate = entry.find("now_Bps");
  if (rate == entry.end() || !rate->is_number_integer() || rate->get<std::int64_t>() <= 0) {
    fail(path, where + ".now_Bps", rate == entry.end() ? "nothing" : rate->dump(),
         "a whole number of bytes per second above 0");
  }
  return {name, Bandwidth(rate->get<std::int64_t>())};
}

/// The latest factor of each rank that is not well.
void note_slow_ranks(const nlohmann::json& run, MeasuredRun& result) {
  std::map<std::string, double> factors;
  for (const nlohmann::json& finding : list_in(run, "slow")) {
    if (!finding.is_object()) {
      continue;
    }
    for (const nlohmann::json& rank : list_in(finding, "ranks")) {
      const std::string name = text_in(rank, "rank");
      if (!name.empty() && rank.contains("time_factor") && rank["time_factor"].is_number()) {
        factors[name] = rank["time_factor"].get<double>();
      }
    }
  }
  for (const auto& [name, factor] : factors) {
    if (factor != 1) {
      result.notes.push_back(
          fmt::format("{} took {:.1f} times as long as the others to compute: only links are "
                      "planned for here, samples stay as they are",
                      name, factor));
    }
  }
}

/// Of each rank that was lost and not replaced since.
void note_lost_ranks(const nlohmann::json& run, MeasuredRun& result) {
  std::vector<std::string> lost;
  for (const nlohmann::json& loss : list_in(run, "losses_of_workers")) {
    if (!loss.is_object()) {
      continue;
    }
    for (const nlohmann::json& name : list_in(loss, "lost")) {
      if (name.is_string() && std::ranges::count(lost, name.get<std::string>()) == 0) {
        lost.push_back(name.get<std::string>());
      }
    }
    for (const nlohmann::json& name : list_in(loss, "new_workers_for")) {
      if (name.is_string()) {
        std::erase(lost, name.get<std::string>());
      }
    }
  }
  for (const std::string& name : lost) {
    result.notes.push_back(
        fmt::format("{} was lost in the run: this plan is for all ranks all the same; "
                    "`rackrail plan` makes one for a cluster without it",
                    name));
  }
}

}  // namespace

MeasuredRun read_measured_run(Session& session, const std::string& path, const plan::Plan& plan) {
  session.add_input(path);
  const nlohmann::json run = nlohmann::json::parse(read_file(path), nullptr, false);
  if (!run.is_object()) {
    fail(path, "", run.is_discarded() ? "no JSON" : "no JSON object",
         "the output of 'rackrail train --json'");
  }
  if (const std::string command = text_in(run, "command"); command != "train") {
    fail(path, "command",
         command.empty() ? "no result of rackrail train" : fmt::format("'{}'", command),
         "the output of 'rackrail train --json'");
  }
  if (const std::string digest = text_in(run, "plan_digest"); digest != plan::digest(plan)) {
    fail(path, "plan_digest",
         fmt::format("a run with another plan ('{}')", text_in(run, "plan_name")),
         "a run with the plan that is to be planned again");
  }
  const auto rates = run.find("link_rates");
  if (rates == run.end() || !rates->is_array()) {
    fail(path, "link_rates", "no list",
         "a run with --on-slow report or --on-slow replan, which measures links");
  }
  MeasuredRun result;
  for (const nlohmann::json& entry : *rates) {
    result.links.push_back(link_in(entry, result.links.size(), path));
  }
  note_slow_ranks(run, result);
  note_lost_ranks(run, result);
  return result;
}

}  // namespace rackrail::cli
