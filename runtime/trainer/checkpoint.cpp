#include "runtime/trainer/checkpoint.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <functional>
#include <iterator>
#include <map>
#include <numeric>
#include <utility>

#include "base/digest.hpp"
#include "base/error.hpp"
#include "base/file.hpp"
#include "runtime/trainer/manifest.hpp"
#include "runtime/trainer/safetensors.hpp"

namespace rackrail::trainer {
namespace {

namespace fs = std::filesystem;

constexpr Bytes kLargestTensors(std::int64_t{1} << 40U);  // 1 TiB
constexpr const char* kModelFile = "model.safetensors";
constexpr const char* kManifestFile = "manifest.json";
constexpr const char* kMomentumPrefix = "momentum.";
constexpr std::string_view kStepPrefix = "step-";
constexpr std::string_view kPartialSuffix = ".partial";
constexpr std::string_view kReplacedSuffix = ".replaced";

std::string rank_file(std::size_t rank) { return "rank-" + std::to_string(rank) + ".safetensors"; }

std::string folder_name(std::int64_t step) {
  char digits[32];
  std::snprintf(digits, sizeof digits, "%08lld", static_cast<long long>(step));
  return std::string(kStepPrefix) + digits;
}

fs::path partial_folder(const fs::path& folder, std::int64_t step) {
  return folder / (folder_name(step) + std::string(kPartialSuffix));
}

/// The step in a folder's name "step-<digits><suffix>".
std::optional<std::int64_t> step_of(std::string_view name, std::string_view suffix) {
  if (!name.starts_with(kStepPrefix) || !name.ends_with(suffix)) {
    return std::nullopt;
  }
  name.remove_prefix(kStepPrefix.size());
  name.remove_suffix(suffix.size());
  std::int64_t step = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), step);
  if (error != std::errc{} || end != name.data() + name.size() || name.front() == '-') {
    return std::nullopt;
  }
  return step;
}

/// Folders "step-…<suffix>" by step.
std::map<std::int64_t, fs::path> step_folders(const fs::path& folder, std::string_view suffix) {
  std::map<std::int64_t, fs::path> found;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    if (const auto step = step_of(entry.path().filename().string(), suffix)) {
      found.emplace(*step, entry.path());
    }
  }
  return found;
}

[[noreturn]] void reject(const fs::path& path, std::string where, std::string found,
                         std::string expected) {
  throw ConfigError(
      ErrorContext{path.string(), std::move(where), std::move(found), std::move(expected)});
}

/// Content of a file that must be as described; size first, because that says more than a digest.
std::string read_checked(const fs::path& folder, const CheckpointFile& file) {
  const fs::path path = folder / file.name;
  std::error_code error;
  const std::uintmax_t size = fs::file_size(path, error);
  if (error) {
    reject(path, "", error.message(), std::to_string(file.bytes) + " bytes");
  }
  if (size != static_cast<std::uintmax_t>(file.bytes)) {
    reject(path, "size", std::to_string(size) + " bytes", std::to_string(file.bytes) + " bytes");
  }
  std::string content = read_file(path, kLargestTensors);
  if (const std::string digest = sha256_hex(content); digest != file.sha256) {
    reject(path, "sha256", digest, file.sha256);
  }
  return content;
}

/// Makes the names in a folder last through a power cut. Not every file system can; then the next
/// start finds the checkpoint before this one.
void flush_folder(const fs::path& folder) {
  const int descriptor = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor >= 0) {
    ::fsync(descriptor);
    ::close(descriptor);
  }
}

void stage_tensors(const fs::path& folder, const std::string& name,
                   std::span<const NamedTensor> tensors, const Metadata& metadata,
                   StagedShards& staged) {
  const std::string content = encode_safetensors(tensors, metadata);
  staged.add(StagedFile(folder / name, content),
             {name, static_cast<std::int64_t>(content.size()), sha256_hex(content)});
}

