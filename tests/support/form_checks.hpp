// What a form of a collective says of itself, held against its graph.
#pragma once

#include <catch2/catch.hpp>
#include <cstdint>

#include "planner/pipeline/collective_form.hpp"
#include "topology/topology.hpp"

namespace rackrail::planner {

/// Transfers, the largest share and, within 1 %, the bound that searches believe before the graph
/// is made.
inline void check_shape(const CollectiveForm& form, const topology::Topology& topology) {
  const FormShape known = form.shape();
  const CollectiveForm made(form.graph(), topology);
  CHECK(known.transfers == made.shape().transfers);
  CHECK(known.largest_share == Approx(made.shape().largest_share));
  for (const std::int64_t elements : {1'000, 1'000'000, 1'000'000'000}) {
    const Duration exact = made.shape().bound->at_least(elements);
    INFO(elements << " elements");
    CHECK(known.bound->at_least(elements).picoseconds() <= exact.picoseconds());
    CHECK(known.bound->at_least(elements).seconds() >= 0.99 * exact.seconds() - 1e-6);
  }
}

}  // namespace rackrail::planner
