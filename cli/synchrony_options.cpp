#include "cli/synchrony_options.hpp"

#include <CLI/CLI.hpp>

#include "base/error.hpp"

namespace rackrail::cli {

namespace {

constexpr int kMostStaleness = 1'000'000;
constexpr int kMostLocalSteps = 1'000'000;

[[noreturn]] void refuse(const std::string& option, const std::string& found,
                         const std::string& expected) {
  throw ConfigError(ErrorContext{"<command line>", option, found, expected});
}

}  // namespace

void SynchronyOptions::add_to(CLI::App& command) {
  command
      .add_option("--mode", mode,
                  "sync: gradients are summed in every step. async: a parameter server applies "
                  "each worker's gradient when it arrives; needs a plan made with --schedule "
                  "parameter-server --codec none")
      ->check(CLI::IsMember({"sync", "async"}))
      ->capture_default_str();
  staleness_option_ = command
                          .add_option("--staleness", staleness,
                                      "With --mode async: steps that a worker may be ahead of the "
                                      "slowest one. 0 is synchronous training")
                          ->check(CLI::Range(0, kMostStaleness))
                          ->capture_default_str();
  command
      .add_option("--local-steps", local_steps,
                  "Average parameters every so many steps instead of summing gradients in each")
      ->check(CLI::Range(1, kMostLocalSteps));
}

void SynchronyOptions::require_consistent(const std::string& measuring) const {
  const bool is_asynchronous = mode == "async";
  if (staleness_option_->count() > 0 && !is_asynchronous) {
    refuse("--staleness", "beside --mode sync", "--mode async beside it");
  }
  if (local_steps > 0 && is_asynchronous) {
    refuse("--local-steps", "beside --mode async", "one of them");
  }
  if (!measuring.empty() && !synchrony().is_synchronous()) {
    refuse(measuring, is_asynchronous ? "beside --mode async" : "beside --local-steps",
           "synchronous training, whose steps all workers have in common, to measure them");
  }
}

trainer::Synchrony SynchronyOptions::synchrony() const {
  trainer::Synchrony result;
  if (local_steps > 0) {
    result.local_steps = local_steps;
  }
  if (mode == "async") {
    result.staleness = staleness;
  }
  return result;
}

}  // namespace rackrail::cli
