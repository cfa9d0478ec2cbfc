#include "runtime/cuda/device_codec.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <string>
#include <string_view>

#include "plan/codecs/format.hpp"
#include "runtime/cuda/cuda_error.hpp"

namespace rackrail::runtime {
namespace {

class PlainDeviceCodec final : public DeviceCodec {
 public:
  PlainDeviceCodec(const plan::Codec& codec, const Launch& grid) : DeviceCodec(codec, grid) {}

 private:
  void enqueue_encode(const EncodeBuffers& buffers, const KernelKey& /*key*/,
                      std::byte* /*scratch*/, const Launch& launch) const override {
    encode_plain(buffers, launch);
  }
  void enqueue_decode(const std::byte* encoded, Into into, std::span<float> output,
                      std::uint32_t* /*refused*/, const Launch& launch) const override {
    decode_plain(encoded, into, output.data(), output.size(), launch);
  }
};

template <Rounding kRounding>
class RoundingDeviceCodec final : public DeviceCodec {
 public:
  RoundingDeviceCodec(const plan::Codec& codec, const Launch& grid) : DeviceCodec(codec, grid) {}
  bool can_reduce() const override { return true; }

 private:
  void enqueue_encode(const EncodeBuffers& buffers, const KernelKey& /*key*/,
                      std::byte* /*scratch*/, const Launch& launch) const override {
    encode_rounded(kRounding, buffers, 1, launch);
  }
  void enqueue_decode(const std::byte* encoded, Into into, std::span<float> output,
                      std::uint32_t* /*refused*/, const Launch& launch) const override {
    decode_rounded(kRounding, encoded, 1, into, output.data(), output.size(), launch);
  }
  void enqueue_reduce(const Payloads& payloads, const EncodeBuffers& buffers,
                      const KernelKey& /*key*/, const Launch& launch) const override {
    reduce_rounded(kRounding, payloads, buffers, launch);
  }
};

template <BlockCode kCode>
class BlockDeviceCodec final : public DeviceCodec {
 public:
  BlockDeviceCodec(const plan::Codec& codec, const Launch& grid) : DeviceCodec(codec, grid) {}
  bool can_reduce() const override { return true; }

 private:
  void enqueue_encode(const EncodeBuffers& buffers, const KernelKey& key, std::byte* /*scratch*/,
                      const Launch& launch) const override {
    encode_blocks(kCode, descriptor().block, buffers, key, launch);
  }
  void enqueue_decode(const std::byte* encoded, Into into, std::span<float> output,
                      std::uint32_t* /*refused*/, const Launch& launch) const override {
    decode_blocks(kCode, descriptor().block, encoded, into, output.data(), output.size(), launch);
  }
  void enqueue_reduce(const Payloads& payloads, const EncodeBuffers& buffers, const KernelKey& key,
                      const Launch& launch) const override {
    reduce_blocks(kCode, descriptor().block, payloads, buffers, key, launch);
  }
};

/// Sends `kept` elements; and their places, where the key does not tell them (random-k).
class SparseDeviceCodec : public DeviceCodec {
 protected:
  using DeviceCodec::DeviceCodec;

  std::size_t kept(std::size_t elements) const {
    return static_cast<std::size_t>(
        plan::kept_elements(descriptor(), static_cast<std::int64_t>(elements)));
  }
};

class TopKDeviceCodec final : public SparseDeviceCodec {
 public:
  TopKDeviceCodec(const plan::Codec& codec, const Launch& grid) : SparseDeviceCodec(codec, grid) {}
  std::size_t scratch_bytes(std::size_t elements) const override {
    return elements == 0 ? 0 : top_k_scratch(elements, kept(elements));
  }
  bool can_refuse() const override { return true; }

