#include "cli/heartbeat_options.hpp"

#include <CLI/CLI.hpp>

#include "base/error.hpp"
#include "base/parse_units.hpp"
#include "cli/inputs.hpp"

namespace rackrail::cli {

namespace {

constexpr Duration kUsualPeriod = 500_ms;
// Where the job goes on after a loss, a silent worker is noticed sooner than where it ends.
constexpr Duration kWatchfulPeriod = 200_ms;
constexpr double kSilentPeriods = 6;  // a few late answers of a busy machine are no loss
constexpr double kFewestPeriods = 2;
constexpr Duration kShortest = 50_ms;

Duration duration_of(const char* option, const std::string& text) {
  return named("<command line>", option, [&] { return parse_duration(text); });
}

}  // namespace

void HeartbeatOptions::add_to(CLI::App& command) {
  command.add_option(
      "--heartbeat-period", period,
      "How often each worker says that it is there (0.2 s with --on-loss continue or "
      "wait,\nelse 0.5 s)");
  command.add_option(
      "--heartbeat-timeout", timeout,
      "Silence after which a worker counts as lost (six periods): longer where cores "
      "are\nbusy with other work");
}

Heartbeats HeartbeatOptions::heartbeats(bool goes_on_after_loss) const {
  const Duration beat = !period.empty()      ? duration_of("--heartbeat-period", period)
                        : goes_on_after_loss ? kWatchfulPeriod
                                             : kUsualPeriod;
  if (beat < kShortest) {
    throw ConfigError(ErrorContext{"<command line>", "--heartbeat-period", period,
                                   "at least " + to_string(kShortest)});
  }
  const Duration silence =
      timeout.empty() ? scaled(beat, kSilentPeriods) : duration_of("--heartbeat-timeout", timeout);
  if (silence < scaled(beat, kFewestPeriods)) {
    throw ConfigError(ErrorContext{"<command line>", "--heartbeat-timeout", timeout,
                                   "at least twice the period of heartbeats, " + to_string(beat)});
  }
  return {.period = beat, .timeout = silence};
}

}  // namespace rackrail::cli
