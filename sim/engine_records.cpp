// What links send, kept for tables: of flows while their rates stand, of packets as they leave.
#include <algorithm>
#include <cmath>

#include "sim/engine.hpp"
#include "sim/engine_state.hpp"

namespace rackrail::sim {

namespace {
constexpr std::size_t kPiecesBeforeCleaning = std::size_t{1} << 18U;

/// What of a piece lies between these times, in bytes: its rate stands.
double bytes_between(const LinkPiece& piece, Time from, Time to) {
  const Time begin = std::max(piece.begin, from);
  const Time end = std::min(piece.end, to);
  return end > begin ? piece.bytes * static_cast<double>(end - begin) /
                           static_cast<double>(piece.end - piece.begin)
                     : 0;
}
}  // namespace

void Engine::record_rates(const SimulationOptions& options) {
  pieces_before_cleaning_ = kPiecesBeforeCleaning;
  first_reported_ = options.report.first_possible(options.steps);
  if (!options.record_flows && disturbances_.background.empty()) {
    return;
  }
  old_background_.resize(topology_.link_count());
  last_pieces_.assign(topology_.link_count(), SIZE_MAX);
  network_->record_rates(rate_pieces_);
  network_->record_links(
      link_pieces_, [this](FlowTag tag) { return flying_[tag].kind == TaskKind::kBackground; });
}

// Pieces that were recorded become those of the plan's messages, or of links.
void Engine::take_rates() {
  for (const RatePiece& piece : rate_pieces_) {
    const Task& task = flying_[piece.tag];
    if (task.kind == TaskKind::kBackground) {
      for (const LinkId link : background_routes_[task.slice]) {
        add_background_piece({link, piece.begin, piece.end, piece.bytes, true});
      }
    } else if (records_flows_) {
      moved_pieces_.push_back({task.activity, piece});
    }
  }
  rate_pieces_.clear();
  if (link_pieces_.size() >= pieces_before_cleaning_) {
    forget_old_pieces();
  }
}

// Messages that share a link mostly change their rates together: those are one piece of it.
void Engine::add_background_piece(const LinkPiece& piece) {
  std::size_t& number = last_pieces_[piece.link.index()];
  if (number < link_pieces_.size()) {
    LinkPiece& last = link_pieces_[number];
    if (last.link == piece.link && last.is_background && last.begin == piece.begin &&
        last.end == piece.end) {
      last.bytes += piece.bytes;
      return;
    }
  }
  number = link_pieces_.size();
  link_pieces_.push_back(piece);
}

// Drops what ended before the first step that may be reported has begun anywhere.
void Engine::forget_old_pieces() {
  Time horizon = now_;
  for (const RankState& rank : ranks_) {
    if (!rank.steps.empty()) {
      const std::size_t step = std::min(first_reported_, rank.times.size() - 1);
      horizon = std::min(horizon, rank.times.empty() ? Time{0} : rank.times[step].start);
    }
  }
  const auto is_old = [&](const LinkPiece& piece) { return piece.end <= horizon; };
  for (const LinkPiece& piece : link_pieces_) {
    if (is_old(piece) && piece.is_background) {
      old_background_[piece.link.index()] += piece.bytes;
    }
  }
  std::erase_if(link_pieces_, is_old);
  pieces_before_cleaning_ = std::max(kPiecesBeforeCleaning, 2 * link_pieces_.size());
}

std::vector<Bytes> Engine::background_bytes(Time from, Time to) const {
  std::vector<double> sum(topology_.link_count());
  if (from == 0) {
    sum.assign(old_background_.begin(), old_background_.end());
    sum.resize(topology_.link_count());
  }
  for (const LinkPiece& piece : link_pieces_) {
    if (piece.is_background) {
      sum[piece.link.index()] += bytes_between(piece, from, to);
    }
  }
  std::vector<Bytes> bytes;
  for (const double one : sum) {
    bytes.emplace_back(std::llround(one));
  }
  return bytes;
}

}  // namespace rackrail::sim
