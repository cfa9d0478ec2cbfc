#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "base/parse_units.hpp"
#include "cli/commands.hpp"
#include "cli/insecure_flag.hpp"
#include "cli/session.hpp"
#include "cli/table.hpp"
#include "runtime/coordinator/host_port.hpp"
#include "runtime/coordinator/inquiry.hpp"
#include "runtime/coordinator/job_token.hpp"
#include "runtime/coordinator/tls.hpp"

namespace rackrail::cli {

namespace {

constexpr std::size_t kMostRows = 32;  // of rates, in the table

struct JobCommandOptions {
  std::string coordinator;
  std::string token_file;
};

runtime::Inquirer inquirer(const JobCommandOptions& options) {
  return {.coordinator = runtime::parse_host_port(options.coordinator, "coordinator"),
          .token = runtime::read_job_token(options.token_file),
          .token_source = options.token_file,
          .tls = runtime::tls_of_environment()};
}

std::string name_of(runtime::JobState state) {
  switch (state) {
    case runtime::JobState::kGathering:
      return "gathering";
    case runtime::JobState::kRunning:
      return "running";
    case runtime::JobState::kRegrouping:
      return "regrouping";
    case runtime::JobState::kFinished:
      return "finished";
    case runtime::JobState::kAborted:
      break;
  }
  return "aborted";
}

nlohmann::json json_of(const std::optional<Rank>& rank) {
  return rank ? nlohmann::json(rank->value()) : nlohmann::json();
}

nlohmann::json json_of(const std::optional<Duration>& time) {
  return time ? nlohmann::json(time->seconds()) : nlohmann::json();
}

nlohmann::json json_of(const runtime::JobStatus& status) {
  nlohmann::json members = nlohmann::json::array();
  for (const runtime::MemberStatus& member : status.members) {
    members.push_back({{"rank", json_of(member.rank)},
                       {"first_rank", json_of(member.seat)},
                       {"host", member.host},
                       {"pid", member.pid},
                       {"present", member.is_present},
                       {"last_heard_s", member.silence.seconds()},
                       {"step", member.progress.step},
                       {"step_time_s", member.progress.step_time.seconds()},
                       {"loss", member.progress.loss}});
  }
  nlohmann::json rates = nlohmann::json::array();
  for (const runtime::PairRate& one : status.rates) {
    rates.push_back({{"source", one.source.value()},
                     {"destination", one.destination.value()},
                     {"rate_Bps", one.rate.bytes_per_second()}});
  }
  return {{"state", name_of(status.state)},
          {"epoch", status.epoch},
          {"plan_digest", status.plan_digest},
          {"workers", status.progress.world_size},
          {"workers_here", status.progress.joined},
          {"step", status.progress.step},
          {"step_time_s", status.progress.step_time.seconds()},
          {"loss", status.progress.loss},
          {"members", members},
          {"rates", rates},
          {"rates_left_out", status.rates_left_out}};
}

std::string text_of(const std::optional<Rank>& rank) {
  return rank ? std::to_string(rank->value()) : "-";
}

std::string members_text(const runtime::JobStatus& status) {
  Table table({{"rank", Align::kRight},
               {"at first", Align::kRight},
               {"host"},
               {"pid", Align::kRight},
               {"last heard", Align::kRight},
               {"step", Align::kRight},
               {"step time", Align::kRight}});
  for (const runtime::MemberStatus& member : status.members) {
    table.add_row({text_of(member.rank), text_of(member.seat),
                   member.host.empty() ? "-" : member.host, std::to_string(member.pid),
                   member.is_present ? to_string(member.silence) + " ago" : "gone",
                   std::to_string(member.progress.step), to_string(member.progress.step_time)});
  }
  return table.empty() ? "" : "\n" + table.to_string();
}

std::string rates_text(const runtime::JobStatus& status) {
  if (status.rates.empty()) {
    return "";
  }
  Table table({{"from rank", Align::kRight}, {"to", Align::kRight}, {"rate", Align::kRight}});
  const std::size_t rows = std::min(kMostRows, status.rates.size());
  for (std::size_t i = 0; i < rows; ++i) {
    const runtime::PairRate& one = status.rates[i];
    table.add_row({std::to_string(one.source.value()), std::to_string(one.destination.value()),
                   to_string(one.rate)});
  }
  const std::size_t more = status.rates.size() - rows + status.rates_left_out;
  return "\n" + table.to_string() +
         (more > 0 ? fmt::format("and {} faster ones (--json has them)\n", more) : "");
}

void run_status(Session& session, const JobCommandOptions& options) {
  const runtime::JobStatus status = runtime::ask_for_status(inquirer(options));
  if (session.json) {
    session.print_json(json_of(status));
    return;
  }
  const runtime::JobProgress& progress = status.progress;
  fmt::print("{}, {} of {} workers are here, epoch {}, plan {}\n", name_of(status.state),
             progress.joined, progress.world_size, status.epoch, status.plan_digest.substr(0, 12));
  fmt::print("step {}, loss {:.4f}, {} per step\n", progress.step, progress.loss,
             to_string(progress.step_time));
  fmt::print("{}{}", members_text(status), rates_text(status));
}

void run_replan(Session& session, const JobCommandOptions& options) {
  const runtime::ReplanAnswer answer = runtime::ask_for_replan(inquirer(options));
  const bool is_new = answer.epoch != 0;
  if (session.json) {
    session.print_json({{"new_plan", is_new},
                        {"epoch", is_new ? nlohmann::json(answer.epoch) : nlohmann::json()},
                        {"reason", answer.reason},
                        {"plan_digest", answer.plan_digest},
                        {"kept_step_time_s", json_of(answer.kept_step_time)},
                        {"new_step_time_s", json_of(answer.new_step_time)}});
  } else if (is_new) {
    fmt::print("new plan {} from epoch {} on: {}\n", answer.plan_digest.substr(0, 12), answer.epoch,
               answer.reason);
  } else {
    fmt::print("no new plan: {}\n", answer.reason);
  }
  // That the plan in use is the best one is an answer; that nothing was weighed is not.
  session.status = is_new || answer.kept_step_time ? kDone : kNotMet;
}

}  // namespace

void add_job_command(CLI::App& app, Session& session) {
  CLI::App* group = app.add_subcommand("job", "Ask a running training job: status, replan");
  group->require_subcommand(1);
  group->footer("Example: rackrail job status 127.0.0.1:29500");
  const auto options = std::make_shared<JobCommandOptions>();

  const auto add = [&](const char* name, const char* help, const char* footer) {
    CLI::App* command = group->add_subcommand(name, help);
    add_common_options(*command, session);
    command
        ->add_option("coordinator", options->coordinator,
                     "host:port of the job's coordinator: what 'train --listen' prints, or rank 0 "
                     "of a launched job")
        ->required();
    command->add_option("--token-file", options->token_file,
                        "File with the job's secret. Default: RACKRAIL_JOB_TOKEN");
    add_insecure_flag(*command);
    command->footer(footer);
    return command;
  };

  add("status", "Show the job's step, plan, workers and measured link rates",
      "Link rates need train --on-slow or --on-noise.\nExample: rackrail job status "
      "127.0.0.1:29500 --json")
      ->callback([&session, options] {
        session.command = "job status";
        run_status(session, *options);
      });
  add("replan", "Make a new plan for the job's workers and for its network as measured",
      "The job takes the new plan if its step is predicted to be 3 % shorter. Start the job "
      "with\ntrain --on-loss continue or wait, --on-slow or --on-noise. Slow links and workers "
      "count if\n--on-slow found them.\nExample: rackrail job replan 127.0.0.1:29500")
      ->callback([&session, options] {
        session.command = "job replan";
        run_replan(session, *options);
      });
}

}  // namespace rackrail::cli