void stage_model(const fs::path& folder, const TrainingState& state, StagedShards& staged) {
  std::vector<NamedTensor> tensors;
  for (const auto& [prefix, arena] :
       {std::pair{"", state.parameters}, std::pair{kMomentumPrefix, state.momentum}}) {
    for (const ParameterTensor& tensor : state.tensors) {
      tensors.push_back({prefix + tensor.name, tensor.shape,
                         arena.subspan(static_cast<std::size_t>(tensor.offset),
                                       static_cast<std::size_t>(tensor.elements))});
    }
  }
  stage_tensors(folder, kModelFile, tensors, to_metadata(state.info), staged);
}

/// The manifest's files are those that a checkpoint of its world size has.
void require_all_files(const fs::path& place, const CheckpointManifest& manifest) {
  std::vector<std::string> expected{kModelFile};
  for (std::size_t r = 0; r < manifest.info.world_size; ++r) {
    expected.push_back(rank_file(r));
  }
  std::vector<std::string> found;
  for (const CheckpointFile& file : manifest.files) {
    found.push_back(file.name);
  }
  for (const std::string& name : expected) {
    if (std::ranges::count(found, name) != 1) {
      reject(place, "files", std::to_string(std::ranges::count(found, name)) + " times " + name,
             "once each " + std::string(kModelFile) + " and the files of " +
                 std::to_string(manifest.info.world_size) + " ranks");
    }
  }
  if (found.size() != expected.size()) {
    reject(place, "files", std::to_string(found.size()) + " files",
           std::to_string(expected.size()));
  }
}

StoredState stored_in(std::string name, std::span<const SafetensorsFile::Entry> arrays) {
  StoredState state{.file = std::move(name), .arrays = std::ssize(arrays)};
  for (const SafetensorsFile::Entry& entry : arrays) {
    state.elements += std::accumulate(entry.shape.begin(), entry.shape.end(), std::int64_t{1},
                                      std::multiplies<>());
  }
  return state;
}

std::string stored_text(const StoredState& state) {
  return std::to_string(state.arrays) + " arrays with " + std::to_string(state.elements) +
         " elements in " + state.file;
}

/// Where they are. Error feedback for each rank, or none at all, as older versions wrote it.
void require_all_states(const fs::path& place, const CheckpointManifest& manifest) {
  if (manifest.optimizer_state && manifest.optimizer_state->file != kModelFile) {
    reject(place, "optimizer_state.file", manifest.optimizer_state->file, kModelFile);
  }
  const std::vector<StoredState>& states = manifest.error_feedback;
  if (!states.empty() && states.size() != manifest.info.world_size) {
    reject(place, "error_feedback", std::to_string(states.size()) + " ranks",
           std::to_string(manifest.info.world_size));
  }
  for (std::size_t r = 0; r < states.size(); ++r) {
    if (states[r].file != rank_file(r)) {
      reject(place, "error_feedback[" + std::to_string(r) + "].file", states[r].file, rank_file(r));
    }
  }
}

void require_equal(const fs::path& checkpoint, const char* what, const std::string& found,
                   const std::string& expected) {
  constexpr std::size_t kShort = 12;
  if (!expected.empty() && found != expected) {
    reject(checkpoint, "", std::string("a checkpoint of ") + what + " " + found.substr(0, kShort),
           std::string(what) + " " + expected.substr(0, kShort));
  }
}

void require_state(const fs::path& manifest, const char* key, const StoredState& said,
                   const StoredState& there) {
  if (said.arrays != there.arrays || said.elements != there.elements) {
    reject(manifest, key, stored_text(said), stored_text(there) + ", as the file has it");
  }
}

/// Before the training's digest is compared, which would not say what is another.
void require_optimizer(const fs::path& manifest, const OptimizerInfo& found,
                       const OptimizerInfo& expected) {
  if (found.kind.empty() || expected.kind.empty()) {
    return;
  }
  if (const auto other = optimizer_difference(found, expected)) {
    reject(manifest, other->key, other->found, other->expected + ", as the training has it");
  }
}

