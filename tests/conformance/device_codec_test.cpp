// Codecs on device memory against those of plan/codecs/, bit by bit.
#include "runtime/cuda/device_codec.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "runtime/codec.hpp"
#include "runtime/cuda/factory.hpp"
#include "runtime/cuda/handles.hpp"
#include "tests/support/skip.hpp"

namespace rackrail::runtime::device_codec_test {
namespace {

using Floats = std::vector<float>;
using Encoded = std::vector<std::byte>;

const std::vector<std::string> kNames = {"none",
                                         "fp16",
                                         "bf16",
                                         "int8",
                                         "int8:block=1",
                                         "int8:block=4",
                                         "int8:block=100",
                                         "int8:block=128",
                                         "int8:block=512",
                                         "int8:block=65536",
                                         "fp8",
                                         "fp8:block=100",
                                         "fp8e5m2",
                                         "fp8e5m2:block=3",
                                         "topk",
                                         "topk:density=0.3",
                                         "topk:density=1",
                                         "randomk",
                                         "randomk:density=0.3",
                                         "randomk:density=0.999",
                                         "randomk:density=1"};
const std::vector<std::size_t> kSizes = {1, 3, 4, 255, 256, 257, 1'000, 8'192, 30'001};

/// Gradients of mixed size with what floats can be besides: zeros of both signs, subnormal, huge,
/// infinite and not a number.
Floats gradients(std::size_t size, unsigned seed, bool with_overflow) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::uniform_real_distribution<float> exponent(-20, 10);
  Floats values(size);
  for (std::size_t i = 0; i < size; ++i) {
    // Blocks differ in size by far: some have scales that are subnormal or 0.
    const float block_size = i / 512 % 7 == 6 ? 0x1p-120F : 1;
    values[i] = normal(random) * std::exp2(exponent(random)) * block_size;
  }
  const Floats special{0.0F, -0.0F, 1e-42F, -1e-40F, 3e38F, -3e38F, 65'504, 65'519.996F, 65'520};
  for (std::size_t i = 0; i < special.size() && 40 * i + 5 < size; ++i) {
    values[40 * i + 5] = special[i];
  }
  if (with_overflow) {
    values[size / 2] = std::numeric_limits<float>::infinity();
    values[size / 3] = -std::numeric_limits<float>::quiet_NaN();
  }
  return values;
}

bool same(float a, float b) {
  return std::memcmp(&a, &b, sizeof a) == 0 || (std::isnan(a) && std::isnan(b));
}

/// The first place where they differ, or their size. NaNs are the same whatever their payload.
std::size_t first_difference(const Floats& a, const Floats& b) {
  REQUIRE(a.size() == b.size());
  return static_cast<std::size_t>(std::mismatch(a.begin(), a.end(), b.begin(), same).first -
                                  a.begin());
}
std::size_t first_difference(const Encoded& a, const Encoded& b) {
  REQUIRE(a.size() == b.size());
  return static_cast<std::size_t>(std::mismatch(a.begin(), a.end(), b.begin()).first - a.begin());
}

Encoded room_for(const plan::Codec& codec, std::size_t elements) {
  return Encoded(static_cast<std::size_t>(
      plan::encoded_size(codec, static_cast<std::int64_t>(elements)).count()));
}

/// Device memory that begins `shift` objects after where it would, and a copy of `content`.
template <typename T>
class OnDevice {
 public:
  OnDevice(const std::vector<T>& content, std::size_t shift)
      : memory_(content.size() + shift), shift_(shift) {
    check_cuda(cudaMemcpyAsync(memory_.data() + shift, content.data(), content.size() * sizeof(T),
                               cudaMemcpyHostToDevice, nullptr),
               "cudaMemcpyAsync");
  }
  std::span<T> span() const { return memory_.span().subspan(shift_); }
  std::vector<T> copy() const {
    std::vector<T> content(memory_.size() - shift_);
    check_cuda(cudaMemcpyAsync(content.data(), memory_.data() + shift_, content.size() * sizeof(T),
                               cudaMemcpyDeviceToHost, nullptr),
               "cudaMemcpyAsync");
    check_cuda(cudaStreamSynchronize(nullptr), "cudaStreamSynchronize");
    return content;
  }

 private:
  DeviceBuffer<T> memory_;
  std::size_t shift_;
};

struct Result {
  Encoded bytes;
  Floats residual;
};

Result encode_on_cpu(const plan::Codec& codec, const Floats& input, Floats residual,
                     EncodeKey key) {
  Result result{room_for(codec, input.size()), std::move(residual)};
  make_codec(codec)->encode(input, result.residual, key, result.bytes);
  return result;
}

/// Thread blocks per multiprocessor: as many as there is work for, or so few that each goes on from
/// one part of the data to the next.
constexpr std::array<unsigned, 2> kGrids = {4096, 3};

Result encode_on_gpu(const DeviceCodec& device, const Floats& input, const Floats& residual,
                     EncodeKey key, std::size_t shift) {
  const OnDevice<float> values(input, shift);
  const OnDevice<float> errors(residual, shift);
  const OnDevice<std::byte> bytes(room_for(device.descriptor(), input.size()), 8 * shift);
  const DeviceBuffer<std::byte> scratch(device.scratch_bytes(input.size()));
  device.encode({.input = values.span(),
                 .residual = errors.span(),
                 .output = bytes.span(),
                 .scratch = scratch.span(),
                 .key = key},
                nullptr);
  return {bytes.copy(), errors.copy()};
}

/// By all grids, which must agree.
Result encode_on_gpu(const plan::Codec& codec, const Floats& input, const Floats& residual,
                     EncodeKey key, std::size_t shift = 0) {
  const auto by = [&](unsigned grid) {
    return encode_on_gpu(*make_device_codec(codec, grid), input, residual, key, shift);
  };
  Result result = by(kGrids[0]);
  const Result other = by(kGrids[1]);
  CHECK(first_difference(result.bytes, other.bytes) == result.bytes.size());
  CHECK(first_difference(result.residual, other.residual) == result.residual.size());
  return result;
}

Floats decode_on_gpu(const DeviceCodec& device, const Encoded& encoded, Into into,
                     const Floats& before, std::size_t shift) {
  const OnDevice<std::byte> bytes(encoded, 8 * shift);
  const OnDevice<float> output(before, shift);
  const OnDevice<std::uint32_t> refused(std::vector<std::uint32_t>{0}, 0);
  device.decode(bytes.span(), into, output.span(), refused.span().data(), nullptr);
  const Floats decoded = output.copy();
  CHECK(refused.copy()[0] == 0);
  return decoded;
}

/// By all grids, which must agree.
Floats decode_on_gpu(const plan::Codec& codec, const Encoded& encoded, Into into,
                     const Floats& before, std::size_t shift = 0) {
  const auto by = [&](unsigned grid) {
    return decode_on_gpu(*make_device_codec(codec, grid), encoded, into, before, shift);
  };
  const Floats decoded = by(kGrids[0]);
  CHECK(first_difference(decoded, by(kGrids[1])) == decoded.size());
  return decoded;
}

/// The codes of casts and the entries of top-k have NaNs too, whose payload may differ after an
/// addition, so what is encoded is compared as what it decodes to.
void check_same_encoding(const plan::Codec& codec, const Result& gpu, const Result& cpu,
                         std::size_t size, bool exactly) {
  if (exactly) {
    CHECK(first_difference(gpu.bytes, cpu.bytes) == cpu.bytes.size());
  }
  Floats from_gpu(size);
  Floats from_cpu(size);
  make_codec(codec)->decode(gpu.bytes, from_gpu);
  make_codec(codec)->decode(cpu.bytes, from_cpu);
  CHECK(first_difference(from_gpu, from_cpu) == size);
  CHECK(first_difference(gpu.residual, cpu.residual) == cpu.residual.size());
}

TEST_CASE("device codec: the bytes, residuals and sums of the CPU", "[slow]") {
  if (const auto reason = cuda_status().unavailable) RACKRAIL_SKIP(*reason);
  const std::string name = GENERATE(from_range(kNames));
  const std::size_t shift = GENERATE(0, 1);  // 1: not aligned for vectors
  const plan::Codec codec = plan::parse_codec(name);
  for (const std::size_t size : kSizes) {
    for (const bool with_overflow : {false, true}) {
      const auto seed = static_cast<unsigned>(size) + 1;
      CAPTURE(name, shift, size, with_overflow, seed);
      const Floats input = gradients(size, seed, with_overflow);
      const EncodeKey key{.stream = 7 * seed, .first_element = 12'345};
      const Result plain = encode_on_gpu(codec, input, {}, key, shift);
      check_same_encoding(codec, plain, encode_on_cpu(codec, input, {}, key), size, true);
      const Floats residual = gradients(size, seed + 1, false);
      check_same_encoding(codec, encode_on_gpu(codec, input, residual, key, shift),
                          encode_on_cpu(codec, input, residual, key), size, !with_overflow);

      Floats decoded(size, 5.0F);
      make_codec(codec)->decode(plain.bytes, decoded);
      CHECK(first_difference(
                decode_on_gpu(codec, plain.bytes, Into::kStore, Floats(size, 3.0F), shift),
                decoded) == size);
      Floats sum = residual;
      make_codec(codec)->decode_add(plain.bytes, sum);
      CHECK(first_difference(decode_on_gpu(codec, plain.bytes, Into::kAdd, residual, shift), sum) ==
            size);
    }
  }
}

TEST_CASE("device codec: the sum of payloads, encoded again") {
  if (const auto reason = cuda_status().unavailable) RACKRAIL_SKIP(*reason);
  const std::string name = GENERATE("fp16", "bf16", "int8", "int8:block=100", "int8:block=512",
                                    "fp8", "fp8:block=128", "fp8e5m2");
  const std::size_t count = GENERATE(1, 2, 3, 8, 16);
  const bool has_residual = GENERATE(false, true);
  const bool has_input = GENERATE(false, true);
  const plan::Codec codec = plan::parse_codec(name);
  const auto cpu = make_codec(codec);
  const auto device = make_device_codec(codec, GENERATE(kGrids[0], kGrids[1]));
  REQUIRE(device->can_reduce());
  for (const std::size_t size : {1UL, 100UL, 513UL, 5'000UL}) {
    const auto seed = static_cast<unsigned>(size + count);
    CAPTURE(name, count, has_residual, has_input, size, seed);
    std::vector<Encoded> payloads;
    std::vector<OnDevice<std::byte>> on_device;
    std::vector<const std::byte*> pointers;
    const Floats input_of_sum = has_input ? gradients(size, seed + 77, false) : Floats{};
    Floats sum = has_input ? input_of_sum : Floats(size, 9.0F);
    for (std::size_t p = 0; p < count; ++p) {
      const Floats input = gradients(size, seed + static_cast<unsigned>(p), false);
      payloads.push_back(encode_on_cpu(codec, input, {}, {.stream = p}).bytes);
      on_device.emplace_back(payloads.back(), 0);
      pointers.push_back(on_device.back().span().data());
      if (p == 0 && !has_input) {
        cpu->decode(payloads.back(), sum);
      } else {
        cpu->decode_add(payloads.back(), sum);
      }
    }
    const Floats residual = has_residual ? gradients(size, seed + 99, false) : Floats{};
    const EncodeKey key{.stream = seed, .first_element = 4'096};
    const OnDevice<float> errors(residual, 0);
    const OnDevice<float> start(input_of_sum, size % 2);  // aligned for vectors, or not
    const OnDevice<std::byte> bytes(room_for(codec, size), 0);
    device->reduce(pointers, size,
                   {.input = start.span(),
                    .residual = errors.span(),
                    .output = bytes.span(),
                    .scratch = {},
                    .key = key},
                   nullptr);
    check_same_encoding(codec, {bytes.copy(), errors.copy()},
                        encode_on_cpu(codec, sum, residual, key), size, true);
  }
}

TEST_CASE("device codec: a stream of random numbers that lies on the device") {
  if (const auto reason = cuda_status().unavailable) RACKRAIL_SKIP(*reason);
  const plan::Codec codec = plan::parse_codec(GENERATE("int8", "randomk"));
  CAPTURE(plan::to_string(codec));
  const Floats input = gradients(3'000, 5, false);
  const auto device = make_device_codec(codec);
  const OnDevice<float> values(input, 0);
  const OnDevice<std::byte> bytes(room_for(codec, input.size()), 0);
  const OnDevice<std::uint64_t> stream(std::vector<std::uint64_t>{77}, 0);
  const DeviceBuffer<std::byte> scratch(device->scratch_bytes(input.size()));
  device->encode({.input = values.span(),
                  .residual = {},
                  .output = bytes.span(),
                  .scratch = scratch.span(),
                  .key = {.stream = 1, .first_element = 8},
                  .stream_on_device = stream.span().data()},
                 nullptr);
  const auto with = [&](std::uint64_t number) {
    return encode_on_cpu(codec, input, {}, {.stream = number, .first_element = 8}).bytes;
  };
  CHECK(first_difference(bytes.copy(), with(77)) == bytes.span().size());
  CHECK(with(77) != with(1));
}

TEST_CASE("device codec: casts with a scale are casts of scaled values") {
  if (const auto reason = cuda_status().unavailable) RACKRAIL_SKIP(*reason);
  const Rounding rounding = GENERATE(Rounding::kHalf, Rounding::kBfloat16);
  const plan::Codec codec = plan::parse_codec(rounding == Rounding::kHalf ? "fp16" : "bf16");
  constexpr float kScale = 0.3F;  // its products are rounded
  const Launch launch{.stream = nullptr, .most_blocks = 2};
  for (const std::size_t size : {1UL, 7UL, 5'001UL}) {
    CAPTURE(plan::to_string(codec), size);
    const Floats input = gradients(size, 21, true);
    Floats scaled = input;
    for (float& value : scaled) {
      value *= kScale;
    }
    const Encoded expected = encode_on_cpu(codec, scaled, {}, {}).bytes;
    const OnDevice<float> values(input, 0);
    const OnDevice<std::byte> bytes(room_for(codec, size), 0);
    encode_rounded(rounding,
                   {.input = values.span().data(), .output = bytes.span().data(), .elements = size},
                   kScale, launch);
    check_same_encoding(codec, {bytes.copy(), {}}, {expected, {}}, size, false);
    Floats decoded(size);
    make_codec(codec)->decode(expected, decoded);
    Floats sums = input;
    for (std::size_t i = 0; i < size; ++i) {
      decoded[i] *= kScale;
      sums[i] += decoded[i];
    }
    const OnDevice<std::byte> codes(expected, 0);
    for (const Into into : {Into::kStore, Into::kAdd}) {
      const OnDevice<float> output(input, 0);
      decode_rounded(rounding, codes.span().data(), kScale, into, output.span().data(), size,
                     launch);
      CHECK(first_difference(output.copy(), into == Into::kAdd ? sums : decoded) == size);
    }
  }
}

/// What misleads a sample, or fills more than the room for candidates.
Floats hard_for_top_k(const std::string& what, std::size_t size) {
  Floats values = gradients(size, 3, false);
  std::mt19937 random(11);
  if (what == "equal") {
    values.assign(size, -2.5F);
  } else if (what == "zeros") {
    values.assign(size, 0.0F);
  } else if (what == "few values") {
    std::generate(values.begin(), values.end(), [&] { return static_cast<float>(random() % 3); });
  } else if (what == "ascending") {
    for (std::size_t i = 0; i < size; ++i) {
      values[i] = static_cast<float>(i);
    }
  } else if (what == "one large part") {
    for (std::size_t i = size / 5; i < size / 5 + size / 100 + 5; ++i) {
      values[i] *= 0x1p40F;
    }
  } else if (what == "not finite") {
    for (std::size_t i = 0; i < size; i += 9) {
      values[i] = i % 2 == 0 ? std::numeric_limits<float>::quiet_NaN()
                             : std::numeric_limits<float>::infinity();
    }
  } else if (what == "every 64th") {
    for (std::size_t i = 0; i < size; ++i) {
      values[i] = i % 64 == 0 ? 1 + 1e-6F * static_cast<float>(i) : 1e-3F;
    }
  }
  return values;
}

TEST_CASE("device codec: top-k keeps what the CPU keeps, whatever the data", "[slow]") {
  if (const auto reason = cuda_status().unavailable) RACKRAIL_SKIP(*reason);
  const std::string what = GENERATE("normal", "equal", "zeros", "few values", "ascending",
                                    "one large part", "not finite", "every 64th");
  const std::string name = GENERATE("topk", "topk:density=0.0001", "topk:density=0.2");
  const bool has_residual = GENERATE(false, true);
  constexpr std::size_t kSize = 300'003;  // more than are sampled
  CAPTURE(what, name, has_residual);
  const plan::Codec codec = plan::parse_codec(name);
  const Floats input = hard_for_top_k(what, kSize);
  const Floats residual = has_residual ? Floats(kSize, 0.25F) : Floats{};
  check_same_encoding(codec, encode_on_gpu(codec, input, residual, {}),
                      encode_on_cpu(codec, input, residual, {}), kSize, what != "not finite");
}

TEST_CASE("device codec: random-k over more elements than 32 bits of a product hold") {
  if (const auto reason = cuda_status().unavailable) RACKRAIL_SKIP(*reason);
  constexpr std::size_t kSize = 300'007;  // squared it is more than 2³²
  const plan::Codec codec = plan::parse_codec(GENERATE("randomk:density=0.4", "randomk"));
  const std::string what = GENERATE("usual", "one infinity", "overflow of the sum");
  CAPTURE(plan::to_string(codec), what);
  Floats input = gradients(kSize, 17, false);
  Floats residual = gradients(kSize, 18, false);
  if (what == "one infinity") {
    input[kSize - 2] = -std::numeric_limits<float>::infinity();
  } else if (what == "overflow of the sum") {
    input[77] = residual[77] = 3e38F;
  }
  const EncodeKey key{.stream = 3, .first_element = 5};
  check_same_encoding(codec, encode_on_gpu(codec, input, residual, key),
                      encode_on_cpu(codec, input, residual, key), kSize, true);
}

TEST_CASE("device codec: sizes that do not fit are refused") {
  if (const auto reason = cuda_status().unavailable) RACKRAIL_SKIP(*reason);
  const auto codec = make_device_codec(plan::parse_codec("int8"));
  const DeviceBuffer<float> input(100);
  const DeviceBuffer<std::byte> output(104);
  CHECK_THROWS_AS(
      codec->encode({.input = input.span(), .output = output.span().first(103)}, nullptr),
      RuntimeFailure);
  CHECK_THROWS_AS(
      codec->encode(
          {.input = input.span(), .residual = input.span().first(99), .output = output.span()},
          nullptr),
      RuntimeFailure);
  CHECK_THROWS_AS(
      codec->decode(output.span(), Into::kStore, input.span().first(99), nullptr, nullptr),
      RuntimeFailure);
  const std::vector<const std::byte*> many(kMostPayloads + 1, output.data());
  CHECK_THROWS_AS(codec->reduce(many, 100, {.output = output.span()}, nullptr), RuntimeFailure);
  CHECK_THROWS_AS(codec->reduce({}, 100, {.output = output.span()}, nullptr), RuntimeFailure);
  const auto top_k = make_device_codec(plan::parse_codec("topk"));
  CHECK_FALSE(top_k->can_reduce());
  CHECK_THROWS_AS(top_k->encode({.input = input.span(), .output = output.span().first(8)}, nullptr),
                  RuntimeFailure);  // without its scratch memory
  CHECK_THROWS_AS(make_device_codec(plan::Codec{.kind = codec->descriptor().kind, .block = 0}),
                  RuntimeFailure);
}

}  // namespace
}  // namespace rackrail::runtime::device_codec_test
