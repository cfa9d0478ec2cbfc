// The variants of group_rings.hpp: properties of rings in many pieces are known before they are
// made.
#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "plan/alpha_beta.hpp"
#include "planner/algorithms/group_rings.hpp"
#include "planner/groups/rank_groups.hpp"

namespace rackrail::planner {

namespace {

constexpr std::size_t kPiecesOfRings[] = {2, 3, 4, 6, 8, 16, 32};

/// In which members copy to their groups, or sum up, what they own of a number of pieces.
std::size_t owned_ranges_of(const LineLanes& lanes, const std::vector<RingPiece>& pieces) {
  std::vector<std::uint32_t> weights;
  for (const RingPiece& piece : pieces) {
    weights.push_back(piece.weight());
  }
  std::size_t ranges = 0;
  for (const std::vector<LineLane>& of_line : lanes) {
    ranges += lane_chunks(of_line, weights).weights.size();
  }
  return ranges;
}

/// Rings along the same lanes, in any number of pieces.
class RingForms {
 public:
  RingForms(plan::Collective what, const ScheduleRequest& request, LineLanes lanes)
      : what_(what),
        request_(request),
        lanes_(std::move(lanes)),
        first_(make_group_rings(what, request, 1, RingWays::kOne, lanes_), request.topology),
        one_(first_.shape()) {}

  void add_to(std::vector<CollectiveForm>& forms) {
    forms.push_back(std::move(first_));
    for (const std::size_t pieces : kPiecesOfRings) {
      if (!add(forms, pieces, RingWays::kOne, *one_.bound)) {
        break;
      }
    }
    if (!is_possible(2, in_pieces(ring_pieces(what_, 2, RingWays::kBoth)))) {
      return;
    }
    // Links that carry one way only what goes that way have half of it each, or not, as routes are.
    const plan::AlphaBeta both = plan::alpha_beta(
        make_group_rings(what_, request_, 2, RingWays::kBoth, lanes_), request_.topology);
    for (const std::size_t pieces : kPiecesOfRings) {
      if (pieces % 2 == 0 && !add(forms, pieces, RingWays::kBoth, both)) {
        break;
      }
    }
  }

 private:
  /// Whether the request allows for it.
  bool is_possible(std::size_t pieces, const FormShape& shape) const {
    return pieces <= request_.most_rounds &&
           shape.transfers <= static_cast<std::int64_t>(request_.most_transfers);
  }
  /// Whether it is possible.
  bool add(std::vector<CollectiveForm>& forms, std::size_t pieces, RingWays ways,
           const plan::AlphaBeta& bound_of_few) const {
    FormShape shape = in_pieces(ring_pieces(what_, pieces, ways));
    if (!is_possible(pieces, shape)) {
      return false;
    }
    shape.bound->seconds_per_element = bound_of_few.seconds_per_element;
    shape.bound->alpha = std::min(shape.bound->alpha, bound_of_few.alpha);
    forms.emplace_back(shape, [what = what_, request = request_, pieces, ways, lanes = lanes_] {
      return make_group_rings(what, request, pieces, ways, lanes);
    });
    return true;
  }

  /// What rings in pieces are like, by those in one and without being made: where all go the same
  /// way, chains of dependencies are as long, and links carry as much.
  FormShape in_pieces(const std::vector<RingPiece>& pieces) const {
    std::size_t parts = 0;
    std::size_t more_parts = 0;
    std::uint32_t largest = 0;
    std::uint32_t whole = 0;
    for (const RingPiece& piece : pieces) {
      parts += piece.parts.size();
      more_parts += (piece.parts.size() - 1) * ((piece.is_first ? 1 : 0) + (piece.is_last ? 1 : 0));
      largest = std::max(largest, piece.weight());
      whole += piece.weight();
    }
    FormShape shape = one_;
    shape.largest_share *= static_cast<double>(largest) / whole;
    shape.transfers = transfers(pieces, more_parts);
    // More parts are rounded, and no chunk is empty once each unit of weight has an element.
    shape.bound->rounding = shape.bound->rounding * static_cast<std::int64_t>(parts);
    shape.bound->fewest_elements *= whole;
    return shape;
  }

  /// As many of each piece, but for what members own inside their groups, which is moved by owner;
  /// and those of parts beyond the first of a piece at one hop.
  std::int64_t transfers(const std::vector<RingPiece>& pieces, std::size_t more_parts) const {
    const std::size_t ranks = request_.topology.rank_count();
    const std::size_t to_others = ranks - tier_groups(request_.topology).size();
    const auto carriers = static_cast<std::size_t>(
        std::ranges::count_if(lanes_, [](const auto& of_line) { return !of_line.empty(); }));
    const auto of_own = [&](const std::vector<RingPiece>& some) {
      return static_cast<std::int64_t>(owned_ranges_of(lanes_, some) * to_others);
    };
    const std::int64_t of_a_piece = one_.transfers - of_own(ring_pieces(what_, 1, RingWays::kOne));
    return static_cast<std::int64_t>(pieces.size()) * of_a_piece + of_own(pieces) +
           static_cast<std::int64_t>(more_parts * ranks * carriers);
  }

  plan::Collective what_;
  const ScheduleRequest& request_;
  LineLanes lanes_;
  CollectiveForm first_;
  FormShape one_;
};

}  // namespace

std::vector<CollectiveForm> group_ring_forms(plan::Collective what,
                                             const ScheduleRequest& request) {
  std::vector<CollectiveForm> forms;
  if (refuse_group_rings(request.topology, request.codecs)) {
    return forms;
  }
  // First, so that even ones need not be looked at where these are faster than their bounds.
  if (LineLanes lanes = uneven_lanes(what, request); !lanes.empty()) {
    RingForms(what, request, std::move(lanes)).add_to(forms);
  }
  const std::size_t lines = ring_lines(tier_groups(request.topology));
  RingForms(what, request, even_lanes(lines)).add_to(forms);
  return forms;
}

}  // namespace rackrail::planner
