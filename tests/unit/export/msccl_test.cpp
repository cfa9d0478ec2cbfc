// Schedules of the planner as MSCCL programs: right on numbers by an interpreter of the format.
#include <catch2/catch.hpp>
#include <string>

#include "base/error.hpp"
#include "export/exporter.hpp"
#include "plan/msccl/from_graph.hpp"
#include "plan/msccl/program.hpp"
#include "plan/msccl/to_graph.hpp"
#include "plan/verifier.hpp"
#include "planner/algorithms/schedule_family.hpp"
#include "planner/groups/many_ranks.hpp"
#include "planner/tuning/collective_forms.hpp"
#include "tests/support/clusters.hpp"
#include "tests/support/msccl_interpreter.hpp"
#include "topology/queries.hpp"

namespace rackrail::exporting {

namespace {

/// The first form of each family for the collective on the cluster, through the text and back.
int check_families(const topology::Topology& cluster, plan::Collective what) {
  int written = 0;
  topology::Router router = planner::make_router(cluster);
  for (const auto& family : planner::schedule_families()) {
    const planner::TierCodecs codecs{};
    if (family->refusal(cluster, codecs)) {
      continue;
    }
    const auto forms = planner::collective_forms(*family, what, cluster, router, codecs);
    if (forms.empty()) {
      continue;
    }
    const plan::TransferGraph& graph = forms.front().graph();
    CAPTURE(graph.label());
    plan::msccl::Program program;
    try {
      program = plan::msccl::from_graph(graph);
    } catch (const ConfigError&) {
      continue;  // mutual sums, and pieces of many sizes
    }
    for (const plan::msccl::Gpu& gpu : program.gpus) {
      for (const plan::msccl::ThreadBlock& block : gpu.blocks) {
        CHECK(block.steps.size() <= plan::msccl::kMostSteps);
        for (const plan::msccl::Step& step : block.steps) {
          CHECK(step.count <= plan::msccl::kMostCount);
        }
      }
    }
    test::check_msccl_result(program, 1);
    const auto read = plan::msccl::parse_program(plan::msccl::to_xml(program), "x.xml");
    const plan::VerifyReport report = plan::verify(plan::msccl::to_graph(read, "x.xml"), nullptr);
    CAPTURE(report.problems);
    CHECK(report.ok());
    ++written;
  }
  return written;
}

}  // namespace

TEST_CASE("schedules of most families add up as MSCCL programs", "[export][msccl]") {
  for (const topology::Topology& cluster : {test::boxes(2, 2), test::rails_with_slow_nic(2, 10)}) {
    CHECK(check_families(cluster, plan::Collective::kAllReduce) >= 4);
    CHECK(check_families(cluster, plan::Collective::kAllGather) >= 2);
    CHECK(check_families(cluster, plan::Collective::kReduceScatter) >= 2);
  }
}

TEST_CASE("a cluster alone has no schedules to write", "[export][msccl]") {
  CHECK_THROWS_AS(exporter_of("msccl").write({test::boxes(1, 2)}, {}), ConfigError);
}

}  // namespace rackrail::exporting
