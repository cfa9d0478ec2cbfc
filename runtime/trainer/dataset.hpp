// Labelled images in memory, read from CSV: what the built-in trainer learns from.
//
// Features are normalised to [0, 1] when read and stay as they are from then on, so that a data set
// can be shared by all threads of a process without a lock.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

namespace rackrail::trainer {

/// Rows, columns and values per pixel of an image. Values are stored [height][width][channels].
struct ImageShape {
  std::int64_t height = 1;
  std::int64_t width = 1;
  std::int64_t channels = 1;

  std::int64_t features() const { return height * width * channels; }
  bool operator==(const ImageShape&) const = default;
};

/// The declared format of a data file.
struct DataFormat {
  ImageShape image;
  std::int64_t classes = 0;
  double maximum = 1;  ///< features are numbers in [0, maximum]

  bool operator==(const DataFormat&) const = default;
};

/// Some samples one after another; a view that owns nothing.
struct BatchView {
  std::span<const float> features;       ///< count() × features, sample by sample
  std::span<const std::int32_t> labels;  ///< 0 … classes − 1
  std::int64_t count() const { return static_cast<std::int64_t>(labels.size()); }
};

class Dataset {
 public:
  Dataset(ImageShape image, std::int64_t classes) : image_(image), classes_(classes) {}

  const ImageShape& image() const { return image_; }
  std::int64_t classes() const { return classes_; }
  std::int64_t size() const { return static_cast<std::int64_t>(labels_.size()); }
  /// Samples [begin, begin + count), which must exist.
  BatchView view(std::int64_t begin, std::int64_t count) const;
  BatchView all() const { return view(0, size()); }

  /// `features` must have image().features() elements.
  void append(std::span<const float> features, std::int32_t label);

  /// SHA-256 over shapes, features and labels.
  std::string digest() const;

 private:
  ImageShape image_;
  std::int64_t classes_;
  std::vector<float> features_;
  std::vector<std::int32_t> labels_;
};

/// Reads a CSV without a header: the features of a sample, then its class, one sample a line. Empty
/// lines at the end are ignored. Throws ConfigError that names file and line.
Dataset read_dataset(const std::filesystem::path& path, const DataFormat& format);

struct DataSplit {
  Dataset train;
  Dataset test;
};
/// Sets ⌊test_share · size⌋ samples aside, chosen by a shuffle that depends on `seed` alone. Throws
/// ConfigError unless both parts have samples.
DataSplit split(const Dataset& all, double test_share, std::uint64_t seed);

}  // namespace rackrail::trainer
