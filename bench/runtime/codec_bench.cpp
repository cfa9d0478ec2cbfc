// Codecs on one core against what its memory allows: gradients that no cache holds, in slices as
// the executor has them. `copy` is the limit: memcpy of the same size, by bytes read and written.
// The others count the bytes that they must move at least, however they do it: the gradient, read
// once; the residual or the sum, read and written; the encoded form. So their rate over that of
// `copy` is the share of the memory's limit that they reach.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "base/random.hpp"
#include "plan/codecs/arithmetic.hpp"
#include "plan/codecs/format.hpp"

namespace {

using rackrail::plan::Codec;

constexpr std::size_t kElements = std::size_t{1} << 24U;  // 64 MiB
constexpr std::size_t kSlice = std::size_t{1} << 18U;

/// Like gradients: both signs, magnitudes over six orders.
std::vector<float> gradient(std::uint64_t seed) {
  std::vector<float> values(kElements);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::uint64_t bits = rackrail::random_sequence(seed, i);
    const auto size = static_cast<float>(bits >> 40U) * 0x1.0p-24F;
    values[i] = (bits & 1U ? 1.0F : -1.0F) * size * size * size * 0.01F;
  }
  return values;
}

const std::vector<float>& sample() {
  static const std::vector<float> kValues = gradient(1);
  return kValues;
}

void count(benchmark::State& state, double bytes_per_element) {
  state.SetBytesProcessed(static_cast<std::int64_t>(static_cast<double>(state.iterations()) *
                                                    bytes_per_element * kElements));
}

void copy(benchmark::State& state) {
  std::vector<float> to = sample();
  for (auto _ : state) {
    std::memcpy(to.data(), sample().data(), kElements * sizeof(float));
    benchmark::DoNotOptimize(to.data());
    benchmark::ClobberMemory();
  }
  count(state, 2 * sizeof(float));
}

/// One codec with the buffers of its slices.
struct Work {
  std::unique_ptr<rackrail::plan::CodecArithmetic> codec;
  std::vector<float> residual;
  std::vector<float> sum;
  std::vector<std::byte> wire;
  std::size_t slice_bytes;

  explicit Work(const Codec& descriptor)
      : codec(rackrail::plan::make_codec_arithmetic(descriptor)),
        residual(descriptor.has_error_feedback() ? kElements : 0, 1e-6F),
        sum(sample()),
        slice_bytes(
            static_cast<std::size_t>(rackrail::plan::encoded_size(descriptor, kSlice).count())) {
    wire.resize(kElements / kSlice * slice_bytes);
  }

  std::span<std::byte> wire_of(std::size_t begin) {
    return std::span(wire).subspan(begin / kSlice * slice_bytes, slice_bytes);
  }

  void encode(std::uint64_t step) {
    for (std::size_t begin = 0; begin < kElements; begin += kSlice) {
      codec->encode(
          std::span(sample()).subspan(begin, kSlice),
          residual.empty() ? std::span<float>() : std::span(residual).subspan(begin, kSlice),
          {step, static_cast<std::int64_t>(begin)}, wire_of(begin));
    }
  }

  void decode_add() {
    for (std::size_t begin = 0; begin < kElements; begin += kSlice) {
      codec->decode_add(wire_of(begin), std::span(sum).subspan(begin, kSlice));
    }
  }
};

void encode(benchmark::State& state, const Codec& codec) {
  Work work(codec);
  std::uint64_t step = 0;
  for (auto _ : state) {
    work.encode(++step);
    benchmark::ClobberMemory();
  }
  const double residual = codec.has_error_feedback() ? 2 * sizeof(float) : 0;
  count(state, sizeof(float) + residual + static_cast<double>(work.slice_bytes) / kSlice);
}

void decode_add(benchmark::State& state, const Codec& codec) {
  Work work(codec);
  work.encode(1);
  for (auto _ : state) {
    work.decode_add();
    benchmark::ClobberMemory();
  }
  const bool is_sparse = codec.kind == rackrail::plan::CodecKind::kTopK ||
                         codec.kind == rackrail::plan::CodecKind::kRandomK;
  // Of a sparse one each kept element reads and writes the cache line it is in.
  count(state, static_cast<double>(work.slice_bytes) / kSlice +
                   (is_sparse ? codec.density * 2 * 64 : 2 * sizeof(float)));
}

const bool kRegistered = [] {
  const auto add = [](const std::string& name, auto function) {
    benchmark::RegisterBenchmark(name.c_str(), function)->Unit(benchmark::kMillisecond);
  };
  add("copy", copy);
  for (const Codec& codec : rackrail::plan::all_codecs()) {
    const std::string name(rackrail::plan::codec_format(codec.kind).traits().name);
    add("encode/" + name, [codec](benchmark::State& state) { encode(state, codec); });
    add("decode_add/" + name, [codec](benchmark::State& state) { decode_add(state, codec); });
  }
  return true;
}();

}  // namespace
