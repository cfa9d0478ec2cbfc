// What is said about a simulation: which step, what links carried when, and for whom. Closed forms.
#include <algorithm>
#include <catch2/catch.hpp>
#include <numeric>

#include "base/error.hpp"
#include "sim/simulator.hpp"
#include "tests/support/free_devices.hpp"

namespace rackrail::sim::reports_test {
namespace {

using topology::NodeKind;
using topology::Topology;

constexpr std::int64_t kBytesPerSecond = 1'000'000'000;

// Two hosts around a switch. Link 0 leads from host 0 to the switch, link 3 on to host 1.
constexpr LinkId kUp(0);
constexpr LinkId kDown(3);

Topology two_hosts() {
  Topology topology("two hosts");
  const NodeId hub = topology.add_node({.name = "hub", .kind = NodeKind::kTor});
  for (const char* name : {"host0", "host1"}) {
    const NodeId host = topology.add_node({.name = name, .kind = NodeKind::kHost, .host = name});
    topology.add_rank(host);
    topology.add_duplex_link({.from = host, .to = hub, .bandwidth = Bandwidth(kBytesPerSecond)});
  }
  return topology;
}

// Rank 0 computes for 10 ms, then sends its gradients to rank 1 in slices of 4,096 bytes.
struct Training {
  Topology topology = two_hosts();
  plan::Workload workload;
  plan::Plan plan;
  SimulationOptions options;

