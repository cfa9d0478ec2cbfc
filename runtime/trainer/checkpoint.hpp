// Checkpoints: a folder per saved step, complete or absent, never half.
//
//   <folder>/step-00000120/model.safetensors    parameters and momentum, written by rank 0
//                          rank-<r>.safetensors  error-feedback residuals of each rank
//                          manifest.json         what it belongs to, the optimiser, what each
//                          rank's
//                                                file holds; size and SHA-256 of each file
//
// Life of one: every rank writes its files into `step-00000120.partial` (write_shards, or while it
// trains on checkpoint_writer.hpp) and tells the committing process their names, sizes and digests
// once they are on the disk. When all have come, that one checks the
// files against what it was told, adds the manifest and renames the folder (commit_checkpoint). A
// folder under its final name is therefore complete, and digests protect it from what happens to
// disks later. Files that an interrupted run left in a partial folder cannot slip in: they would
// have to match the digests that this run reported.
//
// The model file says in its metadata what it belongs to, so committing needs nothing but the step.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "base/file.hpp"
#include "base/ids.hpp"
#include "runtime/trainer/gradient_exchange.hpp"
#include "runtime/trainer/model.hpp"

namespace rackrail::trainer {

/// What updates the parameters. Its state is the momentum beside them in the model file.
struct OptimizerInfo {
  std::string kind;  ///< "sgd"; empty: not said, as in checkpoints of older versions
  double momentum = 0;
  double weight_decay = 0;
  std::optional<double> clip_norm;  ///< none: never clipped
  double base_learning_rate = 0;    ///< at `base_batch` samples in a step
  std::int64_t base_batch = 0;
  std::int64_t warmup_steps = 0;  ///< where the plan does not say
  std::string decay;              ///< of the learning rate: "constant" or "cosine"
};

/// What a checkpoint belongs to and where in the training it was made.
struct CheckpointInfo {
  std::int64_t step = 0;           ///< steps done
  std::int64_t position = 0;       ///< samples of the stream used by all ranks together
  std::int64_t epoch = 0;          ///< whole passes over the training set
  std::int64_t skipped_steps = 0;  ///< steps without an update because of a NaN or infinity
  std::uint64_t seed = 0;
  std::size_t world_size = 0;
  std::string plan_digest;      ///< plan::digest
  std::string model_digest;     ///< plan::Workload::digest: names and sizes of the tensors
  std::string training_digest;  ///< configuration and data
  OptimizerInfo optimizer;
};

/// The trainer's state between two steps; views die with the next step.
struct TrainingState {
  CheckpointInfo info;
  std::span<const ParameterTensor> tensors;
  std::span<const float> parameters;  ///< arena
  std::span<const float> momentum;    ///< laid out like the parameters
  Residuals residuals;                ///< of this rank
};

struct CheckpointFile {
  std::string name;  ///< within the folder
  std::int64_t bytes = 0;
  std::string sha256;
};

/// Files of one rank that are on the disk, but not under their names yet. If they are never
/// published, they are removed.
class StagedShards {
 public:
  void add(StagedFile content, CheckpointFile file);
  /// Gives them their names, once. Throws ConfigError.
  std::vector<CheckpointFile> publish();

 private:
  std::vector<StagedFile> contents_;
  std::vector<CheckpointFile> files_;
};

/// Writes the files of rank `self`: rank-<self>.safetensors, and model.safetensors if it is rank 0.
/// Throws ConfigError when the place cannot be written.
StagedShards stage_shards(const std::filesystem::path& folder, Rank self,
                          const TrainingState& state);
/// The same, under their names.
std::vector<CheckpointFile> write_shards(const std::filesystem::path& folder, Rank self,
                                         const TrainingState& state);

/// Completes the checkpoint of `step` out of `files`, which are those of all ranks, then removes
/// complete checkpoints of smaller steps but the `keep` − 1 latest, and partial folders of smaller
/// steps. Replaces a checkpoint of the same step. Throws ConfigError when a file is missing or
/// differs from what was reported; nothing else is changed then. Returns the folder.
std::filesystem::path commit_checkpoint(const std::filesystem::path& folder, std::int64_t step,
                                        std::vector<CheckpointFile> files, std::size_t keep = 5);

/// State beside the parameters that one of the files holds.
struct StoredState {
  std::string file;  ///< within the folder
  std::int64_t arrays = 0;
  std::int64_t elements = 0;  ///< of all of them together
};

struct CheckpointManifest {
  CheckpointInfo info;
  std::vector<CheckpointFile> files;
  // Checkpoints of older versions have neither.
  std::optional<StoredState> optimizer_state{};  ///< momentum, an array for each parameter
  /// By rank, an array for each place where something is encoded; or momentum that it alone has.
  std::vector<StoredState> error_feedback{};
};
/// Reads the manifest and checks presence, size and digest of every file. Throws ConfigError that
/// names the file, what was found and what was expected.
CheckpointManifest verify_checkpoint(const std::filesystem::path& checkpoint);

struct FoundCheckpoint {
  std::optional<std::filesystem::path> path;  ///< none: there is no valid one
  std::vector<std::string> notes;             ///< why later ones were passed over, one line each
  std::optional<ConfigError> damaged;         ///< what is wrong with the latest complete one
};
/// The valid checkpoint of the largest step. A missing folder has none.
FoundCheckpoint find_latest_valid(const std::filesystem::path& folder);

/// What the run that wants to go on is; an empty digest, or kind of optimiser, accepts any.
struct CheckpointExpectation {
  std::string model_digest;
  std::string plan_digest;
  std::string training_digest;
  OptimizerInfo optimizer{};
};

struct LoadedCheckpoint {
  CheckpointInfo info;
  std::vector<ParameterTensor> tensors;
  std::vector<float> parameters;
  std::vector<float> momentum;
  Residuals residuals;
};
/// Verifies, compares and reads the parts that rank `self` needs. A rank that did not exist when
/// the checkpoint was made starts without residuals. Throws ConfigError as above, and when the
/// checkpoint was made for another model, plan or training, by another optimiser, or its rank files
/// hold something else than its manifest says.
LoadedCheckpoint load_checkpoint(const std::filesystem::path& checkpoint, Rank self,
                                 const CheckpointExpectation& expected);

}  // namespace rackrail::trainer
