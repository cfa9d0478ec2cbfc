#include "planner/batch/equal_finish.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <functional>
#include <numeric>
#include <random>

#include "base/error.hpp"

namespace rackrail::planner::equal_finish_test {
namespace {

/// The smallest longest finish over every division of whole samples.
Duration brute_force(const std::vector<DeviceSpeed>& devices, std::int64_t samples) {
  std::optional<Duration> best;
  const std::function<void(std::size_t, std::int64_t, Duration)> go =
      [&](std::size_t i, std::int64_t left, Duration longest) {
        if (best && longest >= *best) {
          return;
        }
        if (i == devices.size()) {
          if (left == 0) {
            best = longest;
          }
          return;
        }
        for (std::int64_t b = 1; b <= std::min(left, devices[i].largest); ++b) {
          go(i + 1, left - b, std::max(longest, devices[i].fixed + b * devices[i].per_sample));
        }
      };
  go(0, samples, Duration());
  return best.value();
}

TEST_CASE("two devices of which one is three times as fast") {
  const std::vector<DeviceSpeed> devices = {{Duration(), 30_us, 1000}, {Duration(), 10_us, 1000}};
  CHECK(equal_finish(devices, 100) == std::vector<std::int64_t>{25, 75});
  CHECK(finish_times(devices, {25, 75}).longest == 750_us);
  CHECK(finish_times(devices, {25, 75}).spread == 0);
  CHECK(finish_times(devices, {50, 50}).spread == Approx(2.0 / 3));
}

TEST_CASE("a full memory leaves the rest to the others, a slow start leaves one sample") {
  const std::vector<DeviceSpeed> full = {
      {Duration(), 10_us, 20}, {Duration(), 10_us, 1000}, {Duration(), 20_us, 1000}};
  CHECK(equal_finish(full, 110) == std::vector<std::int64_t>{20, 60, 30});
  const std::vector<DeviceSpeed> late = {{1000_us, 10_us, 100}, {Duration(), 10_us, 100}};
  CHECK(equal_finish(late, 40) == std::vector<std::int64_t>{1, 39});
  CHECK_FALSE(equal_finish(late, 201).has_value());
  CHECK_FALSE(equal_finish(late, 1).has_value());
  CHECK(equal_finish(late, 200) == std::vector<std::int64_t>{100, 100});
}

TEST_CASE("no division of whole samples finishes earlier by more than a sample") {
  for (unsigned seed = 1; seed <= 300; ++seed) {
    CAPTURE(seed);
    std::mt19937 generator(seed);
    const auto draw = [&](std::int64_t from, std::int64_t to) {
      return std::uniform_int_distribution<std::int64_t>(from, to)(generator);
    };
    std::vector<DeviceSpeed> devices(static_cast<std::size_t>(draw(1, 4)));
    std::int64_t room = 0;
    Duration slowest;
    for (DeviceSpeed& device : devices) {
      device = {Duration(draw(0, 100'000)), Duration(draw(1'000, 30'000)), draw(1, 12)};
      room += device.largest;
      slowest = std::max(slowest, device.per_sample);
    }
    const std::int64_t samples = draw(static_cast<std::int64_t>(devices.size()), room);
    const auto batches = equal_finish(devices, samples);
    REQUIRE(batches.has_value());
    CHECK(std::accumulate(batches->begin(), batches->end(), std::int64_t{0}) == samples);
    for (std::size_t i = 0; i < devices.size(); ++i) {
      CHECK((*batches)[i] >= 1);
      CHECK((*batches)[i] <= devices[i].largest);
    }
    CHECK(finish_times(devices, *batches).longest <= brute_force(devices, samples) + slowest);
  }
}

TEST_CASE("with many samples and no limits all finish within a sample of each other") {
  for (unsigned seed = 1; seed <= 50; ++seed) {
    CAPTURE(seed);
    std::mt19937 generator(seed);
    std::uniform_int_distribution<std::int64_t> time(1'000, 10'000);
    std::vector<DeviceSpeed> devices(64);
    for (DeviceSpeed& device : devices) {
      device = {Duration(time(generator)), Duration(time(generator)), 1'000'000};
    }
    const auto batches = equal_finish(devices, 64 * 200);
    REQUIRE(batches.has_value());
    CHECK(finish_times(devices, *batches).spread < 0.03);
  }
}

TEST_CASE("what has no speed is refused") {
  CHECK_THROWS_AS(equal_finish({{Duration(), Duration(), 10}}, 5), PlanError);
  CHECK_THROWS_AS(equal_finish({{Duration(), 1_us, 0}}, 5), PlanError);
}

topology::Topology of_classes(const std::vector<std::string>& classes, Bytes memory) {
  topology::Topology topology("mixed");
  for (const std::string& name : classes) {
    const std::string host = "host" + std::to_string(topology.rank_count());
    topology.add_rank(topology.add_node({.name = host,
                                         .kind = topology::NodeKind::kGpu,
                                         .host = host,
                                         .device_class = name,
                                         .memory = memory}));
  }
  return topology;
}

TEST_CASE("speeds of ranks are those of compute_times") {
  plan::Workload workload;
  workload.device_class = "V100";
  workload.profiled_batch = 32;
  workload.forward = 10_ms;
  workload.tensors = {{"a", 1000, 20_ms}};
  workload.optimizer = 1_ms;
  workload.memory_fixed = 2_GiB;
  workload.memory_per_sample = 100_MiB;
  const auto speeds = device_speeds(of_classes({"V100", "A100"}, 16_GiB), workload, 2);
  REQUIRE(speeds.size() == 2);
  CHECK(speeds[0].largest == 143);
  for (std::size_t r = 0; r < 2; ++r) {
    for (const std::int64_t batch : {1, 17, 64}) {
      const auto times = plan::compute_times(workload, r == 0 ? "V100" : "A100", batch);
      const Duration expected = times.forward + times.backward + scaled(times.optimizer, 0.5);
      const Duration got = speeds[r].fixed + batch * speeds[r].per_sample;
      CHECK(got.seconds() == Approx(expected.seconds()).epsilon(1e-6));
    }
  }
  CHECK_THROWS_AS(device_speeds(of_classes({"V100"}, 2_GiB), workload), ConfigError);
}

}  // namespace
}  // namespace rackrail::planner::equal_finish_test