  explicit Training(std::int64_t slices) {
    workload.name = "training";
    workload.tensors = {{"all", slices * 1024, 4_ms}};
    workload.forward = 6_ms;
    workload.optimizer = Duration();
    workload.fixed_share = 0;
    plan.name = "training";
    plan.rank_names = {"host0", "host1"};
    plan.workload_name = workload.name;
    plan.workload_digest = workload.digest();
    plan::TransferGraph graph("one way", plan::Collective::kAllReduce, 2, {1});
    graph.add_transfer({.src = Rank(0), .dst = Rank(1)}, {});
    plan.schedules = {graph};
    plan.buckets = {{.tensors = {0}, .elements = slices * 1024, .slice_elements = 1024}};
    plan.batch.local_batch = {1, 1};
    options.device_rates = test::free_devices();
  }
  StepResult run() const { return simulate_step(plan, workload, topology, options); }
};

LinkUse use_of(const StepResult& result, LinkId link) {
  const auto it = std::find_if(result.links.begin(), result.links.end(),
                               [&](const LinkUse& use) { return use.link == link; });
  return it == result.links.end() ? LinkUse{link, {}, 0, {}, 0} : *it;
}

TEST_CASE("links say what others send, in the step that is reported") {
  const NetworkLevel network = GENERATE(NetworkLevel::kFlow, NetworkLevel::kPacket);
  const int steps = GENERATE(1, 4);
  CAPTURE(network, steps);
  Training training(500);
  training.options.network = network;
  training.options.steps = steps;
  // A tenth of the link without a break, in messages longer than a step.
  training.options.disturbances.background = {{.src = Rank(0),
                                               .dst = Rank(1),
                                               .message = Bytes(20'000'000),
                                               .start = {},
                                               .every = {},
                                               .cap = Bandwidth(kBytesPerSecond / 10)}};
  const StepResult result = training.run();
  const double seconds = result.estimate.step_time.seconds();
  for (const LinkId link : {kUp, kDown}) {
    const LinkUse use = use_of(result, link);
    CHECK(use.bytes == Bytes(500 * 4096));
    // A packet of 4,096 bytes may be on either side of each end of the step.
    CHECK(static_cast<double>(use.background.count()) ==
          Approx(seconds * kBytesPerSecond / 10).margin(network == NetworkLevel::kFlow ? 2 : 8192));
    CHECK(use.background_utilization == Approx(0.1).margin(2e-3));
    CHECK(use.utilization + use.background_utilization < 1);
  }
  CHECK(use_of(result, LinkId(1)).background == Bytes(0));
}

TEST_CASE("bins of links are exact at both levels, and none is above 1") {
  const NetworkLevel network = GENERATE(NetworkLevel::kFlow, NetworkLevel::kPacket);
  const bool has_others = GENERATE(false, true);
  CAPTURE(network, has_others);
  Training training(300);
  training.options.network = network;
  training.options.record_flows = true;
  if (has_others) {
    training.options.disturbances.background = {{.src = Rank(0),
                                                 .dst = Rank(1),
                                                 .message = Bytes(100'000),
                                                 .start = 1_ms,
                                                 .every = {},
                                                 .cap = {}}};
  }
  const StepResult result = training.run();
  constexpr std::size_t kBins = 50;
  const LinkTimeline bins =
      link_timeline(result.records, training.topology, training.options.disturbances, kBins);
  REQUIRE(bins.background.size() == (has_others ? bins.utilization.size() : 0));
  for (std::size_t j = 0; j < bins.links.size(); ++j) {
    double own = 0;
    double most = 0;
    for (std::size_t i = 0; i < kBins; ++i) {
      const std::size_t at = i * bins.links.size() + j;
      own += bins.utilization[at] * bins.bin.seconds() * kBytesPerSecond;
      most = std::max(most, bins.utilization[at] + (has_others ? bins.background[at] : 0));
    }
    CHECK(own == Approx(300 * 4096).epsilon(1e-6));
    CHECK(most <= 1 + 1e-9);
    CHECK(most >= 0.9);  // while gradients move there is no room
  }
}

// Of a link, over the step: the mean of its bins, of which the last may end later.
double mean_of_bins(const StepResult& result, const LinkTimeline& bins, LinkId link) {
  const auto at = std::find(bins.links.begin(), bins.links.end(), link);
  REQUIRE(at != bins.links.end());
  const auto place = static_cast<std::size_t>(at - bins.links.begin());
  double sum = 0;
  for (std::size_t i = 0; i * bins.links.size() < bins.utilization.size(); ++i) {
    const Duration begin = bins.bin * static_cast<std::int64_t>(i);
    const Duration inside = std::min(begin + bins.bin, result.estimate.step_time) - begin;
    const double here = bins.utilization[i * bins.links.size() + place];
    CHECK(here <= 1 + 1e-9);
    sum += std::max(0.0, inside / result.estimate.step_time) * here;
  }
  return sum;
}

TEST_CASE("with gradients that move during later steps no link carries more than it can") {
  Training training(5000);  // 10 ms of compute, and 20.48 ms of gradients
  training.options.network = GENERATE(NetworkLevel::kFlow, NetworkLevel::kPacket);
  training.options.packets.header =
      Bytes(training.options.network == NetworkLevel::kPacket ? 96 : 0);
  training.options.record_flows = true;
  training.options.steps = 5;
  training.options.staleness = 2;
  // Nothing carried in the first 10 ms; from then on a link is never idle before the last step
  // ends.
  const int step = GENERATE(0, 1, 2, 3, 4);
  training.options.report = {StepChoice::Kind::kNumber, step};
  const StepResult result = training.run();
  CAPTURE(step, result.estimate.step_time.seconds());
  const double busy = (result.steps[static_cast<std::size_t>(step)].end -
                       std::max(result.steps[static_cast<std::size_t>(step)].start, 10_ms)) /
                      result.estimate.step_time;
  CHECK(use_of(result, kUp).bytes == Bytes(5000 * 4096));
  CHECK(use_of(result, kUp).utilization == Approx(std::max(0.0, busy)).margin(2e-3));
  const LinkTimeline bins = link_timeline(result.records, training.topology, {}, 500);
  if (step < 4) {  // its gradients are there after it
    CHECK(mean_of_bins(result, bins, kUp) == Approx(use_of(result, kUp).utilization).margin(5e-3));
  }
}

TEST_CASE("bins are of what a link can carry at their time") {
  Training training(2000);  // 8.192 ms of gradients after 10 ms
  training.options.network = GENERATE(NetworkLevel::kFlow, NetworkLevel::kPacket);
  training.options.record_flows = true;
  const bool is_faster = GENERATE(false, true);
  for (const LinkId link : {kUp, kDown}) {
    const std::int64_t rate = is_faster ? 4 * kBytesPerSecond : kBytesPerSecond / 4;
    training.options.disturbances.capacity.push_back({12_ms, link, Bandwidth(rate)});
  }
  const StepResult result = training.run();
  const LinkTimeline bins =
      link_timeline(result.records, training.topology, training.options.disturbances, 100);
  // All of the time until the last delivery, which is nearly the step.
  const double seconds = 10e-3 + 2e-3 + (8.192e-3 - 2e-3) * (is_faster ? 0.25 : 4);
  CHECK(result.estimate.step_time.seconds() == Approx(seconds).epsilon(1e-2));
  double most = 0;
  for (const double one : bins.utilization) {
    most = std::max(most, one);
  }
  CHECK(most <= 1 + 1e-9);
  CHECK(most > 0.99);
  // The table has the bytes over what the link could carry: at two rates.
  const double possible = 12e-3 + (seconds - 12e-3) * (is_faster ? 4 : 0.25);
  CHECK(use_of(result, kUp).utilization == Approx(8.192e-3 / possible).epsilon(1e-2));
}

TEST_CASE("bins of packets are when packets left") {
  Training training(4);
  training.options.network = NetworkLevel::kPacket;
  training.options.record_flows = true;
  training.plan.buckets[0].slice_elements = 4096;  // one message of four packets
  const StepResult result = training.run();
  // Computed for 10 ms; then five times 4.096 us: the second link begins a packet later.
  constexpr Duration kPacket(4'096'000);
  REQUIRE(result.records.flow_records.size() == 1);
  CHECK(result.records.flow_records[0].start == 10_ms);
  REQUIRE(result.records.flow_records[0].delivered == 10_ms + 5 * kPacket);
  std::vector<std::pair<Time, Time>> up;
  std::vector<std::pair<Time, Time>> down;
  for (const LinkPiece& piece : result.records.link_pieces) {
    (piece.link == kUp ? up : down).emplace_back(piece.begin, piece.end);
    CHECK(piece.bytes == 4 * 4096);
    CHECK_FALSE(piece.is_background);
  }
  const Time start = (10_ms).picoseconds();
  const Time packet = kPacket.picoseconds();
  CHECK(up == std::vector<std::pair<Time, Time>>{{start, start + 4 * packet}});
  CHECK(down == std::vector<std::pair<Time, Time>>{{start + packet, start + 5 * packet}});
}

TEST_CASE("any step can be reported, the slowest and the median too") {
  Training training(1000);
  training.options.steps = 5;
  // Compute takes 10 ms, in steps 1 and 2 longer; then 4.096 ms of gradients.
  training.options.disturbances.slow_devices = {
      {.ranks = {}, .factor = 3, .sigma = 0, .first_step = 1, .last_step = 1},
      {.ranks = {}, .factor = 2, .sigma = 0, .first_step = 2, .last_step = 2}};
  const std::vector<Duration> compute{10_ms, 30_ms, 20_ms, 10_ms, 10_ms};
  const auto reported = [&](const char* text) {
    training.options.report = parse_step_choice(text).value();
    training.options.record_timeline = true;
    const StepResult result = training.run();
    const std::size_t step = result.reported;
    CHECK(result.estimate.compute_time == compute[step]);
    CHECK(result.estimate.step_time == result.steps[static_cast<std::size_t>(step)].end -
                                           result.steps[static_cast<std::size_t>(step)].start);
    REQUIRE_FALSE(result.records.critical_path.empty());
    CHECK(result.records.critical_path.front().start == Duration());
    CHECK(result.records.critical_path.back().end == result.estimate.step_time);
    CHECK(result.estimate.bucket_ready[0] == compute[step]);
    CHECK(use_of(result, kUp).bytes == Bytes(4'096'000));
    for (const plan::TimelineEvent& event : result.records.timeline) {
      CHECK(event.start < result.estimate.step_time);
    }
    return step;
  };
  CHECK(reported("last") == 4);
  CHECK(reported("slowest") == 1);
  CHECK(reported("median") == 4);
  CHECK(reported("2") == 2);
  CHECK(reported("0") == 0);
  training.options.report = parse_step_choice("5").value();
  CHECK_THROWS_AS(training.run(), ConfigError);
  for (const char* text : {"", "-1", "first", "1x", "1 ", "99999999999"}) {
    CHECK_FALSE(parse_step_choice(text));
  }
}

// Steps that differ, by slow devices, and one that is reported: alone, or as the last of fewer.
TEST_CASE("what is said of a step does not depend on how many come after it") {
  Training training(300);
  training.options.network = GENERATE(NetworkLevel::kFlow, NetworkLevel::kPacket);
  training.options.staleness = GENERATE(0, 1);
  training.options.local_steps = GENERATE(1, 3);
  training.options.record_flows = true;
  training.options.record_timeline = true;
  training.options.disturbances.slow_devices = {{.sigma = 0.3}};
  training.options.loading = DataLoading{.batch = 11_ms, .prefetch = 1};
  constexpr int kStep = 8;
  training.options.report = {StepChoice::Kind::kNumber, kStep};
  training.options.steps = kStep + 4;
  const StepResult fewer = training.run();
  training.options.steps = 90;
  const StepResult more = training.run();
  CHECK(fewer.estimate.step_time == more.estimate.step_time);
  CHECK(fewer.estimate.bucket_done == more.estimate.bucket_done);
  CHECK(fewer.waited_for_data == more.waited_for_data);
  CHECK(fewer.records.timeline.size() == more.records.timeline.size());
  REQUIRE(fewer.records.flow_records.size() == more.records.flow_records.size());
  REQUIRE(fewer.records.flow_records.size() == 300);
  for (std::size_t i = 0; i < more.records.flow_records.size(); ++i) {
    CHECK(fewer.records.flow_records[i].start == more.records.flow_records[i].start);
    CHECK(fewer.records.flow_records[i].delivered == more.records.flow_records[i].delivered);
  }
  REQUIRE(fewer.records.critical_path.size() == more.records.critical_path.size());
  for (std::size_t i = 0; i < more.records.critical_path.size(); ++i) {
    CHECK(fewer.records.critical_path[i].what == more.records.critical_path[i].what);
    CHECK(fewer.records.critical_path[i].end == more.records.critical_path[i].end);
  }
  CHECK(more.records.critical_path.front().start == Duration());
  const StepSpan& span = more.steps[more.reported];
  CHECK(more.records.critical_path.back().end == span.end - span.start);
  CHECK(use_of(fewer, kUp).utilization == Approx(use_of(more, kUp).utilization));
}

TEST_CASE("of steps that do not synchronise, the gradients before them are reported") {
  Training training(1000);
  training.options.steps = 5;
  training.options.local_steps = 2;
  const auto bytes_of = [&](int step) {
    training.options.report = {StepChoice::Kind::kNumber, step};
    const StepResult result = training.run();
    CHECK(result.estimate.bucket_done.size() == (step == 0 ? 0 : 1));
    return use_of(result, kUp).bytes;
  };
  CHECK(bytes_of(0) == Bytes(0));  // none yet
  CHECK(bytes_of(1) == Bytes(4'096'000));
  CHECK(bytes_of(4) == Bytes(4'096'000));
}

TEST_CASE("links at their best are those that a bound may count on") {
  const Topology topology = two_hosts();
  const auto rate = [&](std::vector<CapacityChange> changes) {
    Disturbances disturbances;
    disturbances.capacity = std::move(changes);
    const Topology best = at_best(topology, disturbances, 10_ms);
    CHECK(best.link(LinkId(1)).bandwidth == Bandwidth(kBytesPerSecond));
    return best.link(kUp).bandwidth.bytes_per_second();
  };
  CHECK(rate({}) == kBytesPerSecond);
  CHECK(rate({{Duration(), kUp, Bandwidth(400)}}) == 400);
  CHECK(rate({{Duration(), kUp, Bandwidth(400)}, {5_ms, kUp, Bandwidth(700)}}) == 700);
  CHECK(rate({{Duration(), kUp, Bandwidth(400)}, {10_ms, kUp, Bandwidth(700)}}) == 400);
  CHECK(rate({{1_ms, kUp, Bandwidth(400)}}) == kBytesPerSecond);
  CHECK(rate({{Duration(), kUp, Bandwidth(0)}}) == 1);
}

}  // namespace
}  // namespace rackrail::sim::reports_test
