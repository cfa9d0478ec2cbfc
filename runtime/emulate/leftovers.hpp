// What an emulation that was killed may have left, and how it is told from everything else.
//
// Namespaces and interfaces end with their owner (namespaces.hpp). Two things may stay:
//
//   * names, which begin with "rackrail-<pid>-" and are links that lead nowhere now;
//   * processes that the command started in turn, and which no signal of the kernel ends with their
//     parent. All of them inherited the variable RACKRAIL_EMULATION=<pid>:<start time> of the owner
//     in their environment. A process that cleared its environment is not found.
//
// The start time (of /proc/<pid>/stat, in ticks since boot) tells the owner from a later process
// with its id. What a live owner has is never touched.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <string>

namespace rackrail::runtime::emulate {

inline constexpr const char* kNamesFolder = "/run/netns";
inline constexpr const char* kNamePrefix = "rackrail-";
inline constexpr const char* kOwnerVariable = "RACKRAIL_EMULATION";

/// "<pid>:<start time>" of this process: the value of kOwnerVariable for what it starts.
std::string owner_mark();
/// "rackrail-<pid>-<station>" of this process; characters that a file name cannot have become "_".
std::string namespace_name(const std::string& station);

struct Leftovers {
  std::size_t names = 0;
  std::size_t processes = 0;
};
/// Removes the names and kills the processes of all emulations whose owner is gone.
Leftovers remove_leftovers();

/// Kills what this process's command has left running, and waits until it is gone (2 s at most).
/// Returns how many there were.
std::size_t kill_own_processes();

}  // namespace rackrail::runtime::emulate
