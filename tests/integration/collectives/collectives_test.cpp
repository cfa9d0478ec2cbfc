// Every schedule family, planned for a topology and executed by real executors over real
// transports: sums that can be known exactly are exact, for any number of ranks and any size.
#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <map>
#include <random>

#include "plan/verifier.hpp"
#include "planner/algorithms/schedule_family.hpp"
#include "tests/support/broken_grids.hpp"
#include "tests/support/clusters.hpp"
#include "tests/support/rank_threads.hpp"
#include "tests/support/skip.hpp"

namespace rackrail::collectives_test {
namespace {

using topology::NodeKind;
using topology::Topology;

/// Racks of hosts with one rank each, behind a core; `sizes` may differ. Switches that compute are
/// for schedules that ask for them; the runtime sends the same transfers one by one.
Topology racks(const std::vector<std::size_t>& sizes, bool switches_compute = false) {
  Topology topology("racks");
  const NodeId core = topology.add_node({.name = "core",
                                         .kind = NodeKind::kSpine,
                                         .multicasts = switches_compute,
                                         .reduces = switches_compute});
  std::size_t number = 0;
  for (std::size_t r = 0; r < sizes.size(); ++r) {
    const std::string rack = fmt::format("rack{}", r);
    const NodeId tor = topology.add_node({.name = fmt::format("tor{}", r),
                                          .kind = NodeKind::kTor,
                                          .rack = rack,
                                          .multicasts = switches_compute,
                                          .reduces = switches_compute});
    topology.add_duplex_link({.from = tor, .to = core, .bandwidth = 1_GBps, .tier = "uplink"});
    for (std::size_t i = 0; i < sizes[r]; ++i) {
      const std::string name = fmt::format("host{}", number++);
      const NodeId host =
          topology.add_node({.name = name, .kind = NodeKind::kHost, .host = name, .rack = rack});
      topology.add_rank(host);
      topology.add_duplex_link({.from = host, .to = tor, .bandwidth = 2_GBps, .tier = "nic"});
    }
  }
  return topology;
}

const std::vector<std::vector<std::size_t>>& shapes() {
  static const std::vector<std::vector<std::size_t>> kShapes = {
      {2}, {1, 1}, {2, 1}, {2, 2}, {3, 1}, {5}, {3, 3}, {5, 2}, {4, 4}, {2, 2, 2, 2}};
  return kShapes;
}

std::string shape_name(const std::vector<std::size_t>& sizes) {
  return fmt::format("{}", fmt::join(sizes, "+"));
}

/// Small whole numbers: sums over eight ranks are exact in FP32 in any order.
float contribution(std::size_t rank, std::size_t i) {
  return static_cast<float>((rank + 1) * ((i * 2654435761U) % 1021));
}

float exact_sum(std::size_t ranks, std::size_t i) {
  return static_cast<float>(ranks * (ranks + 1) / 2 * ((i * 2654435761U) % 1021));
}

std::vector<std::vector<float>> contributions(std::size_t ranks, std::size_t elements) {
  std::vector<std::vector<float>> data(ranks, std::vector<float>(elements));
  for (std::size_t r = 0; r < ranks; ++r) {
    for (std::size_t i = 0; i < elements; ++i) {
      data[r][i] = contribution(r, i);
    }
  }
  return data;
}

/// One all-reduce per entry of `buffers` (by bucket, then rank), all of them in one step.
void execute(const plan::Plan& plan, const std::string& transport,
             std::vector<std::vector<std::vector<float>>>& buffers) {
  runtime::Ranks job(plan, transport);
  runtime::on_every_rank(plan.rank_count(), [&](Rank rank) {
    job[rank].begin_step(0);
    for (std::size_t b = 0; b < buffers.size(); ++b) {
      job[rank].launch(BucketId(b), buffers[b][rank.index()]);
    }
    job[rank].wait_all();
  });
}

std::size_t wrong_sums(const std::vector<std::vector<float>>& data) {
  std::size_t wrong = 0;
  for (const auto& of_rank : data) {
    for (std::size_t i = 0; i < of_rank.size(); ++i) {
      wrong += of_rank[i] == exact_sum(data.size(), i) ? 0 : 1;
    }
  }
  return wrong;
}

bool is_available(const std::string& transport) {
  const auto kinds = runtime::transport_kinds();
  return std::any_of(kinds.begin(), kinds.end(), [&](const runtime::TransportKind& kind) {
    return kind.name == transport && !kind.unavailable;
  });
}

plan::TransferGraph planned(const planner::ScheduleFamily& family, const Topology& topology,
                            const planner::TierCodecs& codecs) {
  topology::Router router(topology);
  plan::TransferGraph graph = family.all_reduce({topology, router, codecs});
  CHECK(plan::verify(graph, &topology).problems == std::vector<std::string>{});
  return graph;
}

/// Ranks that are joined directly.
std::vector<Topology> grids() {
  return {test::grid(1, 5, true), test::grid(2, 3, true), test::grid(2, 4, false)};
}

/// The same where a cable is lost, another is slow, or both.
std::vector<Topology> broken_grids() {
  constexpr Bandwidth kSlow(250'000'000);
  return {test::broken_grid(3, 3, false, {{0}}), test::broken_grid(2, 4, true, {{4, kSlow}}),
          test::broken_grid(3, 4, true, {{0, kSlow}, {12}})};
}

void check_sums(const std::string& transport) {
  const std::vector<std::int64_t> elements = {1, 7, 1000, 65'537};
  std::map<std::string_view, int> executed;  // by family
  std::vector<std::pair<std::string, Topology>> clusters;
  for (const auto& sizes : shapes()) {
    clusters.emplace_back("racks of " + shape_name(sizes), racks(sizes));
    clusters.emplace_back("computing racks of " + shape_name(sizes), racks(sizes, true));
  }
  for (const Topology& grid : grids()) {
    clusters.emplace_back(grid.name(), grid);
  }
  for (const Topology& grid : broken_grids()) {
    clusters.emplace_back("broken " + grid.name(), grid);
  }
  for (const auto& [name, topology] : clusters) {
    for (const auto& family : planner::schedule_families()) {
      if (family->refusal(topology, {})) {
        continue;
      }
      INFO(family->name() << " over " << transport << " on " << name);
      const plan::Plan plan = runtime::plan_of(planned(*family, topology, {}), elements, 4096);
      std::vector<std::vector<std::vector<float>>> buffers;
      for (const std::int64_t count : elements) {
        buffers.push_back(contributions(plan.rank_count(), static_cast<std::size_t>(count)));
      }
      execute(plan, transport, buffers);
      for (const auto& data : buffers) {
        CAPTURE(data[0].size());
        CHECK(wrong_sums(data) == 0);
      }
      ++executed[family->name()];
    }
  }
  // Hierarchies refuse where there is nothing inside or between racks, those but one also where
  // racks are uneven, and a torus where ranks are not joined directly.
  constexpr int kTrueHierarchies = 2 * 4;
  constexpr int kTiersOfAnySize = 2 * 7;
  constexpr int kSlowGrids = 1;  // broken, but grids
  for (const auto& family : planner::schedule_families()) {
    CAPTURE(family->name());
    std::size_t expected = clusters.size();
    if (family->name().starts_with("hierarchical")) expected = kTrueHierarchies;
    if (family->name() == "hierarchical") expected = kTiersOfAnySize;
    if (family->name() == "in-network") expected = shapes().size() - 2;  // of more than two ranks
    if (family->name() == "torus") expected = grids().size() + kSlowGrids;
    CHECK(executed[family->name()] == static_cast<int>(expected));
  }
}

TEST_CASE("collectives: exact sums for all families, ranks and sizes in one process") {
  check_sums("in-process");
}

TEST_CASE("collectives: exact sums for all families, ranks and sizes over UCX") {
  if (!is_available("ucx")) {
    RACKRAIL_SKIP("UCX cannot be used here");
  }
  check_sums("ucx");
}

/// Racks of these sizes, or a grid of as many ranks for a family that is for those.
Topology cluster_for(const planner::ScheduleFamily& family, const std::vector<std::size_t>& sizes) {
  const auto rows = static_cast<int>(sizes[0]);
  if (family.name() == "torus" && rows > 1) {
    return test::grid(rows, 2, false);
  }
  return racks(sizes, family.name() == "in-network");
}

TEST_CASE("collectives: exact sums of 64 MiB over two, four and eight ranks") {
  const std::string transport = is_available("ucx") ? "ucx" : "in-process";
  const std::int64_t elements = 16 << 20;
  for (const auto& family : planner::schedule_families()) {
    std::size_t executed = 0;
    for (const std::vector<std::size_t>& sizes : {std::vector<std::size_t>{1, 1}, {2, 2}, {4, 4}}) {
      CAPTURE(family->name(), shape_name(sizes), transport);
      const Topology topology = cluster_for(*family, sizes);
      if (family->refusal(topology, {}).has_value()) {
        continue;
      }
      const plan::Plan plan = runtime::plan_of(planned(*family, topology, {}), {elements}, 1 << 18);
      std::vector<std::vector<std::vector<float>>> buffers = {
          contributions(topology.rank_count(), static_cast<std::size_t>(elements))};
      execute(plan, transport, buffers);
      CHECK(wrong_sums(buffers[0]) == 0);
      ++executed;
    }
    CHECK(executed >= 2);  // four ranks, and two or eight
  }
}

TEST_CASE("collectives: lossy codecs leave the same bits everywhere, near the sum") {
  const unsigned seed = 99;
  CAPTURE(seed);
  constexpr std::size_t kElements = 20'011;
  std::size_t executed = 0;
  for (const plan::Codec& codec : plan::all_codecs().subspan(1)) {  // the first is none
    const std::string name = plan::to_string(codec);
    for (const auto& sizes : shapes()) {
      const Topology topology = racks(sizes);
      for (const auto& family : planner::schedule_families()) {
        for (const planner::TierCodecs& codecs :
             {planner::TierCodecs{codec, codec}, planner::TierCodecs{{}, codec}}) {
          if (family->refusal(topology, codecs)) {
            continue;
          }
          INFO(family->name() << " with " << name << " on racks of " << shape_name(sizes));
          const plan::Plan plan =
              runtime::plan_of(planned(*family, topology, codecs), {kElements}, 4096);
          std::mt19937 random(seed);
          std::normal_distribution<float> normal;
          std::vector<std::vector<float>> data(plan.rank_count());
          std::vector<double> sum(kElements, 0.0);
          for (auto& of_rank : data) {
            of_rank.resize(kElements);
            for (std::size_t i = 0; i < kElements; ++i) {
              of_rank[i] = normal(random);
              sum[i] += of_rank[i];
            }
          }
          std::vector<std::vector<std::vector<float>>> buffers = {std::move(data)};
          execute(plan, "in-process", buffers);
          const auto& first = buffers[0][0];
          for (const auto& of_rank : buffers[0]) {
            CHECK(std::memcmp(of_rank.data(), first.data(), kElements * sizeof(float)) == 0);
          }
          double error = 0;
          double norm = 0;
          for (std::size_t i = 0; i < kElements; ++i) {
            error += (first[i] - sum[i]) * (first[i] - sum[i]);
            norm += sum[i] * sum[i];
          }
          // One encoding of each contribution and of each partial sum on the way, one of the sum.
          const double hops = 2.0 * static_cast<double>(plan.rank_count());
          CHECK(std::sqrt(error / norm) <= plan::relative_error(codec) * std::sqrt(hops) * 1.3);
          ++executed;
        }
      }
    }
  }
  CHECK(executed > 50);
}

}  // namespace
}  // namespace rackrail::collectives_test
