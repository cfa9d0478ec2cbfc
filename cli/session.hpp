// One run of the command: what every subcommand shares. Global flags, the inputs that were read,
// the JSON envelope, and where text goes (results to stdout, progress and errors to stderr).
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "cli/progress.hpp"
#include "plan/workload.hpp"

namespace rackrail::cli {

/// Exit statuses: done; ran, but did not reach what was asked; bad input.
inline constexpr int kDone = 0;
inline constexpr int kNotMet = 1;
inline constexpr int kBadInput = 2;

class Session {
 public:
  bool json = false;                       ///< --json: one JSON object on stdout instead of tables
  std::uint64_t seed = 0;                  ///< --seed
  std::string command;                     ///< "plan", "topology bounds", …
  int status = kDone;                      ///< of the subcommand that ran
  plan::WorkloadOptions workload_options;  ///< --sequence and --dtype
  /// What follows the first "--" of `rackrail emulate`: a command of others, which is handed on as
  /// it stands.
  std::vector<std::string> foreign_words;

  /// Notes a file that the result depends on (with its SHA-256).
  void add_input(const std::filesystem::path& path);
  void add_inputs(std::span<const std::filesystem::path> paths);
  /// Notes a file that will be written; empty: none. Throws ConfigError when that would overwrite
  /// one of those inputs, or an output noted before.
  void add_output(const std::filesystem::path& path);

  /// Prints the result with the keys that every result has: rackrail, command, seed, inputs.
  void print_json(const nlohmann::json& result) const;
  nlohmann::json envelope() const;

  /// A line on stderr, unless --json keeps stderr for errors.
  void note(const std::string& line) const;
  /// Of long work, by the same rule.
  Elsewhere progress_elsewhere() const { return json ? Elsewhere::kNothing : Elsewhere::kLines; }

 private:
  std::map<std::string, std::string> inputs_;
  std::set<std::filesystem::path> outputs_;
};

/// Reports an exception as one line (or JSON) on stderr; returns the exit status it stands for.
int report_error(const std::exception& error, bool json);

}  // namespace rackrail::cli
