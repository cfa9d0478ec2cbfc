#include "runtime/emulate/rank_commands.hpp"

#include "base/error.hpp"
#include "runtime/emulate/tools.hpp"

namespace rackrail::runtime::emulate {
namespace {

std::vector<Rank> all_ranks(const NetworkPlan& plan) {
  std::vector<Rank> ranks;
  for (std::size_t r = 0; r < plan.host_of_rank.size(); ++r) {
    ranks.emplace_back(r);
  }
  return ranks;
}

}  // namespace

std::string program_path(const std::string& name) {
  std::string path = find_program(name);
  if (path.empty()) {
    throw ConfigError(ErrorContext{.file = "<command line>",
                                   .where = "command",
                                   .found = "'" + name + "'",
                                   .expected = "a program that is there and can be run"});
  }
  return path;
}

RankCommandResult run_on_ranks(const EmulatedNetwork& network, const RankCommandOptions& options,
                               const InterruptGuard& interrupts) {
  ChildCommand command;
  command.words = options.words;
  command.environment = options.variables;
  const std::vector<Rank> ranks = options.ranks.empty() ? all_ranks(network.plan()) : options.ranks;
  RankCommandResult result;
  result.ends.resize(ranks.size());
  ChildProcesses children(
      [&](std::size_t child, std::string_view line) { options.on_line(Rank(child), line); });
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    ChildCommand placed = command;
    network.launch(placed, Rank(r), ranks, options.token);
    children.start(placed);
  }
  const auto take = [&](std::vector<ChildEnd> ends, bool may_fail) {
    for (ChildEnd& end : ends) {
      if (may_fail && !end.ok() && !result.failed) {
        result.failed = end;
      }
      result.ends[end.child] = std::move(end);
    }
  };
  constexpr Duration kLook = 200_ms;
  while (children.running() > 0 && !result.failed && interrupts.received() == 0) {
    take(children.wait_for(kLook, interrupts.file_descriptor()), interrupts.received() == 0);
  }
  take(children.terminate(options.stop_grace), false);
  return result;
}

}  // namespace rackrail::runtime::emulate
