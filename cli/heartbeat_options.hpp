// The options of `train` that say how soon a silent worker is noticed.
#pragma once

#include <string>

#include "base/units.hpp"

namespace CLI {
class App;
}  // namespace CLI

namespace rackrail::cli {

/// How often workers say that they are there, and after what silence they are lost.
struct Heartbeats {
  Duration period;
  Duration timeout;
};

/// --heartbeat-period and --heartbeat-timeout.
struct HeartbeatOptions {
  /// Empty: 0.2 s where the job goes on after a loss, else 1 s, or a third of a shorter
  /// timeout, and 0.5 s at least.
  std::string period;
  std::string timeout;  ///< empty: six periods, three of the usual 1 s

  void add_to(CLI::App& command);
  /// Throws ConfigError, also where the timeout is shorter than two periods.
  Heartbeats heartbeats(bool goes_on_after_loss) const;
};

}  // namespace rackrail::cli
