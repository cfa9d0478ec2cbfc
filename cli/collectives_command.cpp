#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "base/error.hpp"
#include "cli/commands.hpp"
#include "cli/gpu_options.hpp"
#include "cli/session.hpp"
#include "plan/format.hpp"
#include "runtime/launch/collective_job.hpp"

namespace rackrail::cli {

void add_collectives_command(CLI::App& app, Session& session) {
  // Started by `rackrail validate`, once per rank, not by people: not shown in --help.
  CLI::App* command =
      app.add_subcommand("collectives", "Times a plan's buckets as one rank (started by validate)");
  command->group("");
  struct Options {
    std::string plan;
    GpuOptions gpu;
    bool is_led = false;
  };
  const auto options = std::make_shared<Options>();
  command->add_option("plan", options->plan, "Plan file")->required();
  options->gpu.add_to(*command);
  command->add_flag("--led", options->is_led, "The coordinator is validate's own");
  command->callback([&session, options] {
    session.command = "collectives";
    const auto launch = runtime::detect_launch(runtime::process_environment());
    if (!launch) {
      throw ConfigError(ErrorContext{"<environment>", "RACKRAIL_RANK", "no launcher",
                                     "a rank of a job that validate started"});
    }
    const plan::Plan plan = plan::load_plan(options->plan);
    // A line for each bucket as it comes: validate reads them.
    const auto say = [](BucketId bucket, Duration time) {
      fmt::print("{}\n",
                 nlohmann::json{{"bucket", bucket.value()}, {"time_s", time.seconds()}}.dump());
      std::fflush(stdout);
    };
    runtime::run_collectives(plan, *launch,
                             {.gpu = options->gpu.settings(each_alone(plan.rank_count())),
                              .on_measured = say,
                              .is_led = options->is_led});
  });
}

}  // namespace rackrail::cli
