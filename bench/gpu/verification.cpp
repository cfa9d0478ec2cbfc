#include "bench/gpu/verification.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <span>

#include "bench/gpu/sample.hpp"
#include "runtime/codec.hpp"
#include "runtime/cuda/device_codec.hpp"
#include "runtime/cuda/graph.hpp"
#include "runtime/cuda/handles.hpp"

namespace rackrail::bench {
namespace {

using runtime::DeviceBuffer;
using runtime::Into;

constexpr int kPoison = 0xa5;
constexpr std::size_t kSummedPayloads = 8;

template <typename T>
void poison(const DeviceBuffer<T>& buffer, cudaStream_t stream) {
  runtime::check_cuda(cudaMemsetAsync(buffer.data(), kPoison, buffer.size() * sizeof(T), stream),
                      "cudaMemsetAsync");
}

template <typename T>
std::string compare(const DeviceBuffer<T>& found, std::span<const T> expected,
                    cudaStream_t stream) {
  std::vector<T> content(expected.size());
  runtime::copy_to_host(found, std::span<T>(content), stream);
  runtime::check_cuda(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
  if (std::memcmp(content.data(), expected.data(), expected.size_bytes()) == 0) {
    return {};
  }
  std::size_t wrong = 0;
  std::optional<std::size_t> first;
  for (std::size_t i = 0; i < content.size(); ++i) {
    if (std::memcmp(&content[i], &expected[i], sizeof(T)) != 0) {
      ++wrong;
      first = first.value_or(i);
    }
  }
  return fmt::format("{} of {} differ, the first at {}", wrong, content.size(), first.value_or(0));
}

/// One codec's checks over the same gradients.
class Verifier {
 public:
  Verifier(const plan::Codec& codec, std::size_t elements, std::uint64_t seed)
      : cpu_(runtime::make_codec(codec)),
        gpu_(runtime::make_device_codec(codec)),
        looping_(runtime::make_device_codec(codec, 1)),
        input_(random_gradients(elements, seed)),
        residual_(random_gradients(elements, seed + 10)),
        key_{.stream = seed, .first_element = 777},
        bytes_(static_cast<std::size_t>(
            plan::encoded_size(codec, static_cast<std::int64_t>(elements)).count())),
        values_(elements),
        errors_(elements),
        sums_(elements),
        output_(bytes_.size()),
        scratch_(gpu_->scratch_bytes(elements)),
        word_(1) {
    runtime::copy_to_device<float>(input_, values_, stream_.get());
  }

  std::vector<Verification> run() {
    check_encode();
    check_decode();
    check_feedback();
    if (gpu_->can_reduce()) {
      check_reduce();
    }
    check_graphs();
    return std::move(results_);
  }

 private:
  cudaStream_t stream() const { return stream_.get(); }
  runtime::DeviceEncoding encoding(bool with_residual) const {
    return {.input = values_.span(),
            .residual = with_residual ? errors_.span() : std::span<float>{},
            .output = output_.span(),
            .scratch = scratch_.span(),
            .key = key_};
  }
  void add(const std::string& what, const std::string& problem) {
    results_.push_back({plan::to_string(cpu_->descriptor()), what, problem});
  }

  std::uint32_t* none_refused() const {
    runtime::check_cuda(cudaMemsetAsync(word_.data(), 0, sizeof(std::uint64_t), stream()),
                        "cudaMemsetAsync");
    return reinterpret_cast<std::uint32_t*>(word_.data());
  }

  void check_encode() {
    cpu_->encode(input_, {}, key_, bytes_);
    poison(output_, stream());
    poison(scratch_, stream());
    gpu_->encode(encoding(false), stream());
    add("encode", compare<std::byte>(output_, bytes_, stream()));
  }

  void check_decode() {
    std::vector<float> expected(input_.size());
    cpu_->decode(bytes_, expected);
    runtime::copy_to_device<std::byte>(bytes_, output_, stream());
    std::uint32_t* const refused = none_refused();
    poison(sums_, stream());
    gpu_->decode(output_.span(), Into::kStore, sums_.span(), refused, stream());
    add("decode", compare<float>(sums_, expected, stream()));
    cpu_->decode_add(bytes_, expected);
    gpu_->decode(output_.span(), Into::kAdd, sums_.span(), refused, stream());
    add("decode and add", compare<float>(sums_, expected, stream()));
  }

  void check_feedback() {
    std::vector<float> residual = residual_;
    std::vector<std::byte> expected(bytes_.size());
    cpu_->encode(input_, residual, key_, expected);
    runtime::copy_to_device<float>(residual_, errors_, stream());
    poison(output_, stream());
    looping_->encode(encoding(true), stream());
    add("encode with feedback", compare<std::byte>(output_, expected, stream()));
    add("its residual", compare<float>(errors_, residual, stream()));
  }

  /// Payloads alone, and added to floats as executors do.
  void check_reduce() {
    std::vector<DeviceBuffer<std::byte>> payloads;
    std::vector<const std::byte*> pointers;
    std::vector<float> sum(input_.size());
    std::vector<float> onto_floats = input_;
    std::vector<std::byte> expected(bytes_.size());
    for (std::size_t p = 0; p < kSummedPayloads; ++p) {
      cpu_->encode(p % 2 == 0 ? input_ : residual_, {}, {.stream = p}, expected);
      payloads.emplace_back(expected.size());
      runtime::copy_to_device<std::byte>(expected, payloads.back(), stream());
      stream_.synchronize();
      pointers.push_back(payloads.back().data());
      if (p == 0) {
        cpu_->decode(expected, sum);
      } else {
        cpu_->decode_add(expected, sum);
      }
      cpu_->decode_add(expected, onto_floats);
    }
    runtime::DeviceEncoding reduction = encoding(false);
    cpu_->encode(onto_floats, {}, key_, expected);
    poison(output_, stream());
    gpu_->reduce(pointers, sum.size(), reduction, stream());
    add("reduce of 8 and floats", compare<std::byte>(output_, expected, stream()));
    reduction.input = {};
    cpu_->encode(sum, {}, key_, expected);
    poison(output_, stream());
    looping_->reduce(pointers, sum.size(), reduction, stream());
    add("reduce of 8", compare<std::byte>(output_, expected, stream()));
  }

  /// Each graph is captured once and launched twice; what it reads, the random stream's number
  /// among it, changes in between.
  void check_graphs() {
    check_graph_of_encode();
    check_graph_of_decode(Into::kStore, "decode in a graph");
    check_graph_of_decode(Into::kAdd, "decode and add in a graph");
    check_graph_of_feedback();
    if (gpu_->can_reduce()) {
      check_graph_of_reduce();
    }
  }

  /// For each launch: which random stream it is to take, and what is to be encoded.
  struct Launch {
    std::uint64_t number;
    const std::vector<float>& values;
  };
  std::array<Launch, 2> launches() const { return {{{1'000, input_}, {1'001, residual_}}}; }
  runtime::EncodeKey key_of(const Launch& launch) const {
    return {.stream = launch.number, .first_element = key_.first_element};
  }
  void give(const Launch& launch) {
    runtime::copy_to_device<float>(launch.values, values_, stream());
    runtime::copy_to_device<std::uint64_t>(std::span(&launch.number, 1), word_, stream());
    poison(output_, stream());
    poison(scratch_, stream());
    stream_.synchronize();  // what is copied from may go
  }
  runtime::DeviceEncoding captured_encoding(bool with_residual) const {
    runtime::DeviceEncoding captured = encoding(with_residual);
    captured.stream_on_device = word_.data();
    return captured;
  }

  void check_graph_of_encode() {
    const runtime::CudaGraph graph(
        stream(), [&](cudaStream_t stream) { gpu_->encode(captured_encoding(false), stream); });
    std::string problem;
    for (const Launch& launch : launches()) {
      give(launch);
      graph.launch(stream());
      cpu_->encode(launch.values, {}, key_of(launch), bytes_);
      problem += compare<std::byte>(output_, bytes_, stream());
    }
    add("encode in a graph", problem);
  }

  void check_graph_of_decode(Into into, const std::string& what) {
    std::uint32_t* const refused = none_refused();
    const runtime::CudaGraph graph(stream(), [&](cudaStream_t stream) {
      gpu_->decode(output_.span(), into, sums_.span(), refused, stream);
    });
    std::vector<float> expected = input_;
    runtime::copy_to_device<float>(expected, sums_, stream());
    std::string problem;
    for (const Launch& launch : launches()) {
      cpu_->encode(launch.values, {}, key_of(launch), bytes_);
      runtime::copy_to_device<std::byte>(bytes_, output_, stream());
      graph.launch(stream());
      if (into == Into::kStore) {
        cpu_->decode(bytes_, expected);
      } else {
        cpu_->decode_add(bytes_, expected);
      }
      problem += compare<float>(sums_, expected, stream());
    }
    add(what, problem);
  }

  /// The second launch goes on with the residual of the first.
  void check_graph_of_feedback() {
    const runtime::CudaGraph graph(
        stream(), [&](cudaStream_t stream) { gpu_->encode(captured_encoding(true), stream); });
    std::vector<float> residual = residual_;
    runtime::copy_to_device<float>(residual, errors_, stream());
    std::string problem;
    for (const Launch& launch : launches()) {
      give(launch);
      graph.launch(stream());
      cpu_->encode(launch.values, residual, key_of(launch), bytes_);
      problem += compare<std::byte>(output_, bytes_, stream());
      problem += compare<float>(errors_, residual, stream());
    }
    add("encode with feedback in a graph", problem);
  }

  void check_graph_of_reduce() {
    std::array<DeviceBuffer<std::byte>, 2> payloads{DeviceBuffer<std::byte>(bytes_.size()),
                                                    DeviceBuffer<std::byte>(bytes_.size())};
    const std::array<const std::byte*, 2> pointers{payloads[0].data(), payloads[1].data()};
    const runtime::CudaGraph graph(stream(), [&](cudaStream_t stream) {
      gpu_->reduce(pointers, input_.size(), captured_encoding(false), stream);
    });
    std::string problem;
    for (const Launch& launch : launches()) {
      std::vector<float> sum = launch.values;
      for (std::size_t p = 0; p < payloads.size(); ++p) {
        cpu_->encode(p == 0 ? residual_ : launch.values, {}, key_of(launch), bytes_);
        runtime::copy_to_device<std::byte>(bytes_, payloads[p], stream());
        stream_.synchronize();
        cpu_->decode_add(bytes_, sum);
      }
      give(launch);
      graph.launch(stream());
      cpu_->encode(sum, {}, key_of(launch), bytes_);
      problem += compare<std::byte>(output_, bytes_, stream());
    }
    add("reduce of 2 and floats in a graph", problem);
  }

  std::unique_ptr<runtime::Codec> cpu_;
  std::unique_ptr<runtime::DeviceCodec> gpu_;
  std::unique_ptr<runtime::DeviceCodec> looping_;  ///< whose thread blocks go on to more data
  runtime::CudaStream stream_;
  std::vector<float> input_;
  std::vector<float> residual_;
  runtime::EncodeKey key_;
  std::vector<std::byte> bytes_;
  DeviceBuffer<float> values_;
  DeviceBuffer<float> errors_;
  DeviceBuffer<float> sums_;
  DeviceBuffer<std::byte> output_;
  DeviceBuffer<std::byte> scratch_;
  DeviceBuffer<std::uint64_t> word_;
  std::vector<Verification> results_;
};

}  // namespace

std::vector<Verification> verify_codec(const plan::Codec& codec, std::size_t elements,
                                       std::uint64_t seed) {
  return Verifier(codec, elements, seed).run();
}

}  // namespace rackrail::bench
