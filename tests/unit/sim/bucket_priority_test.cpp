// Which bucket goes first where several compete, against closed forms and a brute-force queue.
#include <algorithm>
#include <catch2/catch.hpp>
#include <random>
#include <utility>
#include <vector>

#include "sim/simulator.hpp"
#include "sim/urgency_queue.hpp"
#include "tests/support/free_devices.hpp"

namespace rackrail::sim::bucket_priority_test {
namespace {

using topology::NodeKind;
using topology::Topology;

constexpr Bandwidth kRate(1'000'000'000);
constexpr Bandwidth kFast(1'000'000'000'000'000);

// Rank 0 sends to rank 1 over one link; buckets of 4,096,000 bytes, ready at the given times of a
// backward of 12 ms. Slices of 4,096 bytes take 4.096 us each, so a bucket takes 4.096 ms.
struct Competition {
  Topology topology{"pair"};
  plan::Workload workload;
  plan::Plan plan;
  SimulationOptions options;

  explicit Competition(const std::vector<std::uint32_t>& priorities,
                       const plan::Codec& codec = {}) {
    const NodeId a = topology.add_node({.name = "a", .kind = NodeKind::kHost, .host = "a"});
    const NodeId b = topology.add_node({.name = "b", .kind = NodeKind::kHost, .host = "b"});
    topology.add_rank(a);
    topology.add_rank(b);
    topology.add_duplex_link({.from = a, .to = b, .bandwidth = kRate});
    constexpr std::int64_t kElements = 1'024'000;
    workload.name = "layers";
    workload.forward = Duration();
    workload.optimizer = Duration();
    workload.fixed_share = 0;
    plan.name = "competition";
    plan.rank_names = {"a", "b"};
    plan::TransferGraph graph("one way", plan::Collective::kAllReduce, 2, {1});
    const std::uint8_t code = graph.add_codec(codec);
    graph.add_transfer({.src = Rank(0), .dst = Rank(1), .codec = code}, {});
    plan.schedules = {graph};
    for (std::uint32_t i = 0; i < priorities.size(); ++i) {
      workload.tensors.push_back({"layer " + std::to_string(i), kElements, 1_ms});
      plan.buckets.push_back({.tensors = {i},
                              .elements = kElements,
                              .slice_elements = 1024,
                              .priority = priorities[i]});
    }
    plan.workload_name = workload.name;
    plan.workload_digest = workload.digest();
    plan.batch.local_batch = {1, 1};
    options.device_rates = test::free_devices();
  }
  std::vector<Duration> done() const {
    return simulate_step(plan, workload, topology, options).estimate.bucket_done;
  }
};

// Buckets become ready at 1, 2 and 3 ms; 4.096 ms each over the link. A slice takes 4.096 us, so at
// 2 ms slice 245 of bucket 0 is on the way and ends at 1 ms + 245 · 4.096 us = 2.00352 ms.
TEST_CASE("an urgent bucket takes the link at the next slice, and the other one goes on after it") {
  constexpr Duration kBucket(4'096'000'000);
  constexpr Duration kTurn(1'000'000'000 + 245 * 4'096'000LL);
  const std::vector<Duration> urgent = Competition({1, 0}).done();
  CHECK(urgent[1] == kTurn + kBucket);
  CHECK(urgent[0] == 1_ms + kBucket + kBucket);

  const std::vector<Duration> in_order = Competition({0, 1}).done();
  CHECK(in_order[0] == 1_ms + kBucket);
  CHECK(in_order[1] == 1_ms + kBucket + kBucket);
  CHECK(Competition({0, 0}).done() == in_order);
}

TEST_CASE("three buckets, each more urgent than the last, end in the opposite order") {
  constexpr Duration kBucket(4'096'000'000);
  constexpr Duration kSlice(4'096'000);
  const std::vector<Duration> done = Competition({2, 1, 0}).done();
  // Bucket 2 waits for the slice of bucket 1 that is on the way at 3 ms, which began when slice
  // 245 of bucket 0 had ended, and is its 244th: 2.00352 ms + 244 · 4.096 us = 3.002944 ms.
  const Duration turn = 1_ms + 245 * kSlice + 244 * kSlice;
  CHECK(done[2] == turn + kBucket);
  CHECK(done[1] == 1_ms + 245 * kSlice + kBucket + kBucket);
  CHECK(done[0] == 1_ms + kBucket + kBucket + kBucket);
}

TEST_CASE("with one slice per bucket nothing is overtaken that has begun") {
  Competition whole({2, 1, 0});
  for (plan::Bucket& bucket : whole.plan.buckets) {
    bucket.slice_elements = 1'024'000;
  }
  constexpr Duration kBucket(4'096'000'000);
  // At 5.096 ms both others wait: the urgent one goes first.
  const std::vector<Duration> done = whole.done();
  CHECK(done[0] == 1_ms + kBucket);
  CHECK(done[2] == 1_ms + kBucket + kBucket);
  CHECK(done[1] == 1_ms + kBucket + kBucket + kBucket);
}

TEST_CASE("an urgent bucket overtakes what waits to be encoded") {
  constexpr plan::Codec kFp16{.kind = plan::CodecKind::kFp16};
  const auto at_rate = [&](const std::vector<std::uint32_t>& priorities) {
    Competition slow(priorities, kFp16);
    // The link is twice as fast as it need be, so encoding at 1 GB/s decides: 4.096 us a slice.
    slow.options.device_rates->codecs[static_cast<std::size_t>(kFp16.kind)] = {kRate, kFast};
    return slow.done();
  };
  constexpr Duration kBucket(4'096'000'000);
  // After its last slice is encoded: the sender's own decoding of 4,096 bytes (a copy), the wire
  // with half of them, the receiver's decoding; each slice's own decoding delays all that follow.
  constexpr Duration kOwn(5);  // 4,096 bytes at 1e15 B/s, rounded up
  const Duration rest = Duration(2'048'000) + kOwn;
  const Duration encoded = kBucket + 1000 * kOwn;
  const std::vector<Duration> in_order = at_rate({0, 1});
  CHECK(in_order[0] == 1_ms + encoded + rest);
  CHECK(in_order[1] == 1_ms + encoded + encoded + rest);
  const std::vector<Duration> urgent = at_rate({1, 0});
  CHECK(urgent[1] == 1_ms + 245 * (Duration(4'096'000) + kOwn) + encoded + rest);
  CHECK(urgent[0] == 1_ms + encoded + encoded + rest);
}

TEST_CASE("what an earlier step still has to send comes before all of a later one") {
  // Steps of 2 ms whose gradients take 8.192 ms and may be late by any number of steps.
  Competition late({1, 0});
  late.options.steps = 3;
  late.options.staleness = 3;
  const StepResult result = simulate_step(late.plan, late.workload, late.topology, late.options);
  constexpr Duration kBucket(4'096'000'000);
  // The first bucket of step 0 is ready at 1 ms; from then on the link never rests, and the last
  // step's less urgent bucket is the last one to end. Times are since the last step's start, 4 ms.
  CHECK(result.estimate.bucket_done[0] == 1_ms + 6 * kBucket - 4_ms);
  CHECK(result.estimate.bucket_done[1] == 1_ms + 5 * kBucket - 4_ms);
}

TEST_CASE("an urgency queue gives the most urgent first, and equals in the order they came") {
  const unsigned seed = GENERATE(1U, 2U, 3U);
  CAPTURE(seed);
  std::mt19937 random(seed);
  UrgencyQueue<int> queue;
  std::vector<std::pair<Urgency, int>> waiting;  // in the order of arrival
  for (int i = 0; i < 5000; ++i) {
    if (random() % 2 == 0) {
      const Urgency urgency = urgency_of(random() % 2, random() % 4);
      queue.push(urgency) = i;
      waiting.emplace_back(urgency, i);
    } else if (!waiting.empty()) {
      const auto first =
          std::min_element(waiting.begin(), waiting.end(),
                           [](const auto& a, const auto& b) { return a.first < b.first; });
      REQUIRE(queue.front() == first->second);
      queue.pop_front();
      waiting.erase(first);
    }
    REQUIRE(queue.empty() == waiting.empty());
  }
}

}  // namespace
}  // namespace rackrail::sim::bucket_priority_test
