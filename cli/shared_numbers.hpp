// Numbers that several commands share.
#pragma once

namespace rackrail::cli {

inline constexpr int kMostThreads = 4096;
/// Exit status of a command that signal N ended: this and N, as a shell has it.
inline constexpr int kSignalBase = 128;
inline constexpr double kPercent = 100;

}  // namespace rackrail::cli
