// The file of --decisions: what a search looked at, as JSON lines.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "planner/request/options.hpp"

namespace rackrail::cli {

class DecisionFile {
 public:
  CLI::Option* add_to(CLI::App& command);
  /// Empty: nobody asked for it.
  const std::string& path() const { return path_; }
  /// Empty where nobody asked for the file.
  planner::DecisionLog log();
  /// Throws ConfigError where it cannot be written.
  void write() const;

 private:
  std::string path_;
  std::string lines_;
};

}  // namespace rackrail::cli
