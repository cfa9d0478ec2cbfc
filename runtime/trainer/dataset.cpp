#include "runtime/trainer/dataset.hpp"

#include <charconv>
#include <cmath>
#include <string_view>

#include "base/digest.hpp"
#include "base/error.hpp"
#include "base/file.hpp"
#include "base/text.hpp"
#include "runtime/trainer/sampler.hpp"

namespace rackrail::trainer {
namespace {

constexpr Bytes kLargestDataset(std::int64_t{1} << 40U);  // 1 TiB: it is held in memory

[[noreturn]] void reject(const std::string& file, std::size_t line, std::string found,
                         std::string expected) {
  throw ConfigError(
      ErrorContext{file, "line " + std::to_string(line), std::move(found), std::move(expected)});
}

/// The fields of one line as numbers, checked against the format.
class RowReader {
 public:
  RowReader(std::string file, const DataFormat& format)
      : file_(std::move(file)), format_(format), features_(fields_expected() - 1) {}

  void read(std::string_view line, std::size_t number, Dataset& into) {
    std::size_t column = 0;
    std::int32_t label = 0;
    for (std::size_t begin = 0; begin <= line.size(); ++column) {
      const std::size_t comma = std::min(line.find(',', begin), line.size());
      const std::string_view field = trimmed(line.substr(begin, comma - begin));
      if (column < features_.size()) {
        features_[column] = feature(field, number, column);
      } else if (column == features_.size()) {
        label = this->label(field, number);
      }
      begin = comma + 1;
    }
    if (column != fields_expected()) {
      reject(file_, number, std::to_string(column) + " values",
             std::to_string(fields_expected()) + " (" + std::to_string(features_.size()) +
                 " features and the class)");
    }
    into.append(features_, label);
  }

 private:
  std::size_t fields_expected() const {
    return static_cast<std::size_t>(format_.image.features()) + 1;
  }

  float feature(std::string_view field, std::size_t line, std::size_t column) const {
    double value = 0;
    const auto [end, error] = std::from_chars(field.data(), field.data() + field.size(), value);
    const bool is_number = error == std::errc{} && end == field.data() + field.size();
    if (!is_number || !(value >= 0 && value <= format_.maximum)) {
      reject(file_, line, "'" + std::string(field) + "' in column " + std::to_string(column + 1),
             "a number in [0, " + shortest(format_.maximum) + "]");
    }
    return static_cast<float>(value / format_.maximum);
  }

  std::int32_t label(std::string_view field, std::size_t line) const {
    std::int32_t value = -1;
    const auto [end, error] = std::from_chars(field.data(), field.data() + field.size(), value);
    const bool is_number = error == std::errc{} && end == field.data() + field.size();
    if (!is_number || value < 0 || value >= format_.classes) {
      reject(file_, line, "class '" + std::string(field) + "'",
             "an integer in [0, " + std::to_string(format_.classes - 1) + "]");
    }
    return value;
  }

  static std::string shortest(double value) {
    char text[32];
    const auto result = std::to_chars(text, text + sizeof text, value);
    return {text, result.ptr};
  }

  std::string file_;
  const DataFormat& format_;
  std::vector<float> features_;
};

}  // namespace

BatchView Dataset::view(std::int64_t begin, std::int64_t count) const {
  const auto width = static_cast<std::size_t>(image_.features());
  const auto first = static_cast<std::size_t>(begin);
  const auto samples = static_cast<std::size_t>(count);
  return {std::span(features_).subspan(first * width, samples * width),
          std::span(labels_).subspan(first, samples)};
}

void Dataset::append(std::span<const float> features, std::int32_t label) {
  features_.insert(features_.end(), features.begin(), features.end());
  labels_.push_back(label);
}

std::string Dataset::digest() const {
  std::string content = std::to_string(image_.height) + " " + std::to_string(image_.width) + " " +
                        std::to_string(image_.channels) + " " + std::to_string(classes_) + "\n";
  content.append(reinterpret_cast<const char*>(features_.data()), features_.size() * sizeof(float));
  content.append(reinterpret_cast<const char*>(labels_.data()),
                 labels_.size() * sizeof(std::int32_t));
  return sha256_hex(content);
}

Dataset read_dataset(const std::filesystem::path& path, const DataFormat& format) {
  const std::string content = read_file(path, kLargestDataset);
  Dataset dataset(format.image, format.classes);
  RowReader reader(path.string(), format);
  std::size_t number = 0;
  std::size_t blank_line = 0;
  for (std::size_t begin = 0; begin < content.size();) {
    const std::size_t end = std::min(content.find('\n', begin), content.size());
    const std::string_view line = trimmed(std::string_view(content).substr(begin, end - begin));
    begin = end + 1;
    ++number;
    if (line.empty()) {
      blank_line = blank_line == 0 ? number : blank_line;
      continue;
    }
    if (blank_line != 0) {
      reject(path.string(), blank_line, "an empty line", "a sample");
    }
    reader.read(line, number, dataset);
  }
  if (dataset.size() == 0) {
    throw ConfigError(ErrorContext{path.string(), "", "no samples", "one sample a line"});
  }
  return dataset;
}

DataSplit split(const Dataset& all, double test_share, std::uint64_t seed) {
  const auto test_size =
      static_cast<std::int64_t>(std::floor(test_share * static_cast<double>(all.size())));
  if (test_size < 1 || test_size >= all.size()) {
    throw ConfigError(
        ErrorContext{"", "test_share", std::to_string(test_share),
                     "a share that leaves samples on both sides of " + std::to_string(all.size())});
  }
  const std::vector<std::uint32_t> order = permutation(all.size(), seed);
  DataSplit parts{Dataset(all.image(), all.classes()), Dataset(all.image(), all.classes())};
  for (std::size_t i = 0; i < order.size(); ++i) {
    Dataset& part = static_cast<std::int64_t>(i) < test_size ? parts.test : parts.train;
    const BatchView sample = all.view(order[i], 1);
    part.append(sample.features, sample.labels.front());
  }
  return parts;
}

}  // namespace rackrail::trainer
