// Programs of the system: found, and run with the lines that they are to execute.
#pragma once

#include <string>

namespace rackrail::runtime::emulate {

/// The path of a program: `name` itself where it has a slash, else the first in PATH or in the
/// folders of system programs. Empty: there is none.
std::string find_program(const std::string& name);

/// Runs `ip -batch` or `tc -batch` with these lines in a network namespace (an open descriptor).
/// Throws RuntimeFailure with the line that failed and what the program said.
void run_batch(const std::string& program, const std::string& lines, int network_namespace);

}  // namespace rackrail::runtime::emulate
