// The safetensors format: named tensors in one file, readable by other programs.
//
//   8 bytes   length N of the header, little-endian
//   N bytes   JSON: {"__metadata__": {text: text}, name: {"dtype", "shape", "data_offsets"}, …}
//   the rest  data of the tensors, little-endian, offsets from here on, without gaps
//
// Only the type F32 is written and read. The header is padded with blanks so that data starts at a
// multiple of 8. Source of the format: https://github.com/huggingface/safetensors.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace rackrail::trainer {

struct NamedTensor {
  std::string name;
  std::vector<std::int64_t> shape;
  std::span<const float> values;
};

using Metadata = std::map<std::string, std::string>;

/// The content of a file. Deterministic: the same tensors in the same order give the same bytes.
std::string encode_safetensors(std::span<const NamedTensor> tensors, const Metadata& metadata);

struct SafetensorsFile {
  struct Entry {
    std::string name;
    std::vector<std::int64_t> shape;
    std::vector<float> values;
  };
  Metadata metadata;
  std::vector<Entry> tensors;  ///< by their place in the file
};
/// Throws ConfigError with `file`, what was found and what was expected for anything that is not
/// wholly and exactly such a file; a file that was cut short is told by its size.
SafetensorsFile parse_safetensors(std::string_view content, const std::string& file);
/// The same without the values: metadata, names and shapes.
SafetensorsFile describe_safetensors(std::string_view content, const std::string& file);

}  // namespace rackrail::trainer
