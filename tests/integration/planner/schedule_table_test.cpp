// The table of schedules by size, against simulations of each schedule that the table does not see.
#include "planner/tuning/schedule_table.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <random>

#include "base/error.hpp"
#include "planner/algorithms/schedule_family.hpp"
#include "planner/tuning/collective_forms.hpp"
#include "sim/simulator.hpp"
#include "tests/support/grids.hpp"
#include "topology/reader.hpp"

namespace rackrail::planner::schedule_table_test {
namespace {

topology::Topology torus() {
  constexpr std::uint32_t kSeed = 4;
  std::mt19937 random(kSeed);
  return test::grid({{5, true}, {3, true}}, random);
}

/// Of every family that is not refused, in FP32, in as many rounds as the table may look at.
std::vector<std::vector<plan::TransferGraph>> graphs_on(const topology::Topology& topology) {
  topology::Router router(topology);
  std::vector<std::vector<plan::TransferGraph>> graphs;
  for (const auto& family : schedule_families()) {
    if (!family->refusal(topology, {}).has_value()) {
      auto& of_family = graphs.emplace_back();
      for (const CollectiveForm& form :
           collective_forms(*family, plan::Collective::kAllReduce, topology, router, {})) {
        of_family.push_back(form.graph());
      }
    }
  }
  return graphs;
}

TEST_CASE("no family is faster than the table's best at any size", "[slow]") {
  const bool is_torus = GENERATE(false, true);
  const topology::Topology topology =
      is_torus ? torus() : topology::read_cluster("two-racks-40g").topology;
  const auto costs = sim::make_cost_model(topology, {});
  const ScheduleTable table = make_schedule_table(topology, *costs, {});
  const auto graphs = graphs_on(topology);
  REQUIRE(table.families.size() == graphs.size());
  REQUIRE(table.rows.size() == 23);  // 1 KiB to 4 GiB
  CHECK(table.rows.front().bytes == 1_KiB);
  CHECK(table.rows.back().bytes == 4_GiB);
  for (std::size_t r = 0; r < table.rows.size(); r += 2) {
    const TableRow& row = table.rows[r];
    const std::int64_t elements = row.bytes.count() / 4;
    const Duration best = row.times[row.best].time;
    CAPTURE(topology.name(), row.bytes.count(), table.families[row.best]);
    const auto time_of = [&](const plan::TransferGraph& graph, std::int64_t slice) {
      return sim::simulate_collective(graph, elements, slice, topology, {}).time;
    };
    const auto time = [&](std::size_t family, std::int64_t slice) {
      return time_of(graphs[family].front(), slice);
    };
    const TableTime& winner = row.times[row.best];
    CHECK(best == time_of(graphs[row.best].at(winner.form), winner.slice_elements));
    for (std::size_t f = 0; f < graphs.size(); ++f) {
      CAPTURE(table.families[f]);
      CHECK(best <= time(f, elements));
      for (const std::int64_t slice : {1 << 16, 1 << 18, 1 << 20}) {  // those of plans
        if (elements / slice < 4096) {
          CHECK(best <= scaled(time(f, slice), 1.02));
        }
      }
      if (!row.times[f].is_simulated) {
        CHECK(row.times[f].time > best);
        CHECK(row.times[f].time <= time(f, elements));
      }
    }
  }
}

TEST_CASE("what is left out for its bound would not have won", "[slow]") {
  const topology::Topology topology = torus();
  const auto costs = sim::make_cost_model(topology, {});
  ScheduleTableOptions options;
  options.largest = 64_MiB;
  const ScheduleTable quick = make_schedule_table(topology, *costs, options);
  options.simulate_all = true;
  const ScheduleTable whole = make_schedule_table(topology, *costs, options);
  std::size_t left_out = 0;
  for (std::size_t r = 0; r < whole.rows.size(); ++r) {
    CHECK(quick.rows[r].best == whole.rows[r].best);
    for (std::size_t f = 0; f < whole.families.size(); ++f) {
      CHECK(whole.rows[r].times[f].is_simulated);
      CHECK(whole.rows[r].times[f].time >= quick.rows[r].times[quick.rows[r].best].time);
      left_out += quick.rows[r].times[f].is_simulated ? 0 : 1;
    }
  }
  CHECK(left_out > whole.rows.size());
}

TEST_CASE("crossovers are where the faster schedule changes") {
  const topology::Topology topology = topology::read_cluster("two-racks-40g").topology;
  const auto costs = sim::make_cost_model(topology, {});
  const ScheduleTable table = make_schedule_table(topology, *costs, {});
  REQUIRE_FALSE(table.crossovers.empty());
  std::size_t current = table.rows.front().best;
  Bytes last;
  for (const Crossover& crossover : table.crossovers) {
    CHECK(crossover.from == current);
    CHECK(crossover.bytes > last);
    CHECK(table.best_for(crossover.bytes) == table.families[crossover.to]);
    CHECK(table.best_for(crossover.bytes - 1_B) == table.families[crossover.from]);
    current = crossover.to;
    last = crossover.bytes;
  }
  CHECK(current == table.rows.back().best);
  for (const TableRow& row : table.rows) {
    CHECK(table.best_for(row.bytes) == table.families[row.best]);
  }
  const auto ranges = table.ranges();
  REQUIRE(ranges.size() == table.crossovers.size() + 1);
  for (const plan::ScheduleRange& range : ranges) {
    CHECK(table.best_for(range.from) == range.schedule);
  }
  CHECK(table.best_for(1_B) == table.families[table.rows.front().best]);
}

TEST_CASE("well below a crossover the former schedule is faster, well above it the latter",
          "[slow]") {
  const topology::Topology topology = topology::read_cluster("two-racks-40g").topology;
  const auto costs = sim::make_cost_model(topology, {});
  const ScheduleTable table = make_schedule_table(topology, *costs, {});
  const auto graphs = graphs_on(topology);
  for (const Crossover& crossover : table.crossovers) {
    const auto fastest = [&](std::size_t family, double share) {
      const auto elements =
          static_cast<std::int64_t>(share * static_cast<double>(crossover.bytes.count()) / 4);
      Duration time(INT64_MAX);
      for (const plan::TransferGraph& graph : graphs[family]) {
        if (graph.transfers().size() > 20'000) {
          continue;  // in that many rounds it is for larger messages, and takes minutes here
        }
        for (std::int64_t slice = elements; slice == elements || slice >= 2048; slice /= 2) {
          time =
              std::min(time, sim::simulate_collective(graph, elements, slice, topology, {}).time);
        }
      }
      return time;
    };
    CAPTURE(table.families[crossover.from], table.families[crossover.to], crossover.bytes.count());
    CHECK(fastest(crossover.to, 1.5) < scaled(fastest(crossover.from, 1.5), 1.02));
    CHECK(fastest(crossover.from, 0.66) < scaled(fastest(crossover.to, 0.66), 1.02));
  }
}

TEST_CASE("a table that cannot be made says why") {
  const topology::Topology topology = topology::read_cluster("two-racks-40g").topology;
  const auto costs = sim::make_cost_model(topology, {});
  ScheduleTableOptions options;
  options.smallest = 2_MiB;
  options.largest = 1_MiB;
  CHECK_THROWS_AS(make_schedule_table(topology, *costs, options), ConfigError);
  options = {};
  topology::Topology alone("alone");
  alone.add_rank(alone.add_node({.name = "gpu0", .kind = topology::NodeKind::kGpu}));
  CHECK_THROWS_WITH(make_schedule_table(alone, *costs, options), Catch::Contains("1 rank"));
}

}  // namespace
}  // namespace rackrail::planner::schedule_table_test
