// Whether what a form of a collective says of its graph is so, and clusters that such tests share.
#pragma once

#include <catch2/catch.hpp>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "plan/alpha_beta.hpp"
#include "plan/verifier.hpp"
#include "planner/algorithms/schedule_family.hpp"
#include "planner/pipeline/collective_form.hpp"
#include "tests/support/clusters.hpp"
#include "tests/support/graphs.hpp"
#include "topology/linear_program.hpp"
#include "topology/queries.hpp"
#include "topology/topology.hpp"

namespace rackrail::test {

/// The graph is right, as large as was said, and no faster than the bound; and where that
/// `is_near`, a large buffer is not slower than it by more than 5 %.
inline void check_known_before_made(const planner::CollectiveForm& form,
                                    const topology::Topology& topology, bool is_near = true) {
  const plan::VerifyReport report = plan::verify(form.graph(), &topology);
  INFO((report.ok() ? std::string() : report.problems.front()));
  CHECK(report.ok());
  const planner::FormShape& said = form.shape();
  const planner::FormShape made = planner::CollectiveForm(form.graph(), topology).shape();
  CHECK(said.transfers == made.transfers);
  CHECK(said.largest_share == Approx(made.largest_share).epsilon(0.01));
  for (const std::int64_t elements : {1'000, 1'000'000, 1'000'000'000}) {
    CHECK(said.bound->at_least(elements) <= made.bound->at_least(elements));
  }
  constexpr std::int64_t kMany = 1'000'000'000;
  if (is_near) {
    CHECK(said.bound->at_least(kMany).seconds() >= 0.95 * made.bound->at_least(kMany).seconds());
  }
}

/// With one codec inside hosts and across.
inline planner::ScheduleRequest request_of(const topology::Topology& topology,
                                           topology::Router& router, const plan::Codec& codec = {},
                                           std::size_t most_rounds = 256,
                                           std::size_t most_transfers = 100'000) {
  return {.topology = topology,
          .router = router,
          .codecs = {codec, codec},
          .most_rounds = most_rounds,
          .most_transfers = most_transfers};
}

/// What `forms_of` makes of a topology and a router.
template <typename FormsOf>
void check_same_each_time(const topology::Topology& topology, const FormsOf& forms_of) {
  topology::Router router(topology);
  topology::Router again(topology);
  const std::vector<planner::CollectiveForm> one = forms_of(topology, router);
  const std::vector<planner::CollectiveForm> other = forms_of(topology, again);
  REQUIRE(one.size() == other.size());
  for (std::size_t form = 0; form < one.size(); ++form) {
    check_same_graph(one[form].graph(), other[form].graph());
  }
}

/// Else what needs one is skipped, with a warning.
inline bool has_solver() {
  if (!topology::LinearProgram::is_available()) {
    WARN("skipped: built without a solver for linear programs");
    return false;
  }
  return true;
}

struct SlowNic {
  std::size_t box = 0;
  std::size_t gpu = 0;
  int rate = 0;  ///< GB/s
};

/// Boxes of 4 GPUs with NICs of 25, but for some, on rails.
inline topology::Topology boxes_with_slow_nics(std::size_t count,
                                               const std::vector<SlowNic>& slow) {
  std::vector<std::vector<int>> nics(count, std::vector<int>(4, 25));
  for (const SlowNic& nic : slow) {
    nics[nic.box][nic.gpu] = nic.rate;
  }
  return boxes_with_nics(nics, 4);
}

}  // namespace rackrail::test
