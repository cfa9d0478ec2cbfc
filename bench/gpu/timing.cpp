#include "bench/gpu/timing.hpp"

#include <algorithm>
#include <memory>

#include "bench/gpu/sample.hpp"
#include "plan/codec.hpp"
#include "runtime/cuda/device_codec.hpp"
#include "runtime/cuda/graph.hpp"
#include "runtime/cuda/handles.hpp"

namespace rackrail::bench {
namespace {

using runtime::DeviceBuffer;
using runtime::Into;

constexpr int kWarmUps = 3;
constexpr int kRepeats = 25;
constexpr std::size_t kTimedPayloads = 8;
constexpr double kStreaming = 0.85;
constexpr double kReducing = 0.75;
constexpr double kSelecting = 0.30;

/// Runs everything over buffers that are made once; they are far larger than a cache.
class Timer {
 public:
  Timer(std::size_t elements, std::uint64_t seed, unsigned blocks_per_multiprocessor)
      : elements_(elements),
        blocks_(blocks_per_multiprocessor),
        values_(elements),
        errors_(elements),
        sums_(elements),
        output_(4 * elements),
        refused_(1) {
    const std::vector<float> gradients = random_gradients(elements, seed);
    for (const DeviceBuffer<float>* buffer : {&values_, &errors_, &sums_}) {
      runtime::copy_to_device<float>(gradients, *buffer, stream_.get());
    }
    runtime::check_cuda(cudaMemsetAsync(refused_.data(), 0, sizeof(std::uint32_t), stream_.get()),
                        "cudaMemsetAsync");
    stream_.synchronize();
  }

  template <typename Begins>
  std::vector<Timing> run(std::span<const plan::Codec> codecs, const Begins& begins) {
    time_copy();
    for (const plan::Codec& codec : codecs) {
      if (codec.is_lossy()) {
        begins(codec, timings_);
        time_codec(codec);
      }
    }
    time_copy();
    return std::move(timings_);
  }

 private:
  void time(const std::string& what, double bytes_per_element, std::optional<double> target,
            const std::function<void(cudaStream_t)>& enqueue) {
    for (int i = 0; i < kWarmUps; ++i) {
      enqueue(stream_.get());
    }
    std::vector<double> seconds;
    for (int i = 0; i < kRepeats; ++i) {
      start_.record(stream_.get());
      enqueue(stream_.get());
      end_.record(stream_.get());
      end_.synchronize();
      seconds.push_back(end_.seconds_since(start_));
    }
    std::sort(seconds.begin(), seconds.end());
    timings_.push_back(
        {what, elements_, bytes_per_element, seconds[seconds.size() / 2], seconds.front(), target});
  }

  void time_copy() {
    time("device copy", 8, {}, [&](cudaStream_t stream) {
      runtime::check_cuda(cudaMemcpyAsync(sums_.data(), values_.data(), 4 * elements_,
                                          cudaMemcpyDeviceToDevice, stream),
                          "cudaMemcpyAsync");
    });
  }

  void time_codec(const plan::Codec& descriptor) {
    const std::string name = plan::to_string(descriptor);
    const auto codec = runtime::make_device_codec(descriptor, blocks_);
    const auto size = static_cast<std::size_t>(
        plan::encoded_size(descriptor, static_cast<std::int64_t>(elements_)).count());
    const double coded = static_cast<double>(size) / static_cast<double>(elements_);
    const DeviceBuffer<std::byte> scratch(codec->scratch_bytes(elements_));
    runtime::DeviceEncoding plain{.input = values_.span(),
                                  .residual = {},
                                  .output = output_.span().first(size),
                                  .scratch = scratch.span(),
                                  .key = {.stream = 5, .first_element = 0}};
    runtime::DeviceEncoding with_feedback = plain;
    with_feedback.residual = errors_.span();
    // Decoding what is sparse touches single elements; drawing them at random has no target.
    const bool is_sparse = scratch.size() != 0;
    std::optional<double> target = is_sparse ? kSelecting : kStreaming;
    if (descriptor.kind == plan::CodecKind::kRandomK) {
      target.reset();
    }
    time(name + " encode", 4 + coded, target,
         [&](cudaStream_t stream) { codec->encode(plain, stream); });
    time(name + " decode", 4 + coded, is_sparse ? std::optional<double>{} : kStreaming,
         [&](cudaStream_t stream) {
           codec->decode(plain.output, Into::kStore, sums_.span(), refused_.data(), stream);
         });
    time(name + " decode and add", (is_sparse ? 0 : 8) + coded,
         is_sparse ? std::optional<double>{} : kStreaming, [&](cudaStream_t stream) {
           codec->decode(plain.output, Into::kAdd, sums_.span(), refused_.data(), stream);
         });
    time(name + " encode with feedback", 12 + coded, target,
         [&](cudaStream_t stream) { codec->encode(with_feedback, stream); });
    if (codec->can_reduce()) {
      time_reduce(*codec, name, coded, size);
    }
  }

  /// Payloads in buffers of their own.
  void time_reduce(const runtime::DeviceCodec& codec, const std::string& name, double coded,
                   std::size_t size) {
    std::vector<DeviceBuffer<std::byte>> payloads;
    std::vector<const std::byte*> pointers;
    runtime::DeviceEncoding encoding{
        .input = values_.span(), .residual = {}, .output = {}, .scratch = {}, .key = {}};
    for (std::size_t p = 0; p < kTimedPayloads; ++p) {
      payloads.emplace_back(size);
      encoding.output = payloads.back().span();
      encoding.key.stream = p;
      codec.encode(encoding, stream_.get());
      pointers.push_back(payloads.back().data());
    }
    encoding.output = output_.span().first(size);
    // As an executor does it: onto the rank's own floats. The target is for payloads alone.
    time(name + " reduce of 8 and floats", 4 + 9 * coded, {},
         [&](cudaStream_t stream) { codec.reduce(pointers, elements_, encoding, stream); });
    encoding.input = {};
    time(name + " reduce of 8", 9 * coded, kReducing,
         [&](cudaStream_t stream) { codec.reduce(pointers, elements_, encoding, stream); });
  }

  std::size_t elements_;
  unsigned blocks_;
  runtime::CudaStream stream_;
  runtime::CudaEvent start_;
  runtime::CudaEvent end_;
  DeviceBuffer<float> values_;
  DeviceBuffer<float> errors_;
  DeviceBuffer<float> sums_;
  DeviceBuffer<std::byte> output_;
  DeviceBuffer<std::uint32_t> refused_;
  std::vector<Timing> timings_;
};

}  // namespace

std::vector<Timing> time_codecs(
    std::span<const plan::Codec> codecs, std::size_t elements, std::uint64_t seed,
    unsigned blocks_per_multiprocessor,
    const std::function<void(const plan::Codec&, const std::vector<Timing>& so_far)>& begins) {
  return Timer(elements, seed, blocks_per_multiprocessor).run(codecs, begins);
}

}  // namespace rackrail::bench
