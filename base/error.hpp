// The errors of rackrail: a small tree of exceptions for broken preconditions and environments.
//
// Expected outcomes (infeasible, no such path, peer lost) are result types of the functions that
// have them. These exceptions are for errors that the caller cannot recover from. A library throws
// and never prints; `cli/` turns an Error into one line (or JSON) and an exit status.
#pragma once

#include <stdexcept>
#include <string>

namespace rackrail {

/// What went wrong in an input, in parts that a program can read. Empty parts are unknown.
struct ErrorContext {
  std::string file;      ///< file (or "<command line>") that the input came from
  std::string where;     ///< line ("line 12"), field ("racks[0].hosts") or element within the file
  std::string found;     ///< what was there
  std::string expected;  ///< what would have been accepted
};

/// Root of all errors that rackrail throws. `what()` is one line without a trailing newline.
class Error : public std::runtime_error {
 public:
  explicit Error(const std::string& message) : std::runtime_error(message) {}
  Error(const std::string& message, ErrorContext context);

  const ErrorContext& context() const noexcept { return context_; }
  /// True where the user's input is at fault (exit status 2), false for a broken environment (1).
  virtual bool is_bad_input() const noexcept { return false; }

 private:
  ErrorContext context_;
};

/// A file, option or value that cannot be read as what it should be: exit status 2.
class ConfigError : public Error {
 public:
  explicit ConfigError(const std::string& message) : Error(message) {}
  /// Builds the line "file:where: found F, expected E" out of the parts.
  explicit ConfigError(const ErrorContext& context);
  bool is_bad_input() const noexcept override { return true; }
};

/// A plan that is wrong, or made for something else than it is used on: exit status 2.
class PlanError : public Error {
 public:
  explicit PlanError(const std::string& message) : Error(message) {}
  explicit PlanError(const ErrorContext& context);
  bool is_bad_input() const noexcept override { return true; }
};

/// Arithmetic on quantities that left their range (for example a duration above 106 days).
class OverflowError : public Error {
 public:
  using Error::Error;
};

/// A simulation that can never end, or whose input contradicts itself.
class SimulationError : public Error {
 public:
  using Error::Error;
};

/// The runtime's environment failed: a transport, a coordinator, a process.
class RuntimeFailure : public Error {
 public:
  using Error::Error;
};

/// A worker of the job is gone; the collective in flight was aborted, nothing was half-applied.
class PeerLostError : public RuntimeFailure {
 public:
  using RuntimeFailure::RuntimeFailure;
};

/// "file:where: found 'x', expected y" from whatever parts are known.
std::string describe(const ErrorContext& context);

}  // namespace rackrail
