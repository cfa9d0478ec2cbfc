// How long codecs take on a GPU, against a copy by the device in the same run.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "plan/codec.hpp"

namespace rackrail::bench {

struct Timing {
  std::string what;
  std::size_t elements = 0;
  double bytes_per_element = 0;  ///< compulsory: each input read once, each output written once
  double median_seconds = 0;     ///< by events on the device
  double fastest_seconds = 0;
  std::optional<double> target;  ///< share of the copy's bandwidth that is wanted

  double bandwidth() const {
    return bytes_per_element * static_cast<double>(elements) / median_seconds;
  }
};

/// The first and the last one are copies by the device; between them the lossy ones of `codecs`.
/// `begins` is called with what there is so far before each codec. `blocks_per_multiprocessor` as
/// make_device_codec() has it. Throws CudaError.
std::vector<Timing> time_codecs(
    std::span<const plan::Codec> codecs, std::size_t elements, std::uint64_t seed,
    unsigned blocks_per_multiprocessor,
    const std::function<void(const plan::Codec&, const std::vector<Timing>& so_far)>& begins);

}  // namespace rackrail::bench
