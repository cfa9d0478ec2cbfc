#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/build_config.hpp"
#include "base/error.hpp"
#include "cli/commands.hpp"
#include "cli/inputs.hpp"
#include "cli/interrupt.hpp"
#include "cli/session.hpp"

namespace rackrail::cli {

void add_common_options(CLI::App& command, Session& session) {
  command.add_flag("--json", session.json,
                   "Print one JSON object instead of tables; stderr then has errors only");
  command
      .add_option("--seed", session.seed,
                  "Seed of all random numbers: the same seed gives the same result")
      ->check([](const std::string& text) {  // CLI11 takes -1 for the largest number
        return text.starts_with('-') ? "Value " + text + " is negative" : std::string();
      })
      ->capture_default_str();
}

namespace {

// CLI11 throws in the middle of parsing, so --json may not have been seen when an option is wrong.
bool asks_for_json(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--json") == 0) {
      return true;
    }
  }
  return false;
}

/// Processes that another command starts leave signals to it.
bool is_started_by_another(int argc, char** argv) {
  return argc > 1 &&
         (std::string_view(argv[1]) == "worker" || std::string_view(argv[1]) == "collectives");
}

// CLI11 takes [1,2] for two words, so the command that `emulate` runs is not given to it. Returns
// how many words are.
int cut_foreign_words(int argc, char** argv, Session& session) {
  if (argc < 2 || std::string_view(argv[1]) != "emulate") {
    return argc;
  }
  char** const end = argv + argc;
  char** const dashes = std::find(argv, end, std::string_view("--"));
  if (dashes != end) {
    session.foreign_words.assign(dashes + 1, end);
  }
  return static_cast<int>(dashes - argv);
}

/// Of an option: its type, its choices if there are a few, its default. Which options exclude each
/// other is said when they are used together.
class PlainHelp : public CLI::Formatter {
 public:
  std::string make_option_opts(const CLI::Option* option) const override {
    if (option->get_type_size() == 0) {
      return "";
    }
    const std::string type = option->get_type_name();
    const std::size_t colon = type.find(':');
    const bool has_choices = colon != std::string::npos && type.compare(colon, 2, ":{") == 0;
    std::string text = " " + (has_choices ? type.substr(colon + 1) : type.substr(0, colon));
    if (!option->get_default_str().empty()) {
      text += "=" + option->get_default_str();
    }
    return option->get_required() ? text + " REQUIRED" : text;
  }
};

struct Misuse {
  std::string message;
  std::string help;  ///< the command that says what is right: "rackrail topology --help"
};

/// Said of the innermost command among the words. CLI11 only says that a subcommand is required,
/// not that another word stands in its place.
Misuse misuse_of(const CLI::App& app, const CLI::ParseError& error) {
  const CLI::App* command = &app;
  std::string path;  // "topology "
  while (!command->get_subcommands().empty()) {
    command = command->get_subcommands().back();
    path += command->get_name() + " ";
  }
  Misuse misuse{error.what(), "rackrail " + path + "--help"};
  if (command->get_require_subcommand_min() == 0) {
    return misuse;
  }
  const std::vector<std::string> words = command->remaining();
  const auto word =
      std::ranges::find_if(words, [](const std::string& text) { return !text.starts_with('-'); });
  if (word != words.end()) {
    misuse.message = fmt::format("There is no command '{}{}'", path, *word);
  }
  if (command != &app) {
    std::string names;
    for (const CLI::App* one : command->get_subcommands([](const CLI::App*) { return true; })) {
      names += (names.empty() ? "" : ", ") + one->get_name();
    }
    misuse.message += "; there are " + names;
  }
  return misuse;
}

int run(int argc, char** argv) {
  Session session;
  argc = cut_foreign_words(argc, argv, session);
  CLI::App app(
      "rackrail plans how data-parallel training sends its gradients over your cluster's network.\n"
      "It shows by simulation what a plan gains, and trains with exactly that plan.",
      "rackrail");
  app.formatter(std::make_shared<PlainHelp>());
  app.set_version_flag("--version", fmt::format("rackrail {}", build_config::kVersion));
  app.require_subcommand(1);
  app.footer(
      "Start with: rackrail plan two-racks-40g bert-large\n"
      "Examples: rackrail topology show two-racks-40g      (look at a cluster)\n"
      "          rackrail plan two-racks-40g bert-large -o plan.json\n"
      "          rackrail simulate plan.json --trace step.json\n"
      "Long work shows its progress on stderr: a bar on a terminal, else a line every 10 s; with\n"
      "--json nothing. Ctrl-C ends a search with the best result so far; a second one ends at "
      "once.\n"
      "Exit status: 0 done; 1 a check failed or a limit was not met; 2 wrong input; 130 Ctrl-C");
  add_info_command(app, session);
  add_topology_command(app, session);
  add_schedules_command(app, session);
  add_plan_command(app, session);
  add_place_command(app, session);
  add_replan_command(app, session);
  add_verify_command(app, session);
  add_simulate_command(app, session);
  add_sweep_command(app, session);
  add_tune_command(app, session);
  add_explain_command(app, session);
  add_export_command(app, session);
  add_tune_nccl_command(app, session);
  add_calibrate_command(app, session);
  add_emulate_command(app, session);
  add_train_command(app, session);
  add_job_command(app, session);
  add_certificates_command(app, session);
  add_report_command(app, session);
  add_validate_command(app, session);
  add_fit_command(app, session);
  add_worker_command(app, session);
  add_collectives_command(app, session);
  add_workload_options(app, session);
  std::optional<InterruptHandler> interrupts;
  if (!is_started_by_another(argc, argv)) {
    interrupts.emplace(asks_for_json(argc, argv));
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& success) {  // --help and --version
    return app.exit(success);
  } catch (const CLI::ParseError& error) {
    session.json = session.json || asks_for_json(argc, argv);
    auto [message, help] = misuse_of(app, error);
    for (std::size_t at = 0; (at = message.find('\n', at)) != std::string::npos;) {
      message.replace(at, 1, " ");
    }
    report_error(Error("<command line>: " + message + " (see " + help + ")",
                       {"<command line>", "", message, "what " + help + " shows"}),
                 session.json);
    return kBadInput;
  } catch (const std::exception& error) {
    return report_error(error, session.json);
  }
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) {
    return report_error(Error("standard output could not be written whole"), session.json);
  }
  return session.status;
}

}  // namespace

}  // namespace rackrail::cli

int main(int argc, char** argv) { return rackrail::cli::run(argc, argv); }
