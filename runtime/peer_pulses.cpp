#include "runtime/peer_pulses.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/parse_units.hpp"
#include "runtime/missed_peer.hpp"

namespace rackrail::runtime {

PeerPulses::PeerPulses(Transport& transport, Rank self, std::size_t ranks, std::uint64_t plan,
                       std::uint32_t epoch, const std::optional<PulseOptions>& options,
                       std::span<const Rail> rails)
    : transport_(transport),
      self_(self),
      is_gone_(ranks, 0),
      lines_(std::make_shared<std::vector<Line>>()) {
  header_.plan = plan;
  header_.epoch = epoch;
  header_.bucket = kNoBucket;
  if (!options) {
    return;
  }
  std::uint32_t most = 0;
  for (const Rail& rail : rails) {
    most = std::max(most, rail.number);
  }
  const PeerWatch::TimePoint now = PeerWatch::TimePoint::clock::now();
  *lines_ = std::vector<Line>(most + 1, Line{.watch = PeerWatch(ranks, self, *options, now),
                                             .has_rail = std::vector<char>(ranks, 0),
                                             .in_flight = std::vector<char>(ranks, 0),
                                             .adapters = {}});
  lines_->front().has_rail.assign(ranks, 1);
  lines_->front().has_rail[self.index()] = 0;
  for (const Rail& rail : rails) {
    Line& line = (*lines_)[rail.number];
    line.has_rail[rail.peer.index()] = 1;
    line.adapters[rail.peer] = fmt::format("its {} to {}", rail.peer_adapter, rail.adapter);
  }
  for (Line& line : *lines_) {
    for (std::size_t peer = 0; peer < ranks; ++peer) {
      if (line.has_rail[peer] == 0) {
        line.watch.forget(Rank(peer));
      }
    }
  }
}

void PeerPulses::heard(Rank peer, std::uint32_t rail) {
  if (rail < lines_->size()) {
    (*lines_)[rail].watch.heard(peer, PeerWatch::TimePoint::clock::now());
  }
}

void PeerPulses::forget(Rank peer) {
  is_gone_[peer.index()] = 1;
  for (Line& line : *lines_) {
    line.watch.forget(peer);
  }
}

void PeerPulses::beat() {
  const PeerWatch::TimePoint now = PeerWatch::TimePoint::clock::now();
  for (std::uint32_t rail = 0; rail < lines_->size(); ++rail) {
    beat(rail, now);
  }
}

void PeerPulses::beat(std::uint32_t rail, PeerWatch::TimePoint now) {
  Line& line = (*lines_)[rail];
  if (line.watch.is_pulse_due(now)) {
    SliceHeader header = header_;
    header.rail = rail;
    for (std::size_t peer = 0; peer < is_gone_.size(); ++peer) {
      // One that is still on its way says as much as another behind it.
      if (line.has_rail[peer] != 0 && is_gone_[peer] == 0 &&
          std::exchange(line.in_flight[peer], 1) == 0) {
        transport_.send(Rank(peer), header, {},
                        [lines = lines_, rail, peer] { (*lines)[rail].in_flight[peer] = 0; });
      }
    }
  }
  if (const std::optional<PeerWatch::Silence> silent = line.watch.find_silent(now)) {
    throw MissedPeerError(
        {.rank = silent->peer,
         .why = "nothing came from it for " + to_string(silent->length) +
                (rail == 0 ? ""
                           : fmt::format(" by rail {}: {}", rail, line.adapters.at(silent->peer))),
         .silence = silent->length});
  }
}

}  // namespace rackrail::runtime
