#include "cli/decision_file.hpp"

#include <nlohmann/json.hpp>

#include "base/file.hpp"

namespace rackrail::cli {
namespace {

nlohmann::json seconds_of(const std::optional<Duration>& time) {
  return time ? nlohmann::json(time->seconds()) : nlohmann::json();
}

}  // namespace

CLI::Option* DecisionFile::add_to(CLI::App& command) {
  return command.add_option(
      "--decisions", path_,
      "File to write: what the search looked at, and why it took or left it, as JSON lines");
}

planner::DecisionLog DecisionFile::log() {
  if (path_.empty()) {
    return {};
  }
  return [this](const planner::Decision& decision) {
    lines_ += nlohmann::json{{"about", decision.about},
                             {"schedule", decision.schedule},
                             {"codecs", decision.codecs},
                             {"bound_s", seconds_of(decision.bound)},
                             {"time_s", seconds_of(decision.time)},
                             {"outcome", decision.outcome}}
                  .dump() +
              "\n";
  };
}

void DecisionFile::write() const {
  if (!path_.empty()) {
    write_file_atomically(path_, lines_);
  }
}

}  // namespace rackrail::cli
