// The fastest way in which a family carries out a collective alone, among all its variants and
// slices (collective_forms.hpp). Takes seconds where ranks are very many.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "base/units.hpp"
#include "plan/cost_model.hpp"
#include "plan/transfer_graph.hpp"
#include "planner/algorithms/schedule_family.hpp"
#include "planner/pipeline/collective_form.hpp"
#include "planner/request/options.hpp"
#include "planner/tuning/collective_forms.hpp"
#include "topology/topology.hpp"

namespace rackrail::planner {

struct DivisionLimits {
  std::optional<Duration> known = {};  ///< others take so long: only less is of interest
  std::optional<Duration> slow = {};   ///< what takes so long in one piece is not cut
  bool compares_exactly = false;       ///< the best of several series, where costs are not exact
};

/// The variants of one family for one collective, timed by a cost model in several sizes.
class FamilyDivisions {
 public:
  /// `costs` must outlive it. `has_bounds`: whether those of the variants are bounds of `costs`.
  FamilyDivisions(std::vector<CollectiveForm> forms, plan::CostModel& costs,
                  SliceSearch slices = {}, bool has_bounds = true);

  const std::vector<CollectiveForm>& forms() const { return forms_; }
  /// By their bounds.
  Duration at_least(std::int64_t elements) const;

  /// The fastest for `elements`, if there is any. Where the StoppableWork around it ends it, or an
  /// interrupted cost model, that of those that were timed (was_cut()).
  std::optional<DividedCollective> fastest(std::int64_t elements,
                                           const DivisionLimits& limits = {});

  /// Of the present or the last call: the fastest so far, and the times of the variants that were
  /// looked at, none of those that were not simulated to the end.
  const std::optional<DividedCollective>& found() const { return found_; }
  const std::map<std::size_t, std::optional<Duration>>& times() const { return times_; }
  bool was_cut() const { return was_cut_; }

 private:
  std::vector<CollectiveForm> forms_;
  plan::CostModel& costs_;
  DivisionSearch search_;
  std::optional<DividedCollective> found_;
  std::map<std::size_t, std::optional<Duration>> times_;
  bool was_cut_ = false;
};

struct CollectiveOfOneSize {
  plan::Collective what = plan::Collective::kAllReduce;
  std::int64_t elements = 0;  ///< at least one
  const topology::Topology& topology;
  TierCodecs codecs;
  plan::CostModel& costs;  ///< of the topology
  /// Whether a bound by routes as pinned and links as fast as the topology says is one of `costs`.
  bool has_bounds = true;
  /// From the first true on the best so far is the answer. Empty: the search runs to its end.
  std::function<bool()> stop = {};
  DecisionLog decisions = {};
};

struct FastestCollective {
  Duration time;
  std::int64_t slice_elements = 0;
  std::shared_ptr<const plan::TransferGraph> graph;
};

/// None where the family has no such collective, or none that is faster than `known`.
/// Precondition: the family does not refuse the topology and the codecs.
std::optional<FastestCollective> fastest_collective(const ScheduleFamily& family,
                                                    const CollectiveOfOneSize& collective,
                                                    std::optional<Duration> known = std::nullopt);

}  // namespace rackrail::planner
