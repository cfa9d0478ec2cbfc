// The subcommands. Each file <name>_command.cpp adds one to the application: its options, its help
// with an example, and a callback that runs it and leaves an exit status in the session.
#pragma once

namespace CLI {
class App;
}

namespace rackrail::cli {

class Session;

void add_info_command(CLI::App& app, Session& session);
void add_topology_command(CLI::App& app, Session& session);
void add_schedules_command(CLI::App& app, Session& session);
void add_plan_command(CLI::App& app, Session& session);
void add_place_command(CLI::App& app, Session& session);
void add_replan_command(CLI::App& app, Session& session);
void add_verify_command(CLI::App& app, Session& session);
void add_simulate_command(CLI::App& app, Session& session);
void add_sweep_command(CLI::App& app, Session& session);
void add_tune_command(CLI::App& app, Session& session);
void add_export_command(CLI::App& app, Session& session);
void add_tune_nccl_command(CLI::App& app, Session& session);
void add_explain_command(CLI::App& app, Session& session);
void add_calibrate_command(CLI::App& app, Session& session);
void add_train_command(CLI::App& app, Session& session);
void add_collectives_command(CLI::App& app, Session& session);
void add_emulate_command(CLI::App& app, Session& session);
void add_fit_command(CLI::App& app, Session& session);
void add_validate_command(CLI::App& app, Session& session);
void add_certificates_command(CLI::App& app, Session& session);
void add_job_command(CLI::App& app, Session& session);
void add_worker_command(CLI::App& app, Session& session);
void add_report_command(CLI::App& app, Session& session);

/// Adds --json and --seed, which every subcommand has.
void add_common_options(CLI::App& command, Session& session);

}  // namespace rackrail::cli
