// Whether the peers of a rank are still there, by what comes from them over the network that
// carries the gradients.
//
// Model. The coordinator's heartbeats may take another network than the gradients do, and a cable
// that is pulled in the middle of a send is no error to a socket for minutes. So every rank sends
// each other one an empty message, a pulse, once per period; whatever comes from a peer is a sign
// of life. A peer that was heard once and then not for `patience` is silent. One that was never
// heard has more time: it may still be reading its data.
//
// A gap between two calls does not count against the peers: this process itself was stopped or
// starved, and what they sent has yet to be taken from the network.
//
// Time is an argument of every call. O(ranks) once per half a period, otherwise O(1).
#pragma once

#include <chrono>
#include <optional>
#include <vector>

#include "base/ids.hpp"
#include "base/units.hpp"

namespace rackrail::runtime {

struct PulseOptions {
  Duration period;    ///< of the messages to each peer
  Duration patience;  ///< silence after which a peer is missed; several periods
  Duration first_patience = Duration(60'000'000'000'000);  ///< 60 s, for who was never heard
};

class PeerWatch {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  PeerWatch(std::size_t ranks, Rank self, const PulseOptions& options, TimePoint now);

  /// Something came from this peer.
  void heard(Rank peer, TimePoint now);
  /// It has ended its connections: nothing is expected of it.
  void forget(Rank peer);
  /// Whether a pulse is to be sent now; the next one is due a period later.
  bool is_pulse_due(TimePoint now);

  struct Silence {
    Rank peer;
    Duration length;
  };
  /// The peer that has been silent for longest, if that is too long. To be called much more often
  /// than once per period.
  std::optional<Silence> find_silent(TimePoint now);

 private:
  struct Peer {
    TimePoint last_heard;
    bool was_heard = false;
    bool is_expected = true;
  };

  const PulseOptions options_;
  std::vector<Peer> peers_;
  TimePoint next_pulse_;
  TimePoint next_search_;
  TimePoint last_look_;
};

}  // namespace rackrail::runtime
