#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/build_config.hpp"
#include "base/error.hpp"
#include "base/file.hpp"
#include "cli/commands.hpp"
#include "cli/debug_log_text.hpp"
#include "cli/session.hpp"
#include "cli/table.hpp"
#include "plan/codec.hpp"
#include "plan/codec_errors.hpp"
#include "plan/codec_name.hpp"
#include "plan/workload.hpp"
#include "planner/algorithms/schedule_family.hpp"
#include "runtime/cuda/factory.hpp"
#include "runtime/cuda/training.hpp"
#include "runtime/nccl/library.hpp"
#include "runtime/transport.hpp"
#include "sim/measured/debug_log.hpp"
#include "topology/reader.hpp"

namespace rackrail::cli {

namespace {

struct Feature {
  std::string name;
  bool available = false;
  std::string detail;  ///< version, or why it is missing
};

/// Not loaded where it is of no use: it is large.
Feature cublas_feature(const runtime::CudaStatus& cuda) {
  if (cuda.unavailable) {
    return {"library: cuBLAS", false, "not looked for, since there is no GPU"};
  }
  const runtime::CublasStatus cublas = runtime::cublas_status();
  return {"library: cuBLAS", !cublas.unavailable.has_value(),
          cublas.unavailable.value_or(cublas.detail)};
}

/// What 'rackrail train --device cuda' moves gradients with unless it is told.
Feature gpu_path_feature(const runtime::CudaStatus& cuda, const runtime::NcclStatus& nccl) {
  const std::string name = "gradients of GPUs";
  if (cuda.unavailable) {
    return {name, false, *cuda.unavailable};
  }
  const bool has_nccl = !nccl.unavailable.has_value();
  return {name, true,
          has_nccl ? "by NCCL " + nccl.detail : "over a transport: " + *nccl.unavailable};
}

/// Whether what goes over the transport has to be staged.
Feature staging_feature(const runtime::CudaStatus& cuda,
                        const std::vector<runtime::TransportKind>& transports) {
  if (cuda.has_mps) {
    return {"messages of GPUs", false, "staged through pinned memory: the GPU is shared by MPS"};
  }
  std::string reasons;
  for (const runtime::TransportKind& kind : transports) {
    if (!kind.unavailable && !kind.no_device_memory) {
      return {"messages of GPUs", true, "directly, by " + kind.name};
    }
    const std::string reason = kind.unavailable.value_or(kind.no_device_memory.value_or(""));
    if (kind.name != "in-process") {
      reasons += (reasons.empty() ? "" : "; ") + kind.name + ": " + reason;
    }
  }
  return {"messages of GPUs", false, "staged through pinned memory: " + reasons};
}

std::vector<Feature> features() {
  namespace b = build_config;
  const auto made = [](std::string name, bool have, std::string_view version,
                       std::string_view reason) {
    return Feature{std::move(name), have, std::string(have ? version : reason)};
  };
  std::vector<Feature> list = {
      made("build: UCX", b::kHaveUcx, b::kUcxVersion, b::kUcxMissingReason),
      made("build: CUDA", b::kHaveCuda, b::kCudaVersion, b::kCudaMissingReason),
      made("build: NCCL", b::kHaveNccl, b::kNcclVersion, b::kNcclMissingReason)};
  const runtime::CudaStatus cuda = runtime::cuda_status();
  list.push_back(
      {"device: CUDA", !cuda.unavailable.has_value(), cuda.unavailable.value_or(cuda.detail)});
  const runtime::NcclStatus& nccl = runtime::nccl_library().status;
  list.push_back(
      {"library: NCCL", !nccl.unavailable.has_value(), nccl.unavailable.value_or(nccl.detail)});
  list.push_back(cublas_feature(cuda));
  list.push_back(gpu_path_feature(cuda, nccl));
  const std::vector<runtime::TransportKind> transports = runtime::transport_kinds();
  list.push_back(staging_feature(cuda, transports));
  for (const runtime::TransportKind& kind : transports) {
    list.push_back({"transport: " + kind.name, !kind.unavailable.has_value(),
                    kind.unavailable.value_or(kind.detail)});
  }
  return list;
}

enum class NamesFor { kPeople, kPrograms };

std::vector<std::string> codec_names(NamesFor whom) {
  std::vector<std::string> names;
  for (const plan::Codec& codec : plan::all_codecs()) {
    names.push_back(whom == NamesFor::kPeople ? plan::display_name(codec) : plan::to_string(codec));
  }
  return names;
}

void run_info(Session& session) {
  const auto configs = topology::configs_folder();
  const std::vector<std::string> clusters = topology::shipped_clusters();
  const std::vector<std::string> models = plan::shipped_workloads(configs);
  std::vector<std::string> schedules;
  for (const auto& family : planner::schedule_families()) {
    schedules.emplace_back(family->name());
  }
  std::vector<std::string> errors;
  nlohmann::json error_list = nlohmann::json::array();
  for (const plan::Codec& codec : plan::all_codecs()) {
    if (codec.is_lossy()) {
      const plan::CodecError error = plan::usual_error(codec);
      errors.push_back(fmt::format("{} {:.2g}{}", plan::display_name(codec), error.error,
                                   error.source == plan::ErrorSource::kTable ? "" : "*"));
      error_list.push_back({{"codec", plan::to_string(codec)},
                            {"error", error.error},
                            {"source", plan::to_string(error.source)}});
    }
  }
  if (session.json) {
    nlohmann::json list = nlohmann::json::array();
    for (const Feature& feature : features()) {
      list.push_back(
          {{"name", feature.name}, {"available", feature.available}, {"detail", feature.detail}});
    }
    session.print_json({{"compiler", build_config::kCompiler},
                        {"build_type", build_config::kBuildType},
                        {"revision", build_config::kGitRevision},
                        {"cores", std::thread::hardware_concurrency()},
                        {"features", list},
                        {"clusters", clusters},
                        {"models", models},
                        {"schedules", schedules},
                        {"codecs", codec_names(NamesFor::kPrograms)},
                        {"codec_errors", error_list},
                        {"configs", configs.string()}});
    return;
  }
  fmt::print("rackrail {} ({}, {}, revision {})\n", build_config::kVersion, build_config::kCompiler,
             build_config::kBuildType, build_config::kGitRevision);
  fmt::print("machine    {} cores\n\n", std::thread::hardware_concurrency());
  Table table({{"feature"}, {"here"}, {"detail"}});
  for (const Feature& feature : features()) {
    table.add_row({feature.name, feature.available ? "yes" : "no", feature.detail});
  }
  fmt::print("{}\n", table.to_string());
  fmt::print("schedules  {}\n", fmt::join(schedules, ", "));
  fmt::print("codecs     {}\n", fmt::join(codec_names(NamesFor::kPeople), ", "));
  fmt::print("errors     relative error of one encoding, {}: {} (* {})\n",
             plan::to_string(plan::ErrorSource::kTable), fmt::join(errors, ", "),
             plan::to_string(plan::ErrorSource::kFormula));
  fmt::print("clusters   {}\n", fmt::join(clusters, ", "));
  fmt::print("models     {}\n", fmt::join(models, ", "));
  fmt::print("configs    {}\n", configs.string());
}

void run_info_of_log(Session& session, const std::string& file) {
  const std::string content = read_file(file);
  if (!sim::measured::is_debug_log(content)) {
    throw ConfigError(ErrorContext{file, "", "no line with 'NCCL INFO'",
                                   "output of a program under NCCL_DEBUG=INFO"});
  }
  const sim::measured::DebugLog log = sim::measured::read_debug_log(content);
  session.add_input(file);
  if (session.json) {
    session.print_json(debug_log_json(log));
    return;
  }
  fmt::print("{}", debug_log_text(log));
  session.note(fmt::format("note: {} of {} lines of NCCL say other things",
                           log.lines - log.understood, log.lines));
}

}  // namespace

void add_info_command(CLI::App& app, Session& session) {
  CLI::App* command = app.add_subcommand(
      "info", "Show what this build and this machine can do, or what a debug log of NCCL says");
  add_common_options(*command, session);
  const auto log = std::make_shared<std::string>();
  command->add_option("log", *log,
                      "Output of a program under NCCL_DEBUG=INFO: show ranks, channels, network, "
                      "rings, trees and choices in it instead");
  command->footer("Example: rackrail info --json\n         rackrail info job.out");
  command->callback([&session, log] {
    session.command = "info";
    if (log->empty()) {
      run_info(session);
    } else {
      run_info_of_log(session, *log);
    }
  });
}

}  // namespace rackrail::cli
