// manifest.json of a checkpoint and the information that a checkpoint carries about itself.
#pragma once

#include <optional>
#include <string>

#include "runtime/trainer/checkpoint.hpp"
#include "runtime/trainer/safetensors.hpp"

namespace rackrail::trainer {

std::string to_json(const CheckpointManifest& manifest);
/// Throws ConfigError that names `file`, the field, what was found and what was expected.
CheckpointManifest parse_manifest(const std::string& content, const std::string& file);

/// Of an optimiser that a checkpoint was made with, the first part that is not as `expected`, or
/// nothing: its key in the manifest, and both values as the manifest would have them.
struct OptimizerDifference {
  std::string key;
  std::string found;
  std::string expected;
};
std::optional<OptimizerDifference> optimizer_difference(const OptimizerInfo& found,
                                                        const OptimizerInfo& expected);

/// The same information as the model file carries it.
Metadata to_metadata(const CheckpointInfo& info);
CheckpointInfo parse_metadata(const Metadata& metadata, const std::string& file);

}  // namespace rackrail::trainer
