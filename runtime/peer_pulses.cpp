#include "runtime/peer_pulses.hpp"

#include <utility>

#include "base/parse_units.hpp"
#include "runtime/missed_peer.hpp"

namespace rackrail::runtime {

PeerPulses::PeerPulses(Transport& transport, Rank self, std::size_t ranks, std::uint64_t plan,
                       std::uint32_t epoch, const std::optional<PulseOptions>& options)
    : transport_(transport),
      self_(self),
      is_gone_(ranks, 0),
      in_flight_(std::make_shared<std::vector<char>>(ranks, 0)) {
  header_.plan = plan;
  header_.epoch = epoch;
  header_.bucket = kNoBucket;
  if (options) {
    watch_.emplace(ranks, self, *options, PeerWatch::TimePoint::clock::now());
  }
}

void PeerPulses::heard(Rank peer) {
  if (watch_) {
    watch_->heard(peer, PeerWatch::TimePoint::clock::now());
  }
}

void PeerPulses::forget(Rank peer) {
  is_gone_[peer.index()] = 1;
  if (watch_) {
    watch_->forget(peer);
  }
}

void PeerPulses::beat() {
  if (!watch_) {
    return;
  }
  const PeerWatch::TimePoint now = PeerWatch::TimePoint::clock::now();
  if (watch_->is_pulse_due(now)) {
    for (std::size_t peer = 0; peer < is_gone_.size(); ++peer) {
      // One that is still on its way says as much as another behind it.
      if (Rank(peer) != self_ && is_gone_[peer] == 0 &&
          std::exchange((*in_flight_)[peer], 1) == 0) {
        send(Rank(peer));
      }
    }
  }
  if (const std::optional<PeerWatch::Silence> silent = watch_->find_silent(now)) {
    throw MissedPeerError({.rank = silent->peer,
                           .why = "nothing came from it for " + to_string(silent->length),
                           .silence = silent->length});
  }
}

void PeerPulses::send(Rank peer) {
  transport_.send(peer, header_, {},
                  [in_flight = in_flight_, peer] { (*in_flight)[peer.index()] = 0; });
}

}  // namespace rackrail::runtime
