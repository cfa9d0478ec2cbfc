// A command, run once per rank in the host of the rank, or for some of the ranks.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.hpp"
#include "runtime/emulate/network.hpp"
#include "runtime/launch/signals.hpp"

namespace rackrail::runtime::emulate {

/// The path of the program that a command begins with, looked for in PATH where it has no slash.
/// Throws ConfigError.
std::string program_path(const std::string& name);

struct RankCommandOptions {
  std::vector<std::string> words;  ///< path of a program, and its arguments
  std::string token;               ///< of the job that the ranks are
  std::vector<Rank> ranks;         ///< of the network, by their number in the job; empty: all
  std::map<std::string, std::string> variables;  ///< of the ranks, beside the launcher's
  /// A line that a rank of the job wrote to stdout or stderr, without its end.
  std::function<void(Rank, std::string_view)> on_line;
  /// From SIGTERM to SIGKILL, when a rank failed or the user interrupted.
  Duration stop_grace = 3_s;
};

struct RankCommandResult {
  std::vector<std::optional<ChildEnd>> ends;  ///< by rank of the job
  /// The rank whose failure ended the others, and how it ended; none: all went well, or
  /// interrupted.
  std::optional<ChildEnd> failed;
};

/// Blocks until all have ended. The first that fails ends the others, and so does a signal that
/// `interrupts` received. Throws RuntimeFailure when the program cannot be started.
RankCommandResult run_on_ranks(const EmulatedNetwork& network, const RankCommandOptions& options,
                               const InterruptGuard& interrupts);

}  // namespace rackrail::runtime::emulate
