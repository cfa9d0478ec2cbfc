#include "cli/gpu_options.hpp"

#include <CLI/CLI.hpp>
#include <map>
#include <utility>

#include "base/error.hpp"

namespace rackrail::cli {

namespace {

const std::map<std::string, runtime::GpuPath>& gpu_paths() {
  using runtime::GpuPath;
  static const std::map<std::string, GpuPath> kPaths{{"auto", GpuPath::kAuto},
                                                     {"nccl", GpuPath::kNccl},
                                                     {"staged", GpuPath::kStaged},
                                                     {"direct", GpuPath::kDirect},
                                                     {"hybrid", GpuPath::kHybrid}};
  return kPaths;
}

}  // namespace

void GpuOptions::add_to(CLI::App& command) {
  command
      .add_option("--device", device,
                  "Where workers compute and gradients lie: cpu (default), or cuda (with cuBLAS; "
                  "each worker a GPU of its host, in the order of the ranks), which the next two "
                  "options imply")
      ->check(CLI::IsMember({"cpu", "cuda"}));
  command.add_flag(
      "--share-gpu", shares,
      "Several workers may have one GPU: to try a plan out, not to be fast, as they take "
      "turns (less so where CUDA's MPS runs: nvidia-cuda-mps-control -d)");
  command
      .add_option(
          "--gpu-path", path,
          "What carries gradients between GPUs: nccl; direct, --transport, which reads and "
          "writes the GPU's memory itself (a UCX with CUDA); staged, --transport by way of "
          "pinned memory; hybrid, nccl inside hosts and --transport between them; or auto "
          "(default), nccl where all workers have it, else --transport. Where it is not said, "
          "messages are direct wherever they can, which is not under CUDA's MPS")
      ->check(CLI::IsMember({"auto", "nccl", "direct", "staged", "hybrid"}));
  command.parse_complete_callback([this] {
    if (device == "cpu" && needs_gpu()) {
      throw ConfigError(ErrorContext{.file = "<command line>",
                                     .where = "--device",
                                     .found = "cpu",
                                     .expected = "cuda, with --share-gpu or --gpu-path"});
    }
  });
}

std::optional<runtime::GpuSettings> GpuOptions::settings(
    std::vector<std::vector<Rank>> hosts) const {
  if (!on_gpu()) {
    return std::nullopt;
  }
  return runtime::GpuSettings{.shares = shares,
                              .path = gpu_paths().at(path.empty() ? "auto" : path),
                              .hosts = std::move(hosts)};
}

std::vector<std::vector<Rank>> each_alone(std::size_t ranks) {
  std::vector<std::vector<Rank>> hosts;
  for (std::size_t r = 0; r < ranks; ++r) {
    hosts.push_back({Rank(r)});
  }
  return hosts;
}

std::vector<std::string> GpuOptions::words() const {
  if (!on_gpu()) {
    return {};
  }
  std::vector<std::string> result{"--device", "cuda"};
  if (!path.empty()) {
    result.insert(result.end(), {"--gpu-path", path});
  }
  if (shares) {
    result.emplace_back("--share-gpu");
  }
  return result;
}

}  // namespace rackrail::cli
