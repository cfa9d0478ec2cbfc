// The options of `train` that select how its ranks synchronise (runtime/trainer/synchrony.hpp).
#pragma once

#include <cstdint>
#include <string>

#include "runtime/trainer/synchrony.hpp"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace rackrail::cli {

/// Steps that workers may be apart, so that an uneven one holds up nobody.
inline constexpr std::int64_t kUsualStaleness = 4;

/// --mode, --staleness and --local-steps.
struct SynchronyOptions {
  std::string mode = "sync";
  std::int64_t staleness = kUsualStaleness;
  std::int64_t local_steps = 0;  ///< 0: not said

  void add_to(CLI::App& command);
  /// Throws ConfigError where they do not go together, or with what measures every step:
  /// `measuring` is that option, or empty.
  void require_consistent(const std::string& measuring) const;
  trainer::Synchrony synchrony() const;

 private:
  const CLI::Option* staleness_option_ = nullptr;
};

}  // namespace rackrail::cli
