// What a job's leader tells its workers besides the plan: JSON that the coordinator carries.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/ids.hpp"
#include "runtime/trainer/config.hpp"
#include "runtime/trainer/synchrony.hpp"

namespace rackrail::runtime {

/// What carries gradients between GPUs: NCCL, the transport, or NCCL inside hosts and the transport
/// between them (kHybrid). The transport takes them from pinned memory (kStaged) or from the GPU's
/// own (kDirect); where it is not said which, from the GPU's wherever it can. kAuto is NCCL where
/// all ranks have it, else the transport.
enum class GpuPath : std::uint8_t { kAuto, kNccl, kStaged, kHybrid, kDirect };

/// Of a job that computes on GPUs.
struct GpuSettings {
  bool shares = false;  ///< several ranks may have one GPU
  GpuPath path = GpuPath::kAuto;
  /// Ranks of one host, as NCCL is to see them; empty: by the names of the hosts.
  std::vector<std::vector<Rank>> hosts;
};

struct JobSettings {
  std::string training;                     ///< text of the training configuration
  std::filesystem::path training_file;      ///< absolute: workers may run in another folder
  std::optional<std::int64_t> steps;        ///< instead of what the text says
  std::optional<std::uint64_t> seed;        ///< likewise
  std::filesystem::path checkpoint_folder;  ///< absolute; empty: no checkpoints
  std::filesystem::path restore;            ///< checkpoint to resume from; empty: from the start
  std::optional<std::uint32_t> timeline_step;
  bool outlives_coordinator = false;  ///< wait for it to be restarted when it is lost
  bool survives_losses = false;       ///< keep what is needed to go on without a lost worker
  std::optional<GpuSettings> gpu;     ///< none: compute on the host
  bool measures_steps = false;        ///< say what each step took, and be ready for another plan
  /// Samples of the whole training, also by a plan with another batch; none: by its steps.
  std::optional<std::int64_t> samples;
  trainer::Synchrony synchrony;
};

std::string to_json(const JobSettings& settings);
/// Throws RuntimeFailure when the text is not what to_json writes.
JobSettings parse_job_settings(const std::string& json);

/// The configuration that the settings stand for. Throws ConfigError.
trainer::TrainingConfig training_config(const JobSettings& settings);

}  // namespace rackrail::runtime
