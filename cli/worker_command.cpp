#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <string>

#include "cli/commands.hpp"
#include "cli/session.hpp"
#include "runtime/launch/worker.hpp"

namespace rackrail::cli {

void add_worker_command(CLI::App& app, Session& session) {
  // Started by `rackrail train`, not by people: not shown in --help.
  CLI::App* command = app.add_subcommand("worker", "One worker of a job (started by train)");
  command->group("");
  const auto coordinator = std::make_shared<std::string>();
  const auto rank = std::make_shared<int>(-1);
  command->add_option("--coordinator", *coordinator, "host:port of the coordinator")->required();
  command->add_option("--rank", *rank, "Rank of this worker; given by the coordinator by default")
      ->check(CLI::NonNegativeNumber);
  const auto outlives = std::make_shared<bool>(false);
  command->add_flag("--outlives-coordinator", *outlives,
                    "Go on without the process that started it");
  command->callback([&session, coordinator, rank, outlives] {
    session.command = "worker";
    runtime::WorkerOptions options;
    options.coordinator = runtime::parse_host_port(*coordinator, "--coordinator");
    if (*rank >= 0) {
      options.rank = Rank(*rank);
    }
    options.die_with_parent = !*outlives;
    const runtime::WorkerResult result = runtime::run_worker(options);
    if (!result.ok && !result.leader_knows) {
      fmt::print(stderr, "{}\n", result.reason);
    }
    session.status = result.exit_status;
  });
}

}  // namespace rackrail::cli
