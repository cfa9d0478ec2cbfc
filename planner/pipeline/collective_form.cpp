#include "planner/pipeline/collective_form.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>
#include <vector>

namespace rackrail::planner {

FormShape shape_of(const plan::TransferGraph& graph) {
  const auto weights = graph.chunk_weights();
  std::vector<std::int64_t> sum(weights.size() + 1, 0);
  std::partial_sum(weights.begin(), weights.end(), sum.begin() + 1);
  std::int64_t largest = 0;
  for (const plan::Transfer& transfer : graph.transfers()) {
    largest = std::max(
        largest, sum[transfer.chunk_begin + transfer.chunk_count] - sum[transfer.chunk_begin]);
  }
  auto messages = static_cast<std::int64_t>(graph.transfers().size());
  for (const plan::TransferGroup& group : graph.groups()) {
    messages -= group.count - 1;
  }
  return {static_cast<double>(largest) / static_cast<double>(sum.back()), messages, std::nullopt};
}

FormShape in_pieces(FormShape one, const PieceShares& pieces, std::int64_t transfers) {
  one.largest_share = pieces.largest;
  one.transfers = transfers;
  if (one.bound) {
    one.bound->rounding = one.bound->rounding * pieces.times;
    one.bound->fewest_elements = static_cast<std::int64_t>(std::ceil(1.001 / pieces.smallest)) + 1;
  }
  return one;
}

std::string in_rounds_text(std::size_t rounds) {
  return fmt::format("{} round{}", rounds, rounds == 1 ? "" : "s");
}

plan::TransferGraph with_mechanism(plan::TransferGraph graph, std::string mechanism) {
  graph.set_mechanism(std::move(mechanism));
  return graph;
}

CollectiveForm::CollectiveForm(plan::TransferGraph graph, const topology::Topology& topology)
    : shape_(shape_of(graph)),
      graph_(std::make_shared<const plan::TransferGraph>(std::move(graph))) {
  shape_.bound = plan::alpha_beta(*graph_, topology);
}

std::shared_ptr<const plan::TransferGraph> CollectiveForm::shared_graph() const {
  if (!graph_) {
    graph_ = std::make_shared<const plan::TransferGraph>(make_());
    make_ = {};
  }
  return graph_;
}

}  // namespace rackrail::planner
