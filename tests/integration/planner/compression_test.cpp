// The compression search's model of a step and its choices, against the simulator.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <random>
#include <regex>
#include <string>
#include <string_view>

#include "base/parse_units.hpp"
#include "planner/compression_search.hpp"
#include "planner/planner.hpp"
#include "sim/simulator.hpp"
#include "tests/support/clusters.hpp"
#include "tests/support/compression_cases.hpp"
#include "topology/reader.hpp"

namespace rackrail::planner {
namespace {

TEST_CASE("the timeline says what the simulator says, within a few percent") {
  struct Shipped {
    const char* cluster;
    const char* model;
    double slower;
    Bytes bucket_size;
  };
  const std::vector<Shipped> cases = {
      {"two-racks-40g", "vgg-16", 1, 25_MiB},     {"two-racks-40g", "vgg-16", 8, 4_MiB},
      {"two-racks-40g", "bert-large", 1, 25_MiB}, {"two-racks-40g", "bert-large", 4, 100_MiB},
      {"two-racks-40g", "gpt2-124m", 8, 4_MiB},   {"two-racks-40g", "resnet-50", 2, 4_MiB},
      {"a100-4x8", "gpt2-124m", 8, 100_MiB}};
  double worst = 0;
  double sum = 0;
  int count = 0;
  for (const Shipped& shipped : cases) {
    CAPTURE(shipped.cluster, shipped.model, shipped.slower, to_string(shipped.bucket_size));
    test::CompressionCase situation(test::slower_cluster(shipped.cluster, shipped.slower),
                                    plan::read_workload(shipped.model, topology::configs_folder()),
                                    shipped.bucket_size);
    std::vector<Assignment> assignments = situation.table().starts();
    assignments.push_back(search_compression(situation.timeline(), assignments).fastest);
    const std::size_t sensible = assignments.size();
    std::mt19937_64 random(7);
    for (int i = 0; i < 3; ++i) {
      Assignment& mixed = assignments.emplace_back();
      for (std::size_t b = 0; b < situation.timeline().bucket_count(); ++b) {
        mixed.push_back(
            static_cast<std::uint32_t>(random() % situation.timeline().option_count(b)));
      }
    }
    for (std::size_t i = 0; i < assignments.size(); ++i) {
      CAPTURE(i);
      const Duration simulated = situation.simulated(assignments[i], test::Order::kReady);
      const double off = situation.timeline().step(assignments[i]) / simulated - 1;
      CHECK(std::abs(off) < (i < sensible ? 0.03 : 0.1));
      worst = std::max(worst, std::abs(off));
      sum += std::abs(off);
      ++count;
    }
  }
  CAPTURE(worst, count);
  CHECK(sum / count < 0.01);
}

// 500 cases are a benchmark (by_force in bench/planner/compression_bench.cpp).
TEST_CASE("choices by the timeline and plans are near the best of all by simulation") {
  constexpr std::uint64_t kFirst = 1;
  constexpr std::uint64_t kCases = 40;
  std::uint64_t near = 0;
  for (std::uint64_t seed = kFirst; seed < kFirst + kCases; ++seed) {
    CAPTURE(seed);
    test::CompressionCase one(seed, 4);
    const test::CompressionByForce found = test::by_force(one);
    CHECK(found.assignments > 100);
    near += found.chosen <= scaled(found.best, 1.01) ? 1 : 0;
    CHECK(found.planned <= scaled(found.best, 1.01));
    // What a plan gives up for codecs that round less leaves it no slower than these. Beside them
    // when the planner judges by simulation, so the timeline need not be exact.
    CHECK(found.planned <= found.uniform);
    CHECK(found.chosen <= scaled(found.uniform, 1.05));
  }
  CHECK(near >= kCases * 95 / 100);
}

TEST_CASE(
    "a plan is never more than a percent slower than FP16 everywhere, and says what it saves") {
  std::size_t without = 0;
  for (const double slower : {0.01, 0.1, 1.0, 8.0}) {
    CAPTURE(slower);
    const topology::Topology topology = test::slower_cluster("two-racks-40g", slower);
    const plan::Workload workload = plan::read_workload("vgg-16", topology::configs_folder());
    const auto costs = sim::make_cost_model(topology, {});
    const plan::Plan plan = make_plan(topology, workload, *costs, {});
    PlannerOptions fp16;
    fp16.codec = plan::Codec{.kind = plan::CodecKind::kFp16};
    const plan::Plan everywhere = make_plan(topology, workload, *costs, fp16);
    CHECK(plan.prediction.step_time <= scaled(everywhere.prediction.step_time, 1.01));
    const bool compresses =
        std::any_of(plan.buckets.begin(), plan.buckets.end(),
                    [](const plan::Bucket& bucket) { return bucket.codec.is_lossy(); });
    const auto says_none = std::ranges::find_if(plan.notes, [](const std::string& note) {
      return note.starts_with("compression: fp32 everywhere;") &&
             note.find("fp16 ") != std::string::npos;
    });
    CHECK((says_none != plan.notes.end()) != compresses);
    if (says_none != plan.notes.end()) {
      ++without;
      const double loss = std::stod(says_none->substr(says_none->find("fp16 ") + 5));  // percent
      CAPTURE(*says_none);
      CHECK(loss >= -0.1);
      CHECK(loss / 100 ==
            Approx(everywhere.prediction.step_time / plan.prediction.step_time - 1).margin(0.002));
    }
  }
  CHECK(without >= 1);
}

TEST_CASE("on fast fabrics nothing is compressed, and the plan says what each codec would lose") {
  // One box of 8 GPUs on an NVSwitch, and two racks of two hosts behind cables of 4 Tbit/s.
  const topology::Topology fabrics[] = {test::boxes(1, 1),
                                        test::slower_cluster("two-racks-40g", 0.01)};
  for (const topology::Topology& topology : fabrics) {
    for (const char* name : {"resnet-50", "vgg-16"}) {
      CAPTURE(topology.name(), name);
      const plan::Workload workload = plan::read_workload(name, topology::configs_folder());
      const auto costs = sim::make_cost_model(topology, {});
      PlannerOptions options;
      const plan::Plan plan = make_plan(topology, workload, *costs, options);
      for (const plan::Bucket& bucket : plan.buckets) {
        CHECK_FALSE(bucket.codec.is_lossy());
      }
      constexpr std::string_view kNone = "compression: fp32 everywhere; ";
      const auto note = std::ranges::find_if(
          plan.notes, [&](const std::string& one) { return one.starts_with(kNone); });
      REQUIRE(note != plan.notes.end());
      CAPTURE(*note);
      // What is told of each codec is a loss.
      const std::regex figure(R"(([+-]\d+\.\d) %)");
      int told = 0;
      for (std::sregex_iterator at(note->begin(), note->end(), figure), end; at != end; ++at) {
        CHECK(std::stod((*at)[1]) >= 0);
        ++told;
      }
      // Independently: a plan in FP16, which may have other buckets, and is then no slower than
      // told.
      const std::size_t fp16 = note->find("fp16 ");
      REQUIRE(fp16 != std::string::npos);
      const double loss = std::stod(note->substr(fp16 + 5));
      PlannerOptions only;
      only.codec = plan::Codec{.kind = plan::CodecKind::kFp16};
      only.compare_baselines = false;
      const Duration with = make_plan(topology, workload, *costs, only).prediction.step_time;
      CHECK(with >= plan.prediction.step_time);
      CHECK(with <= scaled(plan.prediction.step_time, 1 + (loss + 0.1) / 100));
      CHECK(told >= 1);
    }
  }
}

}  // namespace
}  // namespace rackrail::planner
