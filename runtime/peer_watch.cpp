#include "runtime/peer_watch.hpp"

#include <algorithm>

namespace rackrail::runtime {
namespace {

std::chrono::nanoseconds pulse_time(Duration time) {
  return std::chrono::nanoseconds(time.picoseconds() / 1000);
}

}  // namespace

PeerWatch::PeerWatch(std::size_t ranks, Rank self, const PulseOptions& options, TimePoint now)
    : options_(options),
      peers_(ranks, {.last_heard = now}),
      next_pulse_(now),
      next_search_(now),
      last_look_(now) {
  forget(self);
}

void PeerWatch::heard(Rank peer, TimePoint now) {
  peers_[peer.index()].last_heard = now;
  peers_[peer.index()].was_heard = true;
}

void PeerWatch::forget(Rank peer) { peers_[peer.index()].is_expected = false; }

bool PeerWatch::is_pulse_due(TimePoint now) {
  if (now < next_pulse_) {
    return false;
  }
  next_pulse_ = now + pulse_time(options_.period);
  return true;
}

std::optional<PeerWatch::Silence> PeerWatch::find_silent(TimePoint now) {
  const auto gap = now - last_look_;
  last_look_ = now;
  if (gap > 2 * pulse_time(options_.period)) {
    for (Peer& peer : peers_) {
      peer.last_heard = std::min(peer.last_heard + gap, now);
    }
    return std::nullopt;
  }
  if (now < next_search_) {
    return std::nullopt;
  }
  next_search_ = now + pulse_time(options_.period) / 2;
  std::optional<Silence> worst;
  for (std::size_t rank = 0; rank < peers_.size(); ++rank) {
    const Peer& peer = peers_[rank];
    const Duration patience = peer.was_heard ? options_.patience : options_.first_patience;
    const Duration silence(std::chrono::nanoseconds(now - peer.last_heard).count() * 1000);
    if (peer.is_expected && silence >= patience && (!worst || silence > worst->length)) {
      worst = Silence{.peer = Rank(rank), .length = silence};
    }
  }
  return worst;
}

}  // namespace rackrail::runtime
