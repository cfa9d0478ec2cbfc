#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "base/error.hpp"
#include "cli/commands.hpp"
#include "cli/session.hpp"
#include "plan/format.hpp"
#include "runtime/launch/collective_job.hpp"

namespace rackrail::cli {

void add_collectives_command(CLI::App& app, Session& session) {
  // Started by `rackrail validate`, once per rank, not by people: not shown in --help.
  CLI::App* command =
      app.add_subcommand("collectives", "Times a plan's buckets as one rank (started by validate)");
  command->group("");
  const auto plan = std::make_shared<std::string>();
  command->add_option("plan", *plan, "Plan file")->required();
  command->callback([&session, plan] {
    session.command = "collectives";
    const auto launch = runtime::detect_launch(runtime::process_environment());
    if (!launch) {
      throw ConfigError(ErrorContext{"<environment>", "RACKRAIL_RANK", "no launcher",
                                     "a rank of a job that validate started"});
    }
    const auto times = runtime::run_collectives(plan::load_plan(*plan), *launch, {});
    if (times) {
      nlohmann::json seconds = nlohmann::json::array();
      for (const Duration time : *times) {
        seconds.push_back(time.seconds());
      }
      fmt::print("{}\n", nlohmann::json{{"times_s", seconds}}.dump());
    }
  });
}

}  // namespace rackrail::cli
