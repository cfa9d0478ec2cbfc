#include "runtime/capi/bucket_plans.hpp"

#include <catch2/catch.hpp>
#include <random>
#include <set>

#include "base/error.hpp"
#include "plan/format.hpp"
#include "plan/verifier.hpp"
#include "planner/tuning/schedule_table.hpp"
#include "sim/simulator.hpp"
#include "topology/reader.hpp"

namespace rackrail::capi::bucket_plans_test {
namespace {

topology::Topology two_racks() {
  return topology::read_cluster_text("racks.csv", R"(source,target,bandwidth,latency,kind
host0,tor0,10 Gbit/s,2 us,host-link
host1,tor0,10 Gbit/s,2 us,host-link
host2,tor1,10 Gbit/s,2 us,host-link
host3,tor1,10 Gbit/s,2 us,host-link
tor0,core,1 Gbit/s,1 us,uplink
tor1,core,1 Gbit/s,1 us,uplink
)")
      .topology;
}

std::vector<BucketRequest> requests_of(const std::vector<std::int64_t>& elements) {
  std::vector<BucketRequest> requests;
  for (const std::int64_t count : elements) {
    requests.push_back({count, 2_ms * static_cast<std::int64_t>(requests.size())});
  }
  return requests;
}

}  // namespace

TEST_CASE("an array is cut into parts that cover it once, each piece once per step") {
  const unsigned seed = 20261121;
  INFO("seed " << seed);
  std::mt19937 random(seed);
  std::vector<std::int64_t> sizes = {0, 1, 1023, 1024, 1025, 4096, 1 << 20, (1 << 20) + 1, 1 << 23};
  for (int i = 0; i < 200; ++i) {
    sizes.push_back(static_cast<std::int64_t>(random() % (1U << (1 + random() % 26))));
  }
  for (const std::int64_t size : sizes) {
    INFO(size << " elements");
    std::int64_t end = 0;
    std::int64_t padding = 0;
    for (const std::vector<Part>& step : cut(size)) {
      REQUIRE_FALSE(step.empty());
      std::set<std::uint32_t> used;
      for (const Part& part : step) {
        REQUIRE(part.begin == end);
        REQUIRE(part.elements > 0);
        REQUIRE(part.elements <= part.piece_elements);
        REQUIRE(part.bucket.index() < pieces().size());
        REQUIRE(pieces()[part.bucket.index()].elements == part.piece_elements);
        REQUIRE(used.insert(part.bucket.value()).second);
        end += part.elements;
        padding += part.piece_elements - part.elements;
      }
      REQUIRE(step.back().begin + step.back().elements == end);
    }
    REQUIRE(end == size);
    REQUIRE(padding < 1024);
  }
}

TEST_CASE("pieces have a plan on every cluster that runs them in FP32") {
  for (const auto& cluster : {flat_cluster(2), flat_cluster(3), flat_cluster(7), two_racks()}) {
    INFO(cluster.name());
    const plan::Plan plan = plan_pieces(cluster);
    REQUIRE(plan.buckets.size() == pieces().size());
    for (std::size_t b = 0; b < plan.buckets.size(); ++b) {
      CHECK(pieces()[b].bucket == BucketId(b));
      CHECK(plan.buckets[b].elements == pieces()[b].elements);
    }
    for (const plan::TransferGraph& graph : plan.schedules) {
      for (const plan::Transfer& transfer : graph.transfers()) {
        CHECK_FALSE(graph.codecs()[transfer.codec].is_lossy());
      }
    }
    CHECK(plan::verify(plan, &cluster, nullptr).problems.empty());
    // As the other ranks get it.
    CHECK(plan::digest(plan::parse_plan(plan::to_binary(plan), "test")) == plan::digest(plan));
  }
}

TEST_CASE("buckets are planned for as they are, whatever their sizes") {
  const topology::Topology cluster = two_racks();
  const unsigned seed = 77;
  INFO("seed " << seed);
  std::mt19937 random(seed);
  for (int round = 0; round < 4; ++round) {
    std::vector<std::int64_t> elements;
    for (std::size_t i = 0; i < 1 + random() % 6; ++i) {
      elements.push_back(1 + static_cast<std::int64_t>(random() % (1U << (2 + random() % 20))));
    }
    const plan::Plan plan = plan_buckets(cluster, requests_of(elements), plan::Codec{});
    std::vector<std::int64_t> planned;
    for (const plan::Bucket& bucket : plan.buckets) {
      planned.push_back(bucket.elements);
      CHECK_FALSE(bucket.codec.is_lossy());
    }
    CHECK(planned == elements);
    CHECK(plan::verify(plan, &cluster, nullptr).problems.empty());
  }
}

TEST_CASE("a codec is used on large buckets only, and none that was not asked for") {
  const plan::Codec int8{.kind = plan::CodecKind::kInt8Block};
  const plan::Plan plan =
      plan_buckets(two_racks(), requests_of({1 << 20, (1 << 16) - 1, 1 << 16}), int8);
  REQUIRE(plan.buckets.size() == 3);
  CHECK(plan.buckets[0].codec == int8);
  CHECK(plan.buckets[1].codec.survives_many_hops());
  CHECK(plan.buckets[2].codec == int8);
  // Uplinks ten times slower than the hosts' links, nothing to hide behind: FP32 cannot be best.
  const plan::Plan chosen = plan_buckets(two_racks(), requests_of({1 << 20}), std::nullopt);
  CHECK(chosen.buckets[0].codec.is_lossy());
}

/// Four racks of two as they are emulated, 1 Gbit/s and 500 Mbit/s, on two cores.
topology::Topology four_emulated_racks() {
  std::string nodes;
  std::string links;
  const auto link = [&](const std::string& from, const std::string& to, const std::string& more) {
    links += "  - {from: " + from + ", to: " + to + ", latency: 147 ns, overhead: 13840 ns, " +
             "burst: 65056 B, duplex: true, " + more + "}\n";
  };
  std::string switches;
  for (const char rack : {'0', '1', '2', '3'}) {
    const std::string tor = std::string("tor") + rack;
    switches += "  - {name: " + tor + ", kind: switch}\n";
    link(tor, "core", "bandwidth: 62042379 B/s, kind: other, tier: uplink");
    for (const char side : {'a', 'b'}) {
      const std::string host = std::string("host") + rack + side;
      const std::string rank = std::to_string(2 * (rack - '0') + (side - 'a'));
      nodes += "  - {name: " + host + ", kind: host, host: " + host + ", rack: " + tor +
               ", rank: " + rank + ", processor: 24}\n";
      link(host, tor,
           "bandwidth: 124084757 B/s, kind: host-link, tier: host-link, cpu_share: 0.0296");
    }
  }
  return topology::read_cluster_text(
             "emulated.yaml",
             "nodes:\n" + nodes + switches +
                 "  - {name: core, kind: switch}\n"
                 "  - {name: cores-in, kind: switch}\n"
                 "  - {name: cores-out, kind: switch}\n"
                 "links:\n" +
                 links +
                 "  - {from: cores-in, to: cores-out, bandwidth: 2093324596 B/s, latency: 0 ps, "
                 "kind: shared, tier: cores, cpu_share: 0.5}\n")
      .topology;
}

TEST_CASE("over four racks of two no forest is chosen that talks to more ranks to be no faster",
          "[slow]") {
  const topology::Topology racks = four_emulated_racks();
  for (std::int64_t elements = 1 << 18; elements <= 1 << 24; elements *= 4) {  // 1 to 64 MiB
    CAPTURE(elements);
    const plan::Plan plan = plan_buckets(racks, requests_of({elements}), plan::Codec{});
    CHECK(plan.schedules.at(plan.buckets.front().schedule).name() == "hierarchical");
  }
  const plan::Plan pieces_plan = plan_pieces(racks);
  for (const plan::Bucket& bucket : pieces_plan.buckets) {
    CAPTURE(bucket.elements);
    if (bucket.elements >= 1 << 18) {
      CHECK(pieces_plan.schedules.at(bucket.schedule).name() == "hierarchical");
    }
  }
  const auto costs = sim::make_cost_model(racks, {});
  const planner::ScheduleTable table =
      planner::make_schedule_table(racks, *costs, {.smallest = 1_MiB, .largest = 64_MiB});
  for (const planner::TableRow& row : table.rows) {
    CAPTURE(row.bytes.count());
    CHECK(table.families[row.best] == "hierarchical");
  }
}

TEST_CASE("plans are joined without a change of what was there") {
  const topology::Topology cluster = flat_cluster(3);
  const plan::Plan first = plan_pieces(cluster);
  const plan::Plan more = plan_buckets(cluster, requests_of({5000, 70'000}), plan::Codec{});
  const plan::Plan both = joined(first, more);
  REQUIRE(both.buckets.size() == first.buckets.size() + 2);
  for (std::size_t b = 0; b < both.buckets.size(); ++b) {
    const bool is_old = b < first.buckets.size();
    const plan::Plan& origin = is_old ? first : more;
    const plan::Bucket& bucket = origin.buckets[is_old ? b : b - first.buckets.size()];
    CHECK(both.buckets[b].elements == bucket.elements);
    CHECK(both.buckets[b].slice_elements == bucket.slice_elements);
    CHECK(both.buckets[b].tensors == std::vector<std::uint32_t>{static_cast<std::uint32_t>(b)});
    const plan::TransferGraph& graph = both.schedules[both.buckets[b].schedule];
    CHECK(graph.name() == origin.schedules[bucket.schedule].name());
    CHECK(graph.transfers().size() == origin.schedules[bucket.schedule].transfers().size());
  }
  CHECK(plan::verify(both, &cluster, nullptr).problems.empty());
}

TEST_CASE("a plan that was made before holds for buckets of other sizes, each as the nearest") {
  const topology::Topology cluster = two_racks();
  const plan::Codec int8{.kind = plan::CodecKind::kInt8Block};
  const plan::Plan made = plan_buckets(cluster, requests_of({1 << 20, 1'000}), int8);
  REQUIRE(made.buckets[0].codec == int8);
  REQUIRE(made.buckets[1].codec != int8);
  const std::vector<std::int64_t> sizes{900'000, 3, 40'000, 20'000};
  const plan::Plan like = plan_buckets_like(made, requests_of(sizes));
  REQUIRE(like.buckets.size() == sizes.size());
  for (std::size_t b = 0; b < sizes.size(); ++b) {
    const plan::Bucket& origin = made.buckets[b % 2];  // √(1 Mi · 1000) is 32,382
    CHECK(like.buckets[b].elements == sizes[b]);
    CHECK(like.buckets[b].schedule == origin.schedule);
    CHECK(like.buckets[b].slice_elements == origin.slice_elements);
    CHECK(like.buckets[b].codec == origin.codec);
  }
  CHECK(plan::verify(like, &cluster, nullptr).problems.empty());
  CHECK(plan::verify(joined(plan_pieces(cluster), like), &cluster, nullptr).problems.empty());
  plan::Plan empty = made;
  empty.buckets.clear();
  CHECK_THROWS_AS(plan_buckets_like(empty, requests_of({1})), PlanError);
}

}  // namespace rackrail::capi::bucket_plans_test
