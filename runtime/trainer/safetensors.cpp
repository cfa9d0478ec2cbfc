#include "runtime/trainer/safetensors.hpp"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/error.hpp"

namespace rackrail::trainer {
namespace {

static_assert(std::endian::native == std::endian::little,
              "tensor data is copied as it lies in memory");

using SortedJson = nlohmann::json;  // ordered_json compares each name with all before

constexpr std::size_t kLengthBytes = 8;
/// The format's own limit, which keeps a damaged length from becoming an allocation.
constexpr std::uint64_t kLargestHeader = 100'000'000;
constexpr const char* kMetadataKey = "__metadata__";

class Parser {
 public:
  Parser(std::string_view content, const std::string& file, bool with_values)
      : content_(content), file_(file), with_values_(with_values) {}

  SafetensorsFile parse() {
    const SortedJson header = read_header();
    SafetensorsFile result;
    for (const auto& [name, value] : header.items()) {
      if (name == kMetadataKey) {
        read_metadata(value, result.metadata);
      } else {
        declare(name, value);
      }
    }
    // Of those that begin at one place all but the last are empty.
    std::ranges::stable_sort(
        declared_, {}, [](const Declared& tensor) { return std::pair(tensor.begin, tensor.end); });
    for (const Declared& tensor : declared_) {
      result.tensors.push_back(read(tensor));
    }
    if (data_.size() != next_) {
      reject("size", size_text(content_.size()), size_text(content_.size() - data_.size() + next_));
    }
    return result;
  }

 private:
  struct Declared {
    std::string name;
    std::vector<std::int64_t> shape;
    std::size_t elements = 0;
    std::size_t begin = 0;
    std::size_t end = 0;
  };

  [[noreturn]] void reject(std::string where, std::string found, std::string expected) const {
    throw ConfigError(ErrorContext{file_, std::move(where), std::move(found), std::move(expected)});
  }

  static std::string size_text(std::size_t bytes) { return std::to_string(bytes) + " bytes"; }

  SortedJson read_header() {
    std::uint64_t length = 0;
    if (content_.size() < kLengthBytes) {
      reject("size", size_text(content_.size()), "a safetensors file, at least 8 bytes");
    }
    std::memcpy(&length, content_.data(), kLengthBytes);
    if (length > kLargestHeader) {
      reject("header length", std::to_string(length), "at most " + std::to_string(kLargestHeader));
    }
    if (content_.size() - kLengthBytes < length) {
      reject("size", size_text(content_.size()),
             "at least " + size_text(kLengthBytes + length) + " for the header");
    }
    data_ = content_.substr(kLengthBytes + length);
    SortedJson header = SortedJson::parse(content_.substr(kLengthBytes, length), nullptr, false);
    if (!header.is_object()) {
      reject("header", "text that is no JSON object", "the names of tensors");
    }
    return header;
  }

  void read_metadata(const SortedJson& value, Metadata& into) const {
    if (!value.is_object()) {
      reject(kMetadataKey, value.type_name(), "an object of strings");
    }
    for (const auto& [key, text] : value.items()) {
      if (!text.is_string()) {
        reject(std::string(kMetadataKey) + "." + key, text.type_name(), "a string");
      }
      into[key] = text.get<std::string>();
    }
  }

  static bool is_list_of_sizes(const SortedJson& value) {
    constexpr std::uint64_t kMost = std::numeric_limits<std::int64_t>::max();
    return value.is_array() && std::ranges::all_of(value, [](const SortedJson& n) {
             return n.is_number_unsigned() && n.get<std::uint64_t>() <= kMost;
           });
  }

  /// As it stands there, unless it nests: how deep is up to the file, and dump() calls itself.
  static std::string text_of(const SortedJson& value) {
    const bool is_flat =
        std::ranges::none_of(value, [](const SortedJson& part) { return part.is_structured(); });
    return is_flat ? value.dump() : "another form";
  }

