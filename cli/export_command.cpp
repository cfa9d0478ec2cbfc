#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "base/file.hpp"
#include "cli/commands.hpp"
#include "cli/inputs.hpp"
#include "cli/progress.hpp"
#include "cli/session.hpp"
#include "export/exporter.hpp"

namespace rackrail::cli {

namespace {

struct ExportCommandOptions {
  std::string subject;  ///< a plan file or a cluster
  std::string kind;
  std::string output;
  std::string workload;
  std::string parameters;
  ClusterOptions cluster;
};

/// Where each file goes: the only one to the path that was named, unless that is a folder.
std::vector<std::filesystem::path> places(const std::vector<exporting::ExportedFile>& files,
                                          const std::string& output) {
  std::error_code status;
  if (files.size() == 1 && !std::filesystem::is_directory(output, status) &&
      !output.ends_with('/')) {
    return {output};
  }
  std::vector<std::filesystem::path> paths;
  for (const exporting::ExportedFile& file : files) {
    paths.push_back(std::filesystem::path(output) / file.name);
  }
  return paths;
}

void write_files(Session& session, const ExportCommandOptions& options,
                 const std::vector<exporting::ExportedFile>& files) {
  if (options.output.empty()) {
    if (files.size() > 1 || session.json) {
      throw ConfigError(ErrorContext{
          "<command line>", "-o", "no place",
          files.size() > 1 ? "a folder: these are several files" : "a file, beside --json"});
    }
    fmt::print("{}", files.front().content);
    return;
  }
  const std::vector<std::filesystem::path> paths = places(files, options.output);
  nlohmann::json names = nlohmann::json::array();
  for (const std::filesystem::path& path : paths) {
    session.add_output(path);
    require_place(path);
    names.push_back(path.string());
  }
  for (std::size_t i = 0; i < files.size(); ++i) {
    write_file_atomically(paths[i], files[i].content);
  }
  if (session.json) {
    session.print_json({{"kind", options.kind}, {"files", names}});
  } else {
    for (const std::filesystem::path& path : paths) {
      fmt::print("wrote {}\n", path.string());
    }
  }
}

void run_export(Session& session, const ExportCommandOptions& options) {
  const exporting::Exporter& exporter = exporting::exporter_of(options.kind);
  std::optional<PlanInput> input;
  std::optional<topology::Topology> alone;
  // What does not exist is refused with the names of clusters that do.
  if (is_cluster(options.subject) || !std::filesystem::exists(options.subject)) {
    ClusterOptions cluster = options.cluster;
    if (!cluster.cluster.empty()) {
      throw ConfigError(
          ErrorContext{"<command line>", "--cluster", cluster.cluster,
                       "it beside a plan only: '" + options.subject + "' is a cluster itself"});
    }
    cluster.cluster = options.subject;
    alone = cluster.load(session);
  } else {
    input = load_plan_input(session, options.subject, options.cluster, options.workload);
  }
  exporting::ExportOptions chosen;
  chosen.nccl = load_nccl_parameters(session, options.parameters);
  ProgressBar bar("exporting", session.progress_elsewhere());
  chosen.progress = [&bar](double share) { bar.update(share); };
  const exporting::Subject subject{input ? input->cluster : *alone, input ? &input->plan : nullptr,
                                   input ? &input->workload : nullptr};
  const std::vector<exporting::ExportedFile> files =
      named(options.subject, "", [&] { return exporter.write(subject, chosen); });
  bar.clear();
  write_files(session, options, files);
}

}  // namespace

void add_export_command(CLI::App& app, Session& session) {
  CLI::App* command =
      app.add_subcommand("export", "Write a plan or a cluster as files that other programs read");
  add_common_options(*command, session);
  const auto options = std::make_shared<ExportCommandOptions>();
  std::string kinds;
  for (const std::unique_ptr<exporting::Exporter>& one : exporting::exporters()) {
    kinds += fmt::format("\n  {:<20} {}", one->kind(), one->what());
  }
  command->add_option("subject", options->subject, "Plan file, or a cluster: file or name")
      ->required();
  command->add_option("--to", options->kind, "Kind of file, see below")->required();
  command->add_option("-o,--output", options->output,
                      "File to write, or folder where there are several. Default: standard output");
  command->add_option("--cluster", options->cluster.cluster,
                      "Cluster of the plan, where it is not a shipped one");
  command->add_option("--workload", options->workload,
                      "Model of the plan, where it is not a shipped one");
  options->cluster.add_to(*command);
  command->add_option("--parameters", options->parameters,
                      "Constants of the NCCL model: a file, or the name of shipped ones");
  command->footer("Kinds:" + kinds +
                  "\nExample: rackrail export a100-8x8 --to nccl-tuner -o rackrail-tuner.csv");
  command->callback([&session, options] {
    session.command = "export";
    run_export(session, *options);
  });
}

}  // namespace rackrail::cli
