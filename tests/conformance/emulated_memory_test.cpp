// What must not happen while sums are under way, when a real GPU may wait for them: memory that is
// taken or released, and kernels that are launched for the first time. On the emulated GPU.
#include <catch2/catch.hpp>
#include <cstring>

#include "runtime/cuda/device_codec.hpp"
#include "runtime/cuda/factory.hpp"
#include "runtime/cuda/graph.hpp"
#include "tests/support/emulated_gpu/fibers.hpp"

namespace rackrail::runtime::emulated_memory_test {
namespace {

constexpr std::size_t kElements = 30'001;
constexpr std::size_t kPayloads = 3;

TEST_CASE("emulated GPU: codecs take no memory where they encode, decode and sum") {
  const plan::Codec descriptor = GENERATE(from_range(plan::all_codecs()));
  if (!has_device_codec(descriptor)) {
    return;
  }
  CAPTURE(plan::to_string(descriptor));
  const auto codec = make_device_codec(descriptor);
  const CudaStream stream;
  const DeviceBuffer<float> values(kElements);
  const DeviceBuffer<float> errors(kElements);
  const DeviceBuffer<std::byte> codes(static_cast<std::size_t>(
      plan::encoded_size(descriptor, static_cast<std::int64_t>(kElements)).count()));
  const DeviceBuffer<std::byte> scratch(codec->scratch_bytes(kElements));
  const DeviceBuffer<std::uint32_t> refused(1);
  for (const DeviceBuffer<float>* each : {&values, &errors}) {
    std::memset(each->data(), 0, kElements * sizeof(float));
  }
  const DeviceEncoding encoding{.input = values.span(),
                                .residual = errors.span(),
                                .output = codes.span(),
                                .scratch = scratch.span()};
  const int before = emulated_gpu::memory_calls;
  const CudaGraph graph(stream.get(), [&](cudaStream_t captured) {
    codec->encode(encoding, captured);
    codec->decode(codes.span(), Into::kStore, values.span(), refused.data(), captured);
    codec->decode(codes.span(), Into::kAdd, values.span(), refused.data(), captured);
    if (codec->can_reduce()) {
      codec->reduce(std::vector<const std::byte*>(kPayloads, codes.data()), kElements, encoding,
                    captured);
    }
  });
  graph.launch(stream.get());
  stream.synchronize();
  CHECK(emulated_gpu::memory_calls == before);
}

TEST_CASE("emulated GPU: memory is refused to a thread that captures, as a GPU does") {
  const CudaStream stream;
  CHECK_THROWS_AS(CudaGraph(stream.get(), [](cudaStream_t) { DeviceBuffer<float>(1); }), CudaError);
  CHECK(DeviceBuffer<float>(1).size() == 1);
}

TEST_CASE("emulated GPU: a codec for the host's arrays keeps its memory") {
  const auto codec = make_cuda_codec(plan::parse_codec("int8"));
  std::vector<float> values(kElements, 1.5F);
  std::vector<std::byte> codes(static_cast<std::size_t>(
      plan::encoded_size(codec->descriptor(), static_cast<std::int64_t>(kElements)).count()));
  codec->encode(values, {}, {}, codes);
  const int before = emulated_gpu::memory_calls;
  codec->encode(values, {}, {}, codes);
  codec->decode(codes, values);
  codec->decode_add(codes, values);
  CHECK(emulated_gpu::memory_calls == before);
  CHECK(values.back() == Approx(3.0F).epsilon(1e-3));
}

}  // namespace
}  // namespace rackrail::runtime::emulated_memory_test
