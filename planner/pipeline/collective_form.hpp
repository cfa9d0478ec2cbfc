// One way in which a family carries out a collective, made only when it is looked at more closely:
// of a pipeline in many rounds its shape and its bound are known before, and often they are enough.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "plan/alpha_beta.hpp"
#include "plan/transfer_graph.hpp"
#include "topology/topology.hpp"

namespace rackrail::planner {

/// What decides how finely a form may be cut.
struct FormShape {
  double largest_share = 0;                             ///< of the buffer that one transfer moves
  std::int64_t transfers = 0;                           ///< a group counts as one: it is one flow
  std::optional<plan::AlphaBeta> bound = std::nullopt;  ///< of its time, where it is known
  std::int64_t slices = 1;  ///< of its largest transfers, for which its order is made
};
/// Pieces into which more rounds cut the parts of one.
struct PieceShares {
  double largest = 0;  ///< of the buffer
  double smallest = 1;
  std::int64_t times = 0;  ///< as many of a part at most
};
/// What `one` looks like in pieces: chains of dependencies are as long, links carry as much. More
/// pieces are rounded, and none is empty once the smallest has an element.
FormShape in_pieces(FormShape one, const PieceShares& pieces, std::int64_t transfers);
/// Without a bound.
FormShape shape_of(const plan::TransferGraph& graph);

/// "1 round", "24 rounds": of TransferGraph::mechanism().
std::string in_rounds_text(std::size_t rounds);
/// The graph with that mechanism.
plan::TransferGraph with_mechanism(plan::TransferGraph graph, std::string mechanism);

class CollectiveForm {
 public:
  /// Of a graph that is there, with its bound on this topology.
  CollectiveForm(plan::TransferGraph graph, const topology::Topology& topology);
  /// Of one that `make` makes. What it refers to must outlive the form.
  CollectiveForm(const FormShape& shape, std::function<plan::TransferGraph()> make)
      : shape_(shape), make_(std::move(make)) {}

  const FormShape& shape() const { return shape_; }
  const plan::TransferGraph& graph() const { return *shared_graph(); }
  /// Made at the first call, and kept. Not to be called by two threads at once.
  std::shared_ptr<const plan::TransferGraph> shared_graph() const;

 private:
  FormShape shape_;
  mutable std::function<plan::TransferGraph()> make_;
  mutable std::shared_ptr<const plan::TransferGraph> graph_;
};

}  // namespace rackrail::planner
