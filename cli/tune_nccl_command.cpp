#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "base/file.hpp"
#include "base/parse_units.hpp"
#include "cli/commands.hpp"
#include "cli/inputs.hpp"
#include "cli/progress.hpp"
#include "cli/session.hpp"
#include "cli/table.hpp"
#include "export/nccl/tuner_page.hpp"
#include "export/nccl/tuner_tables.hpp"
#include "export/nccl/tuning.hpp"

namespace rackrail::cli {

namespace {

namespace tuner = exporting::nccl;

struct TuneNcclOptions {
  ClusterOptions cluster;
  std::string parameters;
  std::string folder;
};

/// The plugin of this build or installation; empty where there is none.
std::filesystem::path plugin_path() {
  std::error_code status;
  const std::filesystem::path executable = std::filesystem::read_symlink("/proc/self/exe", status);
  std::filesystem::path plugin = executable.parent_path().parent_path() / "lib" / tuner::kPlugin;
  return std::filesystem::exists(plugin, status) ? plugin : std::filesystem::path();
}

std::vector<std::pair<std::string, std::string>> files_of(
    const topology::Topology& cluster, const std::vector<tuner::ShapeTuning>& shapes) {
  const std::vector<tuner::TableRow> overriding = tuner::overriding_rows(shapes);
  const std::string& title = cluster.name();
  std::vector<std::pair<std::string, std::string>> files{
      {std::string(tuner::kPluginTable), tuner::to_nccl_csv(overriding, title, true)},
      {std::string(tuner::kExampleTable),
       tuner::to_nccl_csv(tuner::covering_rows(shapes), title, false)},
      {std::string(tuner::kNcclxTable), tuner::to_ncclx_csv(overriding, title)},
      {"README.md", tuner::tuner_page(cluster, shapes)}};
  if (const std::string table = tuner::rccl_table(cluster); !table.empty()) {
    files.emplace_back(table, tuner::to_nccl_csv(overriding, title, false));
  }
  return files;
}

std::vector<std::string> write_folder(Session& session, const std::string& folder,
                                      const topology::Topology& cluster,
                                      const std::vector<tuner::ShapeTuning>& shapes) {
  const std::filesystem::path place = folder;
  std::vector<std::string> written;
  for (const auto& [name, content] : files_of(cluster, shapes)) {
    write_file_atomically(place / name, content);
    written.push_back((place / name).string());
  }
  if (const std::filesystem::path plugin = plugin_path(); !plugin.empty()) {
    write_file_atomically(place / tuner::kPlugin, read_file(plugin));
    written.push_back((place / tuner::kPlugin).string());
  } else {
    session.note(
        fmt::format("note: no {} beside this command: the other tables need none", tuner::kPlugin));
  }
  return written;
}

nlohmann::json setting_json(const tuner::Setting& setting, Duration time) {
  nlohmann::json json = {{"algorithm", to_string(setting.algorithm)},
                         {"protocol", to_string(setting.protocol)},
                         {"channels", setting.channels},
                         {"time_s", time.seconds()}};
  if (setting.chunk > Bytes(0)) {
    json["chunk_bytes"] = setting.chunk.count();
  }
  return json;
}

nlohmann::json rows_json(const std::vector<tuner::ShapeTuning>& shapes) {
  nlohmann::json rows = nlohmann::json::array();
  for (const tuner::ShapeTuning& shape : shapes) {
    for (const tuner::SizeTuning& size : shape.sizes) {
      rows.push_back({{"collective", "all-reduce"},
                      {"bytes", size.size.count()},
                      {"nodes", shape.nodes},
                      {"ranks", shape.ranks()},
                      {"nccl", setting_json(size.usual, size.usual_time)},
                      {"chosen", setting_json(size.chosen, size.time)},
                      {"is_overridden", size.is_overridden()}});
    }
  }
  return rows;
}

void print_gains(const std::vector<tuner::ShapeTuning>& shapes) {
  Table table({{"GPUs"},
               {"all-reduce", Align::kRight},
               {"NCCL by itself"},
               {"time", Align::kRight},
               {"better"},
               {"time", Align::kRight},
               {"saved", Align::kRight}});
  for (const tuner::ShapeTuning& shape : shapes) {
    for (const tuner::SizeTuning& size : shape.sizes) {
      if (size.is_overridden()) {
        table.add_row({fmt::format("{} x {}", shape.nodes, shape.gpus_per_node),
                       to_string(size.size), tuner::to_text(size.usual), to_string(size.usual_time),
                       tuner::to_text(size.chosen), to_string(size.time),
                       fmt::format("{:.0f} %", 100 * size.gain())});
      }
    }
  }
  if (table.empty()) {
    fmt::print("NCCL's own choice is predicted to be within {:.0f} % of the best at every size.\n",
               100 * tuner::kWorthOverriding);
  } else {
    fmt::print("{}", table.to_string());
  }
}

void run_tune_nccl(Session& session, const TuneNcclOptions& options) {
  const topology::Topology cluster = options.cluster.load(session);
  const sim::nccl::Parameters parameters = load_nccl_parameters(session, options.parameters);
  if (!options.folder.empty()) {
    require_place(std::filesystem::path(options.folder) / tuner::kPluginTable);
  }
  ProgressBar bar("tuning", session.progress_elsewhere());
  const std::vector<tuner::ShapeTuning> shapes = named(options.cluster.cluster, "", [&] {
    return tuner::tune_all_reduces(cluster, parameters,
                                   [&bar](double share) { bar.update(share); });
  });
  bar.clear();
  std::vector<std::string> written;
  if (!options.folder.empty()) {
    written = write_folder(session, options.folder, cluster, shapes);
  }
  if (session.json) {
    session.print_json({{"rows", rows_json(shapes)}, {"files", written}});
    return;
  }
  print_gains(shapes);
  for (const std::string& file : written) {
    fmt::print("wrote {}\n", file);
  }
}

}  // namespace

void add_tune_nccl_command(CLI::App& app, Session& session) {
  CLI::App* command = app.add_subcommand(
      "tune-nccl", "Compute which algorithm and protocol NCCL should use here, by size");
  add_common_options(*command, session);
  const auto options = std::make_shared<TuneNcclOptions>();
  command
      ->add_option("cluster", options->cluster.cluster, "Cluster: file, or name of a shipped one")
      ->required();
  options->cluster.add_to(*command);
  command->add_option("--parameters", options->parameters,
                      "Constants of the NCCL model: a file, or the name of shipped ones");
  command->add_option("-o,--output", options->folder,
                      "Folder for the tables, the plugin that reads them and a page that says how");
  command->footer(
      "All-reduces on 1, 2, 4 … and all hosts, from 1 KiB to 8 GiB. Nothing is measured.\n"
      "Example: rackrail tune-nccl h100-32x8-rail --parameters h100-nvswitch-ndr -o tuner");
  command->callback([&session, options] {
    session.command = "tune-nccl";
    run_tune_nccl(session, *options);
  });
}

}  // namespace rackrail::cli
