#include "planner/algorithms/ring_pieces.hpp"

#include <algorithm>
#include <numeric>
#include <span>

namespace rackrail::planner {

namespace {

constexpr std::uint32_t kWhole = 24;  // weight of a piece
// Where pieces are cut at the last hop of copies, in 64ths of what goes one way round, before its
// end. An all-reduce has additions to wait for meanwhile, and gains less by more messages.
constexpr std::uint32_t kCuts[] = {1, 2, 4, 6, 10, 14, 22, 30, 46};
constexpr std::uint32_t kCutsOfAllReduce[] = {2, 4, 8};
constexpr std::uint32_t kCutUnits = 64;

/// Whether copies are cut so much before the end of what goes their way round.
bool are_copies_cut(plan::Collective what, std::uint32_t left, std::uint32_t all) {
  std::span<const std::uint32_t> cuts;
  if (what != plan::Collective::kReduceScatter) {
    cuts = what == plan::Collective::kAllGather ? std::span<const std::uint32_t>(kCuts)
                                                : std::span<const std::uint32_t>(kCutsOfAllReduce);
  }
  return std::ranges::any_of(
      cuts, [&](std::uint32_t cut) { return left == (cut * all + kCutUnits / 2) / kCutUnits; });
}

/// Weights of pieces that go one way round. Were those of an all-gather alike that go back,
/// messages of both ways would end together, and their link wait for the next.
std::vector<std::uint32_t> weights_of_pieces(plan::Collective what, std::size_t count,
                                             bool go_back) {
  std::vector<std::uint32_t> weights(count, kWhole);
  if (what == plan::Collective::kAllGather && go_back && count > 1) {
    weights.front() -= kWhole / 2;
    weights.back() += kWhole / 2;
  }
  return weights;
}

}  // namespace

std::uint32_t RingPiece::weight() const {
  return std::accumulate(parts.begin(), parts.end(), std::uint32_t{0});
}

std::vector<RingPiece> ring_pieces(plan::Collective what, std::size_t count, RingWays ways) {
  if (count == 1) {
    return {{{1}}};
  }
  std::vector<RingPiece> pieces(count);
  const std::size_t step = ways == RingWays::kBoth ? 2 : 1;
  for (std::size_t way = 0; way < step; ++way) {
    const std::vector<std::uint32_t> weights =
        weights_of_pieces(what, (count - way + step - 1) / step, way > 0);
    const std::uint32_t all = std::accumulate(weights.begin(), weights.end(), std::uint32_t{0});
    std::uint32_t at = 0;
    for (std::size_t i = 0; i < weights.size(); ++i) {
      RingPiece& piece = pieces[way + i * step];
      piece.parts.push_back(0);
      for (std::uint32_t unit = 0; unit < weights[i]; ++unit, ++at) {
        // Additions take longer than messages: of sums only the first piece of all is cut.
        const bool cuts_sums =
            what != plan::Collective::kAllGather && way == 0 && i == 0 && unit == weights[i] / 2;
        const bool cuts_copies = unit > 0 && are_copies_cut(what, all - at, all);
        piece.is_first = piece.is_first || cuts_sums;
        piece.is_last = piece.is_last || cuts_copies;
        if (cuts_sums || cuts_copies) {
          piece.parts.push_back(0);
        }
        ++piece.parts.back();
      }
    }
  }
  return pieces;
}

}  // namespace rackrail::planner
