// All-reduces alone on an emulated network: what is predicted of them, and what they take.
#pragma once

#include <string>
#include <vector>

#include "base/units.hpp"
#include "plan/codec.hpp"
#include "plan/plan.hpp"
#include "sim/simulator.hpp"
#include "topology/topology.hpp"

namespace rackrail::cli {

struct EmulatedCollective {
  Bytes size;  ///< of the FP32 buffer on every rank
  plan::Codec codec;
  std::string family;
  bool is_chosen = false;  ///< the family that a plan would have for this size and codec
  Duration predicted;
  Duration measured;  ///< zero until somebody has

  double error() const { return predicted / measured - 1; }
};

/// Cases that are executed together, each as the bucket of its number in one plan.
struct CollectivePlan {
  plan::Plan plan;
  std::vector<EmulatedCollective> cases;  ///< one at least, all of one codec

  const plan::Codec& codec() const { return cases.front().codec; }
};

struct CollectiveSelection {
  Bytes smallest = 1_KiB;
  Bytes largest = 64_MiB;
  std::int64_t growth = 4;  ///< of a size to the next, a power of two
  std::vector<plan::Codec> codecs = {plan::Codec{}};
  /// Every family that can be used, divided as is predicted best for it, not only the chosen one.
  bool every_schedule = false;

  std::vector<Bytes> sizes() const;
};

/// A plan for each codec, of all sizes. With every_schedule one for each family of it, so that each
/// family has connections of its own: a connection that another family has just used keeps its
/// congestion state, which would distort times. Throws ConfigError for a codec that no family
/// accepts.
std::vector<CollectivePlan> plan_collectives(const topology::Topology& network,
                                             const sim::SimulationOptions& simulation,
                                             const CollectiveSelection& selection);

/// What a choice costs against the best that could have been chosen.
struct MeasuredChoice {
  const EmulatedCollective* chosen = nullptr;
  const EmulatedCollective* best = nullptr;  ///< measured
  double over_best() const { return chosen->measured / best->measured - 1; }
};

/// One for each size and codec that has several families, by size where cases of a codec follow one
/// another. The cases must outlive the result.
std::vector<MeasuredChoice> measured_choices(const std::vector<EmulatedCollective>& cases);

}  // namespace rackrail::cli
