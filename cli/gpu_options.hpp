// The options of commands whose workers may compute on GPUs (runtime/launch/gpu_worker.hpp).
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "runtime/launch/job_settings.hpp"

namespace CLI {
class App;
}

namespace rackrail::cli {

/// --device, --share-gpu and --gpu-path.
struct GpuOptions {
  std::string device;  ///< empty: it follows from the others
  bool shares = false;
  std::string path;  ///< empty: auto

  /// Parsing throws ConfigError where the options contradict each other.
  void add_to(CLI::App& command);
  bool on_gpu() const { return device == "cuda" || (device.empty() && needs_gpu()); }
  /// `hosts`: ranks that NCCL is to see as one host. None for the CPU.
  std::optional<runtime::GpuSettings> settings(std::vector<std::vector<Rank>> hosts) const;
  /// The same options on another command line.
  std::vector<std::string> words() const;

 private:
  bool needs_gpu() const { return shares || !path.empty(); }
};

/// Each of these ranks as a host of its own.
std::vector<std::vector<Rank>> each_alone(std::size_t ranks);

}  // namespace rackrail::cli
