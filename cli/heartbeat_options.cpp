#include "cli/heartbeat_options.hpp"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <optional>

#include "base/error.hpp"
#include "base/parse_units.hpp"
#include "cli/inputs.hpp"

namespace rackrail::cli {

namespace {

constexpr Duration kUsualPeriod = 1_s;
constexpr Duration kShortestUsualPeriod = 500_ms;  // where a shorter silence alone is given
constexpr double kUsualSilence = 3;                // periods
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
  command.add_option("--heartbeat-period", period,
                     "How often each worker reports that it is alive. Default: 0.2 s with "
                     "--on-loss continue or wait, else 1 s or less");
  command.add_option("--heartbeat-timeout", timeout,
                     "A worker is lost after this silence. Default: six periods (three of 1 s), "
                     "longer where cores are busy");
}

Heartbeats HeartbeatOptions::heartbeats(bool goes_on_after_loss) const {
  const std::optional<Duration> wanted =
      timeout.empty() ? std::nullopt : std::optional(duration_of("--heartbeat-timeout", timeout));
  const auto usual = [&] {
    const Duration fitting = scaled(wanted.value_or(kUsualPeriod * 3), 1 / kUsualSilence);
    return std::clamp(fitting, kShortestUsualPeriod, kUsualPeriod);
  };
  const Duration beat = !period.empty()      ? duration_of("--heartbeat-period", period)
                        : goes_on_after_loss ? kWatchfulPeriod
                                             : usual();
  if (beat < kShortest) {
    throw ConfigError(ErrorContext{"<command line>", "--heartbeat-period", period,
                                   "at least " + to_string(kShortest)});
  }
  const bool is_usual = period.empty() && !goes_on_after_loss;
  const Duration silence = wanted.value_or(scaled(beat, is_usual ? kUsualSilence : kSilentPeriods));
  if (silence < scaled(beat, kFewestPeriods)) {
    throw ConfigError(ErrorContext{"<command line>", "--heartbeat-timeout", timeout,
                                   "at least twice the period of heartbeats, " + to_string(beat)});
  }
  return {.period = beat, .timeout = silence};
}

}  // namespace rackrail::cli
