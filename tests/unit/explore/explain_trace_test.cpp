#include "explore/explain_trace.hpp"

#include <catch2/catch.hpp>

#include "tests/support/traces.hpp"

namespace rackrail::explore::explain_trace_test {
namespace {

using Catch::Contains;

TraceExplanation explained(const test::TraceText& trace) {
  return explain_trace(plan::read_trace("t.json", trace.text()));
}

/// Steps of 1 ms; each has `compute` µs of work and then `count` all-reduces, one behind the other.
struct Shape {
  double compute = 500;
  int count = 1;
  std::vector<double> times{400};  ///< of the all-reduces, in turn
  std::int64_t elements = 10'000'000;
};

test::TraceText steps(const Shape& shape) {
  test::TraceText trace;
  std::size_t next = 0;
  for (int step = 0; step < 4; ++step) {
    const double start = 1'000.0 * step;
    trace.event("user_annotation", "ProfilerStep#" + std::to_string(step), start, 1'000, 1);
    trace.kernel("gemm", start, start + 1, shape.compute, 1);
    double now = start + 1 + shape.compute;
    for (int i = 0; i < shape.count; ++i) {
      const double time = shape.times[next++ % shape.times.size()];
      trace.kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL", start + 2, now, time, 1,
                   R"("Collective name": "allreduce", "In msg nelems": )" +
                       std::to_string(shape.elements) +
                       R"(, "Out msg nelems": 1, "Group size": 4, "dtype": "Float")");
      now += time;
    }
  }
  return trace;
}

const TraceGain* gain_of(const TraceExplanation& all, const std::string& what) {
  for (const TraceGain& gain : all.gains) {
    if (gain.what.find(what) != std::string::npos) return &gain;
  }
  return nullptr;
}

TEST_CASE("a step is split into compute, exposed communication and idle time") {
  const TraceExplanation all = explained(test::small_step());
  CHECK(all.steps == 1);
  CHECK(all.step_time == 1_ms);
  CHECK(all.compute == 450_us);
  CHECK(all.communication == 400_us);
  CHECK(all.exposed == 200_us);
  CHECK(all.idle == 350_us);
  REQUIRE(all.collectives.size() == 1);
  CHECK(all.collectives[0].ranks == 4);
  // 4 MB in 400 µs, times 2·3/4.
  CHECK(all.collectives[0].algorithm_bandwidth == Bandwidth(10'000'000'000));
  CHECK(all.collectives[0].bus_bandwidth == Bandwidth(15'000'000'000));
  const TraceGain* free = gain_of(all, "costs nothing");
  REQUIRE(free != nullptr);
  CHECK(free->step_time == 800_us);
}

TEST_CASE("equal large collectives are bound by bandwidth, and faster links help") {
  const TraceExplanation all = explained(steps({}));
  CHECK(all.bound == TraceBound::kCommunication);
  CHECK(all.cause == CommunicationCause::kBandwidth);
  CHECK_THAT(all.verdict, Contains("Communication-bound") && Contains("40 %"));
  REQUIRE(gain_of(all, "twice as fast") != nullptr);
  CHECK(gain_of(all, "twice as fast")->gain == Approx(0.2).epsilon(0.01));
  REQUIRE(gain_of(all, "16 instead of 32") != nullptr);
  CHECK(gain_of(all, "other ranks") == nullptr);
  CHECK(gain_of(all, "that others wait for") == nullptr);
}

TEST_CASE("collectives that mostly take much longer than the fastest wait") {
  const TraceExplanation all =
      explained(steps({.compute = 300, .count = 1, .times = {100, 600, 600, 600}}));
  CHECK(all.bound == TraceBound::kCommunication);
  CHECK(all.cause == CommunicationCause::kWaiting);
  CHECK(all.waiting == 375_us);
  REQUIRE(gain_of(all, "that others wait for") != nullptr);
}

TEST_CASE("many small collectives are bound by latency, and larger buckets help") {
  const TraceExplanation all =
      explained(steps({.compute = 300, .count = 30, .times = {20}, .elements = 1'000}));
  CHECK(all.cause == CommunicationCause::kLatency);
  CHECK(all.collectives.at(0).per_step == 30);
  REQUIRE(gain_of(all, "larger buckets") != nullptr);
  CHECK(gain_of(all, "larger buckets")->gain == Approx(0.58).epsilon(0.01));
  CHECK(gain_of(all, "twice as fast") == nullptr);
}

TEST_CASE("a job that computes, or waits for its CPU, is not bound by communication") {
  const TraceExplanation computes = explained(steps({.compute = 930, .count = 1, .times = {50}}));
  CHECK(computes.bound == TraceBound::kCompute);
  CHECK_THAT(computes.verdict, Contains("Not communication-bound"));
  const TraceExplanation waits = explained(steps({.compute = 200, .count = 1, .times = {50}}));
  CHECK(waits.bound == TraceBound::kLaunches);
  CHECK_THAT(waits.verdict, Contains("idle for 75 %"));
}

TEST_CASE("without a GPU operators are compute, and gloo's calls communication") {
  test::TraceText trace;
  trace.event("user_annotation", "ProfilerStep#1", 0, 1'000, 1)
      .event("cpu_op", "aten::mm", 0, 600, 1)
      .event("user_annotation", "gloo:all_reduce", 500, 400, 2,
             R"("Input Dims": [[1000000]], "Input type": ["float"])");
  const TraceExplanation all = explained(trace);
  CHECK(all.compute == 600_us);
  CHECK(all.exposed == 300_us);
  CHECK(all.collectives.at(0).bytes == 4'000'000);
  CHECK_THAT(all.notes.back(), Contains("no GPU"));
}

}  // namespace
}  // namespace rackrail::explore::explain_trace_test
