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
      .add_option(
          "--mode", mode,
          "sync: the gradients of a step are summed before the next one; async: a parameter "
          "server that applies each worker's gradient when it comes, for a plan with "
          "--schedule parameter-server --codec none; with --on-loss workers also meet now and "
          "then, to go on from there")
      ->check(CLI::IsMember({"sync", "async"}))
      ->capture_default_str();
  staleness_option_ = command
                          .add_option("--staleness", staleness,
                                      "With --mode async: steps that a worker may be ahead of the "
                                      "slowest one; with 0 none is, which is synchronous training")
                          ->check(CLI::Range(0, kMostStaleness))
                          ->capture_default_str();
  command
      .add_option(
          "--local-steps", local_steps,
          "Periodic averaging: each worker takes this many steps by its own gradients, then "
          "the parameters become the mean of all workers'; momentum stays with each worker")
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
