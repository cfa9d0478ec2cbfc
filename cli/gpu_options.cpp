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
                  "Where workers compute: cpu (default), or cuda, with one GPU of the host per "
                  "worker. --share-gpu and --gpu-path imply cuda")
      ->check(CLI::IsMember({"cpu", "cuda"}));
  command.add_flag("--share-gpu", shares,
                   "Let several workers share one GPU, to try a plan out. They take turns unless "
                   "CUDA's MPS runs (nvidia-cuda-mps-control -d)");
  command
      .add_option("--gpu-path", path,
                  "How gradients travel between GPUs. nccl: NCCL. direct: --transport reads and "
                  "writes GPU memory (needs UCX with CUDA). staged: --transport through pinned "
                  "host memory. hybrid: NCCL inside hosts, --transport between them. auto "
                  "(default): nccl where all workers have it, else --transport")
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
