// A plan's routes when some links change: which use them, and how they are numbered afterwards.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "plan/plan.hpp"
#include "planner/replan/replan.hpp"
#include "topology/queries.hpp"

namespace rackrail::planner {

class LinkMap {
 public:
  LinkMap(std::size_t link_count, std::span<const LinkChange> changes);

  bool is_changed(LinkId before) const { return is_changed_[before.index()]; }
  /// The number of the link on the changed cluster; none when it is lost.
  std::optional<LinkId> now(LinkId before) const { return now_[before.index()]; }
  bool uses_changed(std::span<const LinkId> route) const;
  bool uses_lost(std::span<const LinkId> route) const;

 private:
  std::vector<bool> is_changed_;
  std::vector<std::optional<LinkId>> now_;
};

struct Rerouted {
  plan::TransferGraph graph;
  std::size_t routes = 0;  ///< that are others than before
};

/// The same transfers on the changed cluster: routes over changed links are those of `router` (of
/// that cluster), the others stay, renumbered.
Rerouted rerouted(const plan::TransferGraph& graph, const LinkMap& links, topology::Router& router);
/// All routes renumbered and nothing else; none when a route uses a lost link.
std::optional<plan::TransferGraph> renumbered(const plan::TransferGraph& graph,
                                              const LinkMap& links);

bool touches(const plan::TransferGraph& graph, const LinkMap& links);

/// Bytes per step that the plan's transfers move over the links for which `counts` is set, as
/// encoded.
Bytes bytes_over(const plan::Plan& plan, const std::vector<bool>& counts);

}  // namespace rackrail::planner