/// Parameters and momentum out of the model file.
void read_model(const std::string& content, const std::string& file, LoadedCheckpoint& loaded) {
  SafetensorsFile parsed = parse_safetensors(content, file);
  const std::size_t count = parsed.tensors.size() / 2;
  for (std::size_t t = 0; t < parsed.tensors.size(); ++t) {
    SafetensorsFile::Entry& entry = parsed.tensors[t];
    if (t < count) {
      loaded.tensors.push_back({entry.name, entry.shape,
                                static_cast<std::int64_t>(loaded.parameters.size()),
                                static_cast<std::int64_t>(entry.values.size())});
    } else if (t - count >= count ||
               entry.name != kMomentumPrefix + loaded.tensors[t - count].name ||
               entry.shape != loaded.tensors[t - count].shape) {
      reject(file, "", "tensor " + entry.name, "parameters, then the momentum of each");
    }
    std::vector<float>& arena = t < count ? loaded.parameters : loaded.momentum;
    arena.insert(arena.end(), entry.values.begin(), entry.values.end());
  }
}

void remove_old(const fs::path& folder, std::int64_t step, std::size_t keep) {
  std::error_code ignored;  // what cannot be removed now is tried again after the next checkpoint
  for (const auto& [partial_step, path] : step_folders(folder, kPartialSuffix)) {
    if (partial_step < step) {
      fs::remove_all(path, ignored);
    }
  }
  for (const auto& [replaced_step, path] : step_folders(folder, kReplacedSuffix)) {
    fs::remove_all(path, ignored);
  }
  std::map<std::int64_t, fs::path> complete = step_folders(folder, "");
  // A later one belongs to a run that went further before it was set back to here.
  complete.erase(complete.upper_bound(step), complete.end());
  while (complete.size() > std::max<std::size_t>(keep, 1)) {
    fs::remove_all(complete.begin()->second, ignored);
    complete.erase(complete.begin());
  }
}

}  // namespace

void StagedShards::add(StagedFile content, CheckpointFile file) {
  contents_.push_back(std::move(content));
  files_.push_back(std::move(file));
}

std::vector<CheckpointFile> StagedShards::publish() {
  for (StagedFile& content : contents_) {
    content.publish();
  }
  return std::move(files_);
}

StagedShards stage_shards(const fs::path& folder, Rank self, const TrainingState& state) {
  const fs::path partial = partial_folder(folder, state.info.step);
  StagedShards staged;
  if (self == Rank(0)) {
    stage_model(partial, state, staged);
  }
  std::vector<NamedTensor> residuals;
  for (const auto& [name, values] : state.residuals) {
    residuals.push_back({name, {static_cast<std::int64_t>(values.size())}, values});
  }
  stage_tensors(partial, rank_file(self.index()), residuals, to_metadata(state.info), staged);
  return staged;
}

std::vector<CheckpointFile> write_shards(const fs::path& folder, Rank self,
                                         const TrainingState& state) {
  return stage_shards(folder, self, state).publish();
}