 private:
  void enqueue_encode(const EncodeBuffers& buffers, const KernelKey& /*key*/, std::byte* scratch,
                      const Launch& launch) const override {
    encode_top_k(buffers, kept(buffers.elements), scratch, launch);
  }
  void enqueue_decode(const std::byte* encoded, Into into, std::span<float> output,
                      std::uint32_t* refused, const Launch& launch) const override {
    decode_top_k(encoded, kept(output.size()), into, output.data(), output.size(), refused, launch);
  }
};

class RandomKDeviceCodec final : public SparseDeviceCodec {
 public:
  RandomKDeviceCodec(const plan::Codec& codec, const Launch& grid)
      : SparseDeviceCodec(codec, grid) {}
  std::size_t scratch_bytes(std::size_t elements) const override {
    return elements == 0 ? 0 : random_k_scratch();
  }

 private:
  void enqueue_encode(const EncodeBuffers& buffers, const KernelKey& key, std::byte* scratch,
                      const Launch& launch) const override {
    encode_random_k(buffers, kept(buffers.elements), key, scratch, launch);
  }
  void enqueue_decode(const std::byte* encoded, Into into, std::span<float> output,
                      std::uint32_t* /*refused*/, const Launch& launch) const override {
    decode_random_k(encoded, kept(output.size()), into, output.data(), output.size(), launch);
  }
};

using Make = std::unique_ptr<DeviceCodec> (*)(const plan::Codec&, const Launch& grid);

template <typename T>
std::unique_ptr<DeviceCodec> make(const plan::Codec& codec, const Launch& grid) {
  return std::make_unique<T>(codec, grid);
}

struct Registered {
  std::string_view name;  ///< as the codec's file in plan/codecs/ has it
  Make make;
};

constexpr std::array kRegistered = {
    Registered{"none", make<PlainDeviceCodec>},
    Registered{"fp16", make<RoundingDeviceCodec<Rounding::kHalf>>},
    Registered{"bf16", make<RoundingDeviceCodec<Rounding::kBfloat16>>},
    Registered{"int8", make<BlockDeviceCodec<BlockCode::kInt8>>},
    Registered{"fp8", make<BlockDeviceCodec<BlockCode::kE4m3>>},
    Registered{"fp8e5m2", make<BlockDeviceCodec<BlockCode::kE5m2>>},
    Registered{"topk", make<TopKDeviceCodec>},
    Registered{"randomk", make<RandomKDeviceCodec>},
};

/// Thread blocks per multiprocessor that go on from one part of the data to the next: several times
/// as many as are resident, so that all end at about the same time.
constexpr unsigned kLooping = 32;

const Registered* find(const plan::Codec& codec) {
  const std::string_view name = plan::codec_format(codec.kind).traits().name;
  const auto* found = std::find_if(kRegistered.begin(), kRegistered.end(),
                                   [&](const Registered& each) { return each.name == name; });
  return found == kRegistered.end() ? nullptr : found;
}

}  // namespace

std::size_t DeviceCodec::scratch_bytes(std::size_t /*elements*/) const { return 0; }

void DeviceCodec::enqueue_reduce(const Payloads& /*payloads*/, const EncodeBuffers& /*buffers*/,
                                 const KernelKey& /*key*/, const Launch& /*launch*/) const {
  throw RuntimeFailure("codec " + plan::to_string(descriptor_) +
                       ": there is no kernel that adds payloads and encodes the sum");
}

void DeviceCodec::check(const char* what, std::size_t found, std::size_t expected) const {
  if (found != expected) {
    throw RuntimeFailure("codec " + plan::to_string(descriptor_) + " on a GPU: " + what + " of " +
                         std::to_string(found) + " instead of " + std::to_string(expected));
  }
}

std::size_t DeviceCodec::encoded_bytes(std::size_t elements) const {
  // Kernels count in 32 bits where the wire format has indices of 32 bits.
  if (elements > std::numeric_limits<std::uint32_t>::max() - (1U << 20U)) {
    throw RuntimeFailure("codec " + plan::to_string(descriptor_) +
                         " on a GPU: " + std::to_string(elements) + " elements at once");
  }
  return static_cast<std::size_t>(
      plan::encoded_size(descriptor_, static_cast<std::int64_t>(elements)).count());
}

namespace {

/// Kernels know from the pointer whether there is one.
float* residual_of(const DeviceEncoding& encoding) {
  return encoding.residual.empty() ? nullptr : encoding.residual.data();
}

}  // namespace

void DeviceCodec::check_encoding(std::size_t elements, const DeviceEncoding& encoding) const {
  check("an output buffer with a size in bytes", encoding.output.size(), encoded_bytes(elements));
  if (!encoding.residual.empty()) {
    check("a residual with a number of elements", encoding.residual.size(), elements);
  }
  const std::size_t scratch = scratch_bytes(elements);
  check("scratch memory with a size in bytes", std::min(encoding.scratch.size(), scratch), scratch);
}

Launch DeviceCodec::launch_on(cudaStream_t stream) const {
  Launch launch = grid_;
  launch.stream = stream;
  return launch;
}

void DeviceCodec::encode(const DeviceEncoding& encoding, cudaStream_t stream) const {
  check_encoding(encoding.input.size(), encoding);
  if (encoding.input.empty()) {
    return;
  }
  enqueue_encode({.input = encoding.input.data(),
                  .residual = residual_of(encoding),
                  .output = encoding.output.data(),
                  .elements = encoding.input.size()},
                 {.stream = encoding.key.stream,
                  .first_element = static_cast<std::uint64_t>(encoding.key.first_element),
                  .stream_on_device = encoding.stream_on_device},
                 encoding.scratch.data(), launch_on(stream));
}

void DeviceCodec::decode(std::span<const std::byte> encoded, Into into, std::span<float> output,
                         std::uint32_t* refused, cudaStream_t stream) const {
  check("an encoded slice with a size in bytes", encoded.size(), encoded_bytes(output.size()));
  if (!output.empty()) {
    enqueue_decode(encoded.data(), into, output, refused, launch_on(stream));
  }
}

void DeviceCodec::reduce(std::span<const std::byte* const> payloads, std::size_t elements,
                         const DeviceEncoding& encoding, cudaStream_t stream) const {
  check_encoding(elements, encoding);
  check("a list of payloads with a size",
        std::clamp<std::size_t>(payloads.size(), 1, kMostPayloads), payloads.size());
  if (!encoding.input.empty()) {
    check("an input with a number of elements", encoding.input.size(), elements);
  }
  Payloads all;
  all.count = static_cast<unsigned>(payloads.size());
  std::copy(payloads.begin(), payloads.end(), all.bytes.begin());
  if (elements != 0) {
    enqueue_reduce(all,
                   {.input = encoding.input.empty() ? nullptr : encoding.input.data(),
                    .residual = residual_of(encoding),
                    .output = encoding.output.data(),
                    .elements = elements},
                   {.stream = encoding.key.stream,
                    .first_element = static_cast<std::uint64_t>(encoding.key.first_element),
                    .stream_on_device = encoding.stream_on_device},
                   launch_on(stream));
  }
}

bool has_device_codec(const plan::Codec& descriptor) { return find(descriptor) != nullptr; }

std::unique_ptr<DeviceCodec> make_device_codec(const plan::Codec& descriptor,
                                               unsigned blocks_per_multiprocessor) {
  for (const plan::CodecParameter& parameter :
       plan::codec_format(descriptor.kind).traits().parameters) {
    if (!plan::is_within_limits(parameter, descriptor)) {
      throw RuntimeFailure("codec " + plan::to_string(descriptor) + ": '" +
                           std::string(parameter.name) + "' outside its limits");
    }
  }
  const Registered* registered = find(descriptor);
  if (registered == nullptr) {
    throw RuntimeFailure("codec " + plan::to_string(descriptor) + ": there are no kernels for it");
  }
  int device = 0;
  int multiprocessors = 0;
  check_cuda(cudaGetDevice(&device), "cudaGetDevice");
  check_cuda(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device),
             "cudaDeviceGetAttribute");
  const auto count = static_cast<unsigned>(multiprocessors);
  return registered->make(descriptor,
                          {.stream = nullptr,
                           .most_blocks = count * blocks_per_multiprocessor,
                           .most_looping = count * std::min(kLooping, blocks_per_multiprocessor)});
}

}  // namespace rackrail::runtime
