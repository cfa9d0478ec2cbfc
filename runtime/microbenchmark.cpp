#include "runtime/microbenchmark.hpp"

#include <sys/resource.h>
#include <time.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/random.hpp"
#include "plan/plan.hpp"
#include "plan/transfer_graph.hpp"
#include "runtime/codec.hpp"
#include "runtime/executor.hpp"
#include "runtime/transport.hpp"

namespace rackrail::runtime {

namespace {

constexpr std::int64_t kSliceElements = 1 << 18;
constexpr int kCodecRuns = 9;
constexpr std::int64_t kSmallElements = 1 << 10;
constexpr std::int64_t kLargeElements = 1 << 21;
constexpr int kSmallSteps = 200;
constexpr int kLargeSteps = 12;
constexpr double kSecondsPerNanosecond = 1e-9;
constexpr double kSecondsPerMicrosecond = 1e-6;

double thread_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * kSecondsPerNanosecond;
}

double process_seconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) * kSecondsPerMicrosecond;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

template <typename Work>
Bandwidth median_rate(std::int64_t bytes, Work work) {
  std::vector<double> seconds;
  for (int i = 0; i < kCodecRuns; ++i) {
    const double start = thread_seconds();
    work();
    seconds.push_back(std::max(1e-9, thread_seconds() - start));
  }
  std::nth_element(seconds.begin(), seconds.begin() + kCodecRuns / 2, seconds.end());
  return Bandwidth(static_cast<std::int64_t>(static_cast<double>(bytes) / seconds[kCodecRuns / 2]));
}

std::vector<float> gradient(std::int64_t elements) {
  std::vector<float> values;
  for (std::int64_t i = 0; i < elements; ++i) {
    values.push_back(random_unit_float(1, static_cast<std::uint64_t>(i)) - 0.5F);
  }
  return values;
}

// One hop to the owner of each chunk and one back: the fewest messages that use every pair.
plan::TransferGraph one_hop_graph(std::size_t ranks) {
  plan::TransferGraph graph("one hop", plan::Collective::kAllReduce, ranks,
                            std::vector<std::uint32_t>(ranks, 1));
  const RouteId unpinned = graph.add_route({});
  std::vector<std::vector<TransferId>> into(ranks);
  const auto transfer = [&](std::size_t src, std::size_t dst, std::size_t chunk,
                            plan::TransferOp op) {
    return plan::Transfer{.src = Rank(src),
                          .dst = Rank(dst),
                          .chunk_begin = static_cast<std::uint32_t>(chunk),
                          .op = op,
                          .route = unpinned};
  };
  for (std::size_t src = 0; src < ranks; ++src) {
    for (std::size_t owner = 0; owner < ranks; ++owner) {
      if (src != owner) {
        into[owner].push_back(
            graph.add_transfer(transfer(src, owner, owner, plan::TransferOp::kReduce), {}));
      }
    }
  }
  for (std::size_t owner = 0; owner < ranks; ++owner) {
    for (std::size_t dst = 0; dst < ranks; ++dst) {
      if (dst != owner) {
        graph.add_transfer(transfer(owner, dst, owner, plan::TransferOp::kCopy), into[owner]);
      }
    }
  }
  return graph;
}

struct Cost {
  double core_seconds = 0;  ///< per step
  double wall_seconds = 0;  ///< per step
  double messages = 0;      ///< per step
  double bytes = 0;         ///< per step
};

