// What links send, kept for tables: of flows while their rates stand, of packets as they leave.
#include <algorithm>

#include "sim/engine.hpp"
#include "sim/engine_state.hpp"

namespace rackrail::sim {

namespace {
constexpr std::size_t kPiecesBeforeAdding = std::size_t{1} << 14U;

/// What of a piece lies between these times, in bytes: its rate stands.
double bytes_between(const LinkPiece& piece, Time from, Time to) {
  const Time begin = std::max(piece.begin, from);
  const Time end = std::min(piece.end, to);
  return end > begin ? piece.bytes * static_cast<double>(end - begin) /
                           static_cast<double>(piece.end - piece.begin)
                     : 0;
}
}  // namespace

void Engine::watch(std::size_t first, std::size_t last, bool counts_plan) {
  watch_ = {.first_step = first, .last_step = last, .is_wanted = true, .counts_plan = counts_plan};
}

void Engine::record_rates() {
  carried_.others.assign(topology_.link_count(), 0);
  if (watch_.counts_plan) {
    carried_.plan.assign(topology_.link_count(), 0);
    for (const RankState& rank : ranks_) {
      if (has_packets_ && !rank.processor.empty()) {
        carried_.plan[rank.processor.front().index()] = -1;
      }
    }
  }
  const bool has_others = watch_.is_wanted && !disturbances_.background.empty();
  if (!records_flows_ && !watch_.counts_plan && !has_others) {
    return;
  }
  last_pieces_.assign(2 * topology_.link_count(), SIZE_MAX);
  pieces_before_adding_ = kPiecesBeforeAdding;
  network_->record_rates(rate_pieces_);
  network_->record_links(
      link_pieces_, [this](FlowTag tag) { return flying_[tag].kind == TaskKind::kBackground; });
}

// Pieces that were recorded become those of links.
void Engine::take_rates() {
  for (const RatePiece& piece : rate_pieces_) {
    const Task& task = flying_[piece.tag];
    if (piece.begin >= recorded_until_) {
      continue;
    }
    if (task.kind == TaskKind::kBackground) {
      for (const LinkId link : background_routes_[task.slice]) {
        add_piece({link, piece.begin, piece.end, piece.bytes, true});
      }
    } else if (task.kind == TaskKind::kWire && (records_flows_ || watch_.counts_plan)) {
      const GraphIndex& index = *runs_[task.run].index;
      const RouteUse& route = index.routes[index.item(task.place).route];
      for (std::size_t i = 0; i < route.links.size(); ++i) {
        add_piece(
            {route.links[i], piece.begin, piece.end, piece.bytes * share_of(route, i), false});
      }
    }
  }
  rate_pieces_.clear();
  if (pieces_before_adding_ > 0 && link_pieces_.size() >= pieces_before_adding_) {
    add_up_pieces();
    pieces_before_adding_ = std::max(kPiecesBeforeAdding, 2 * link_pieces_.size());
  }
}

// Messages that share a link mostly change their rates together: those are one piece of it.
void Engine::add_piece(const LinkPiece& piece) {
  std::size_t& number = last_pieces_[2 * piece.link.index() + (piece.is_background ? 1 : 0)];
  if (number < link_pieces_.size()) {
    LinkPiece& last = link_pieces_[number];
    if (last.link == piece.link && last.is_background == piece.is_background &&
        last.begin == piece.begin && last.end == piece.end) {
      last.bytes += piece.bytes;
      return;
    }
  }
  number = link_pieces_.size();
  link_pieces_.push_back(piece);
}

// Adds up what was carried in the time that is watched, and drops the pieces. Where they are asked
// for themselves, those before that time are dropped, and the others added up once, at the end.
void Engine::add_up_pieces() {
  const bool has_begun = watch_.from >= 0;
  if (records_flows_ && has_begun && unfinished_ > 0) {
    std::erase_if(link_pieces_,
                  [&](const LinkPiece& piece) { return piece.begin >= recorded_until_; });
    return;
  }
  for (const LinkPiece& piece : link_pieces_) {
    std::vector<double>& sums = piece.is_background ? carried_.others : carried_.plan;
    if (has_begun && !sums.empty() && sums[piece.link.index()] >= 0) {
      sums[piece.link.index()] += bytes_between(piece, watch_.from, watch_.to);
    }
  }
  if (!records_flows_ || !has_begun) {
    link_pieces_.clear();
  }
}

}  // namespace rackrail::sim
