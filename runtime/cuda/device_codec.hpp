// Codecs that work on device memory, and give the bytes that those of plan/codecs/ give.
//
// All work is enqueued on the caller's stream; nothing is allocated and nothing waits, so calls can
// be captured into a graph. An object keeps no state between calls: calls on several streams do not
// disturb each other as long as their buffers, scratch included, are apart. Spans are of device
// memory.
//
// Two things differ from a processor: NaNs that come out of additions have other payloads, and
// impossible content of a payload is found while the stream runs, so that it is counted in device
// memory instead of thrown.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "plan/codecs/arithmetic.hpp"
#include "runtime/cuda/kernels.hpp"

namespace rackrail::runtime {

/// What to encode, and where to.
struct DeviceEncoding {
  std::span<const float> input;
  std::span<float> residual;     ///< as CodecArithmetic::encode has it; or empty
  std::span<std::byte> output;   ///< encoded_size() bytes, aligned to 8
  std::span<std::byte> scratch;  ///< scratch_bytes() at least, aligned to 256
  plan::EncodeKey key;
  /// Where not null, the number there when the kernels run stands in for key.stream: a graph that
  /// is replayed would else round with the same random numbers in each step.
  const std::uint64_t* stream_on_device = nullptr;
};

class DeviceCodec {
 public:
  virtual ~DeviceCodec() = default;
  DeviceCodec(const DeviceCodec&) = delete;
  DeviceCodec& operator=(const DeviceCodec&) = delete;

  const plan::Codec& descriptor() const noexcept { return descriptor_; }

  /// Scratch memory that encoding so many elements takes.
  virtual std::size_t scratch_bytes(std::size_t elements) const;
  /// Whether there are payloads that no encoder makes, which decode() counts.
  virtual bool can_refuse() const { return false; }
  /// Whether there is one kernel for reduce().
  virtual bool can_reduce() const { return false; }

  /// Throws RuntimeFailure when sizes do not fit, CudaError when it cannot be enqueued; so do all.
  void encode(const DeviceEncoding& encoding, cudaStream_t stream) const;
  /// output = D(encoded), or output += D(encoded). Impossible content adds to *refused, which the
  /// caller sets to 0 before, and leaves the output as it was.
  void decode(std::span<const std::byte> encoded, Into into, std::span<float> output,
              std::uint32_t* refused, cudaStream_t stream) const;
  /// encoding.output = C([input +] D(payloads[0]) + D(payloads[1]) + … [+ residual]), added in this
  /// order, in one kernel that writes no floats. 1 to kMostPayloads payloads; encoding.input may be
  /// empty, `elements` says how many there are. Throws RuntimeFailure unless can_reduce().
  void reduce(std::span<const std::byte* const> payloads, std::size_t elements,
              const DeviceEncoding& encoding, cudaStream_t stream) const;

 protected:
  /// `launch` of the calls below is `grid` with the stream that they are for.
  DeviceCodec(const plan::Codec& descriptor, const Launch& grid)
      : descriptor_(descriptor), grid_(grid) {}

  // The same, with sizes checked and elements > 0.
  virtual void enqueue_encode(const EncodeBuffers& buffers, const KernelKey& key,
                              std::byte* scratch, const Launch& launch) const = 0;
  virtual void enqueue_decode(const std::byte* encoded, Into into, std::span<float> output,
                              std::uint32_t* refused, const Launch& launch) const = 0;
  virtual void enqueue_reduce(const Payloads& payloads, const EncodeBuffers& buffers,
                              const KernelKey& key, const Launch& launch) const;

 private:
  void check(const char* what, std::size_t found, std::size_t expected) const;
  std::size_t encoded_bytes(std::size_t elements) const;
  void check_encoding(std::size_t elements, const DeviceEncoding& encoding) const;
  Launch launch_on(cudaStream_t stream) const;

  plan::Codec descriptor_;
  Launch grid_;
};

/// Whether there are kernels for it.
bool has_device_codec(const plan::Codec& descriptor);

/// For the current device, which grids are sized for: at most `blocks_per_multiprocessor` of 256
/// threads. Throws RuntimeFailure where there are no kernels, or for parameters outside their
/// limits.
std::unique_ptr<DeviceCodec> make_device_codec(const plan::Codec& descriptor,
                                               unsigned blocks_per_multiprocessor = 4096);

}  // namespace rackrail::runtime