  void declare(const std::string& name, const SortedJson& value) {
    if (!value.is_object() || !value.contains("dtype") || !value.contains("shape") ||
        !value.contains("data_offsets")) {
      reject(name, "no description of a tensor", "dtype, shape and data_offsets");
    }
    if (value["dtype"] != "F32") {
      reject(name + ".dtype", text_of(value["dtype"]), "\"F32\"");
    }
    if (!is_list_of_sizes(value["shape"])) {
      reject(name + ".shape", text_of(value["shape"]), "a list of sizes");
    }
    if (!is_list_of_sizes(value["data_offsets"]) || value["data_offsets"].size() != 2) {
      reject(name + ".data_offsets", text_of(value["data_offsets"]), "begin and end");
    }
    Declared tensor{name, value["shape"].get<std::vector<std::int64_t>>(), 1,
                    value["data_offsets"][0].get<std::size_t>(),
                    value["data_offsets"][1].get<std::size_t>()};
    std::size_t bytes = sizeof(float);
    for (const std::int64_t size : tensor.shape) {
      if (__builtin_mul_overflow(bytes, static_cast<std::size_t>(size), &bytes)) {
        reject(name + ".shape", text_of(value["shape"]), "a tensor that fits into memory");
      }
    }
    tensor.elements = bytes / sizeof(float);
    if (tensor.end < tensor.begin || tensor.end - tensor.begin != bytes) {
      reject(name + ".data_offsets", text_of(value["data_offsets"]),
             size_text(bytes) + ", as its shape says");
    }
    declared_.push_back(std::move(tensor));
  }

  SafetensorsFile::Entry read(const Declared& tensor) {
    if (tensor.begin != next_) {
      reject(tensor.name + ".data_offsets", "data from " + std::to_string(tensor.begin),
             "from " + std::to_string(next_) + ", without gap or overlap");
    }
    next_ = tensor.end;
    if (tensor.end > data_.size()) {
      reject("size", size_text(content_.size()),
             "at least " + size_text(content_.size() - data_.size() + tensor.end) + " for tensor " +
                 tensor.name);
    }
    SafetensorsFile::Entry entry{tensor.name, tensor.shape,
                                 std::vector<float>(with_values_ ? tensor.elements : 0)};
    if (!entry.values.empty()) {
      std::memcpy(entry.values.data(), data_.data() + tensor.begin, tensor.end - tensor.begin);
    }
    return entry;
  }

  std::string_view content_;
  std::string_view data_;
  const std::string& file_;
  const bool with_values_;
  std::vector<Declared> declared_;
  std::size_t next_ = 0;
};

}  // namespace

std::string encode_safetensors(std::span<const NamedTensor> tensors, const Metadata& metadata) {
  auto header = nlohmann::ordered_json::object();
  if (!metadata.empty()) {
    header[kMetadataKey] = metadata;
  }
  std::size_t offset = 0;
  for (const NamedTensor& tensor : tensors) {
    const std::size_t end = offset + tensor.values.size_bytes();
    header[tensor.name] = {
        {"dtype", "F32"}, {"shape", tensor.shape}, {"data_offsets", {offset, end}}};
    offset = end;
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');

  const std::uint64_t length = text.size();
  std::string content(reinterpret_cast<const char*>(&length), kLengthBytes);
  content.reserve(kLengthBytes + text.size() + offset);
  content += text;
  for (const NamedTensor& tensor : tensors) {
    content.append(reinterpret_cast<const char*>(tensor.values.data()), tensor.values.size_bytes());
  }
  return content;
}

SafetensorsFile parse_safetensors(std::string_view content, const std::string& file) {
  return Parser(content, file, /*with_values=*/true).parse();
}

SafetensorsFile describe_safetensors(std::string_view content, const std::string& file) {
  return Parser(content, file, /*with_values=*/false).parse();
}

}  // namespace rackrail::trainer