Cost measure_steps(std::string_view transport_name, std::size_t ranks, std::int64_t elements,
                   int steps) {
  plan::Plan plan;
  plan.name = "calibration";
  plan.rank_names.assign(ranks, "rank");
  plan.schedules.push_back(one_hop_graph(ranks));
  plan.buckets.push_back({.tensors = {0}, .elements = elements, .slice_elements = kSliceElements});
  std::vector<std::unique_ptr<Transport>> transports;
  std::vector<std::vector<std::byte>> addresses;
  for (std::size_t r = 0; r < ranks; ++r) {
    transports.push_back(make_transport(transport_name));
    addresses.push_back(transports.back()->address());
  }
  for (std::size_t r = 0; r < ranks; ++r) {
    transports[r]->connect(Rank(r), addresses);
  }
  std::vector<std::unique_ptr<Executor>> executors;
  std::vector<std::vector<float>> data;
  for (std::size_t r = 0; r < ranks; ++r) {
    executors.push_back(
        std::make_unique<Executor>(plan, Rank(r), *transports[r], ExecutorOptions{}));
    data.emplace_back(static_cast<std::size_t>(elements), 0.0F);
  }
  const auto run_steps = [&](std::uint32_t first, int count) {
    std::vector<std::thread> threads;
    for (std::size_t r = 0; r < ranks; ++r) {
      threads.emplace_back([&, r] {
        for (int s = 0; s < count; ++s) {
          executors[r]->begin_step(first + static_cast<std::uint32_t>(s));
          executors[r]->launch(BucketId(0), data[r]);
          executors[r]->wait_all();
        }
      });
    }
    for (std::thread& thread : threads) {
      thread.join();
    }
  };
  constexpr int kWarmup = 3;  // connections are made by the first messages
  run_steps(0, kWarmup);
  const double core = process_seconds();
  const auto wall = std::chrono::steady_clock::now();
  run_steps(kWarmup, steps);
  Cost cost;
  cost.core_seconds = (process_seconds() - core) / steps;
  cost.wall_seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - wall).count() / steps;
  const auto n = static_cast<double>(ranks);
  const plan::ElementRange chunk{0, elements / static_cast<std::int64_t>(ranks)};
  cost.messages = 2 * n * (n - 1) * static_cast<double>(plan::slice_count(chunk, kSliceElements));
  cost.bytes = 2 * (n - 1) * static_cast<double>(elements) * sizeof(float);
  executors.clear();
  std::vector<std::thread> closing;  // flushing needs the peers to make progress as well
  for (auto& transport : transports) {
    closing.emplace_back([&transport] { transport->close(Duration::from_seconds(1)); });
  }
  for (std::thread& thread : closing) {
    thread.join();
  }
  return cost;
}

}  // namespace

plan::DeviceRates measure_codec_rates() {
  plan::DeviceRates rates;
  const std::vector<float> input = gradient(kSliceElements);
  std::vector<float> output = input;
  constexpr std::int64_t kBytes = kSliceElements * 4;
  for (const plan::Codec& descriptor : plan::all_codecs()) {
    const auto codec = make_codec(descriptor);
    std::vector<std::byte> encoded(
        static_cast<std::size_t>(plan::encoded_size(descriptor, kSliceElements).count()));
    std::vector<float> residual(descriptor.has_error_feedback() ? input.size() : 0);
    rates.codecs[static_cast<std::size_t>(descriptor.kind)] = {
        median_rate(kBytes,
                    [&] {
                      codec->encode(input, residual, {1, 0}, encoded);
                    }),
        median_rate(kBytes, [&] { codec->decode_add(encoded, output); })};
  }
  const auto plain = make_codec(plan::Codec{});
  const auto* bytes = reinterpret_cast<const std::byte*>(input.data());
  rates.reduce = median_rate(kBytes, [&] { plain->decode_add({bytes, input.size() * 4}, output); });
  return rates;
}

MessageCosts measure_message_costs(std::string_view transport, std::size_t ranks,
                                   const plan::DeviceRates& rates) {
  Cost small = measure_steps(transport, ranks, kSmallElements, kSmallSteps);
  Cost large = measure_steps(transport, ranks, kLargeElements, kLargeSteps);
  // Half of the bytes are added at the receiver, which the simulator charges by itself.
  for (Cost* cost : {&small, &large}) {
    cost->core_seconds =
        std::max(0.0, cost->core_seconds -
                          cost->bytes / 2 / static_cast<double>(rates.reduce.bytes_per_second()));
  }
  const double determinant = small.messages * large.bytes - large.messages * small.bytes;
  const double per_byte =
      std::max(1e-12, (small.messages * large.core_seconds - large.messages * small.core_seconds) /
                          determinant);
  const double per_message =
      std::max(0.0, (small.core_seconds - per_byte * small.bytes) / small.messages);
  const Cost pair = measure_steps(transport, 2, 16, kSmallSteps);
  MessageCosts costs;
  costs.core_bandwidth = Bandwidth(static_cast<std::int64_t>(1 / per_byte));
  costs.message_overhead = Duration::from_seconds(per_message);
  // A pair's all-reduce is two messages one after the other on each side.
  costs.latency = Duration::from_seconds(std::max(0.0, pair.wall_seconds / 2 - per_message));
  return costs;
}

}  // namespace rackrail::runtime
