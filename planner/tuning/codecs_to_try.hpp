// Which codecs a plan may use where none is asked for.
#pragma once

#include <functional>
#include <vector>

#include "plan/codec.hpp"
#include "topology/topology.hpp"

namespace rackrail::planner {

/// Of all codecs that can be executed, with default parameters, from the lightest to the strongest:
/// those of which one encoding (`error_of`: its relative error) is within the budget, except what
/// another one of them makes pointless, being at least as small, at least as right, on every
/// rank's device nearly as quick or quicker, and fit for as many hops. FP32 is always among them.
/// So BF16 is tried where FP16 is not right enough, and FP8 where 8-bit blocks are not, or where it
/// is much quicker.
std::vector<plan::Codec> codecs_to_try(const topology::Topology& topology, double error_budget,
                                       const std::function<double(const plan::Codec&)>& error_of);

/// Of a large buffer, as encoded.
double bytes_per_element(const plan::Codec& codec);

}  // namespace rackrail::planner
