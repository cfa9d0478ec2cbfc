#include "plan/cost_model.hpp"

#include "plan/device_class.hpp"

namespace rackrail::plan {
namespace {

// Codecs and additions do little arithmetic per byte, so they run at the speed of the memory. Of
// the peak, streaming kernels reach about 80 % (the share that the STREAM triad gets on these GPUs
// and on one core of a server).
constexpr double kSustainedShare = 0.8;

// Bytes read and written per FP32 element of the gradient, compulsory traffic only. An encoding
// with error feedback reads gradient and residual and writes the new residual: 12 bytes before its
// output.
constexpr double kFp16Encode = 4 + 2;         // read FP32, write FP16
constexpr double kFp16DecodeAdd = 2 + 4 + 4;  // read FP16, add to FP32 in place
constexpr double kInt8Encode = 12 + 1;        // the second pass over a block finds it in the cache
constexpr double kInt8DecodeAdd = 1 + 4 + 4;
// Selection of the threshold by three radix passes over the corrected gradient, which is written
// once for them; the last pass compacts and clears what was sent from the residual.
constexpr double kTopKEncode = 12 + 3 * 4 + 8;
// 1 % of entries of 8 bytes, each of which reads and writes a sector of 32 bytes, and the FP32
// output that a plain decode clears first.
constexpr double kTopKDecode = 0.01 * (8 + 2 * 32) + 4;
constexpr double kAdd = 4 + 4 + 4;

/// FP32 bytes of gradient per second when each element of 4 bytes moves `bytes_per_element`.
Bandwidth rate(Bandwidth memory, double bytes_per_element) {
  return scaled(memory, kSustainedShare * 4 / bytes_per_element);
}

constexpr std::size_t index_of(CodecKind kind) { return static_cast<std::size_t>(kind); }

}  // namespace

DeviceRates device_rates(std::string_view device_class) {
  const DeviceClass* device = find_device_class(device_class);
  if (device == nullptr) {
    device = find_device_class("cpu");
  }
  const Bandwidth memory = device->codec_memory;
  DeviceRates rates;
  rates.codecs[index_of(CodecKind::kFp16)] = {rate(memory, kFp16Encode),
                                              rate(memory, kFp16DecodeAdd)};
  rates.codecs[index_of(CodecKind::kInt8Block)] = {rate(memory, kInt8Encode),
                                                   rate(memory, kInt8DecodeAdd)};
  rates.codecs[index_of(CodecKind::kTopK)] = {rate(memory, kTopKEncode), rate(memory, kTopKDecode)};
  rates.reduce = rate(memory, kAdd);
  rates.launch = device->launch;
  return rates;
}

}  // namespace rackrail::plan
