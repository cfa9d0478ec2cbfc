// How large buffers are divided for programs, by simulation.

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdint>

#include "plan/codec.hpp"
#include "planner/algorithms/schedule_family.hpp"
#include "planner/search/held_rates.hpp"
#include "planner/tuning/collective_forms.hpp"
#include "sim/simulator.hpp"
#include "tests/support/clusters.hpp"

namespace rackrail::planner::judged_division_test {
namespace {

TEST_CASE("a division is that of the least judged time, of messages that are not too short") {
  const topology::Topology cluster = test::racks({{10, 10, 10, 10}, {10, 10, 10, 10}}, {5, 5});
  const auto costs = sim::make_cost_model(cluster, {});
  topology::Router router(cluster);
  const auto forms = collective_forms(schedule_family("forest"), plan::Collective::kAllReduce,
                                      cluster, router, {plan::Codec{}, plan::Codec{}});
  const std::int64_t elements = (256_MiB).count() / 4;
  const DividedCollective divided =
      judged_division(forms, plan::Codec{}, elements, *costs, cluster);
  const plan::TransferGraph& graph = forms.at(divided.form).graph();
  const double share = forms[divided.form].shape().largest_share;
  const auto largest = static_cast<std::int64_t>(share * static_cast<double>(elements));
  CHECK(divided.time ==
        judged_by_rates(costs->collective_time(graph, elements, divided.slice_elements), graph,
                        std::min(divided.slice_elements, largest), cluster));
  CHECK(std::min(divided.slice_elements, largest) * 4 >= (32_KiB).count());
  for (const CollectiveForm& form : forms) {
    const auto whole =
        static_cast<std::int64_t>(form.shape().largest_share * static_cast<double>(elements)) + 1;
    CHECK(divided.time <= judged_by_rates(costs->collective_time(form.graph(), elements, whole),
                                          form.graph(), whole, cluster));
  }
}

}  // namespace
}  // namespace rackrail::planner::judged_division_test