fs::path commit_checkpoint(const fs::path& folder, std::int64_t step,
                           std::vector<CheckpointFile> files, std::size_t keep) {
  const fs::path partial = partial_folder(folder, step);
  std::ranges::sort(files, {}, &CheckpointFile::name);
  CheckpointManifest manifest;
  std::map<std::string, StoredState> states;
  bool has_model = false;
  for (const CheckpointFile& file : files) {
    const std::string content = read_checked(partial, file);
    const std::string name = (partial / file.name).string();
    const SafetensorsFile described = describe_safetensors(content, name);
    if (file.name == kModelFile) {
      manifest.info = parse_metadata(described.metadata, name);
      const std::span tensors(described.tensors);  // parameters, then the momentum of each
      manifest.optimizer_state = stored_in(file.name, tensors.subspan(tensors.size() / 2));
      has_model = true;
    } else {
      states.emplace(file.name, stored_in(file.name, described.tensors));
    }
  }
  if (!has_model) {
    reject(partial, "files", "no model.safetensors", "the file that rank 0 writes");
  }
  if (manifest.info.step != step) {
    reject(partial / kModelFile, "__metadata__.step", std::to_string(manifest.info.step),
           std::to_string(step));
  }
  manifest.files = std::move(files);
  require_all_files(partial, manifest);
  for (std::size_t r = 0; r < manifest.info.world_size; ++r) {
    manifest.error_feedback.push_back(states.at(rank_file(r)));
  }
  write_file_atomically(partial / kManifestFile, to_json(manifest));
  flush_folder(partial);

  fs::path complete = folder / folder_name(step);
  const fs::path replaced = folder / (folder_name(step) + std::string(kReplacedSuffix));
  std::error_code error;
  fs::remove_all(replaced, error);
  if (fs::exists(complete, error)) {
    fs::rename(complete, replaced, error);
  }
  fs::rename(partial, complete, error);
  if (error) {
    reject(complete, "", error.message(), "a place that can be written");
  }
  flush_folder(folder);
  remove_old(folder, step, keep);
  return complete;
}

CheckpointManifest verify_checkpoint(const fs::path& checkpoint) {
  const fs::path path = checkpoint / kManifestFile;
  CheckpointManifest manifest = parse_manifest(read_file(path), path.string());
  require_all_files(path, manifest);
  require_all_states(path, manifest);
  for (const CheckpointFile& file : manifest.files) {
    read_checked(checkpoint, file);
  }
  return manifest;
}

FoundCheckpoint find_latest_valid(const fs::path& folder) {
  FoundCheckpoint found;
  for (const auto& [step, path] : step_folders(folder, kPartialSuffix)) {
    found.notes.push_back(path.string() + ": passed over: never completed");
  }
  const std::map<std::int64_t, fs::path> complete = step_folders(folder, "");
  for (auto entry = complete.rbegin(); entry != complete.rend(); ++entry) {
    try {
      verify_checkpoint(entry->second);
      found.path = entry->second;
      return found;
    } catch (const ConfigError& error) {
      found.notes.push_back(std::string("passed over: ") + error.what());
      if (!found.damaged) {
        found.damaged = error;
      }
    }
  }
  return found;
}

LoadedCheckpoint load_checkpoint(const fs::path& checkpoint, Rank self,
                                 const CheckpointExpectation& expected) {
  const CheckpointManifest manifest = verify_checkpoint(checkpoint);
  const CheckpointInfo& info = manifest.info;
  require_equal(checkpoint, "model", info.model_digest, expected.model_digest);
  require_optimizer(checkpoint / kManifestFile, info.optimizer, expected.optimizer);
  require_equal(checkpoint, "training", info.training_digest, expected.training_digest);
  require_equal(checkpoint, "plan", info.plan_digest, expected.plan_digest);

  LoadedCheckpoint loaded;
  loaded.info = info;
  const fs::path model = checkpoint / kModelFile;
  read_model(read_file(model, kLargestTensors), model.string(), loaded);
  if (manifest.optimizer_state) {
    require_state(checkpoint / kManifestFile, "optimizer_state", *manifest.optimizer_state,
                  {kModelFile, std::ssize(loaded.tensors), std::ssize(loaded.momentum)});
  }
  if (self.index() < info.world_size) {
    const fs::path path = checkpoint / rank_file(self.index());
    SafetensorsFile file = parse_safetensors(read_file(path, kLargestTensors), path.string());
    if (!manifest.error_feedback.empty()) {
      require_state(checkpoint / kManifestFile, "error_feedback",
                    manifest.error_feedback[self.index()],
                    stored_in(rank_file(self.index()), file.tensors));
    }
    for (SafetensorsFile::Entry& entry : file.tensors) {
      loaded.residuals.emplace(std::move(entry.name), std::move(entry.values));
    }
  }
  return loaded;
}

}  // namespace rackrail::trainer
