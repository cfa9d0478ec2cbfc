// Which peer is at fault when a collective breaks off: what a rank tells the coordinator, which
// weighs it against what the others say.
#pragma once

#include <optional>
#include <string>
#include <utility>

#include "base/error.hpp"
#include "base/ids.hpp"
#include "base/units.hpp"

namespace rackrail::runtime {

struct MissedPeer {
  Rank rank;
  std::string why;                  ///< one line, without the rank
  std::optional<Duration> silence;  ///< since it was last heard, where that is why
};

class MissedPeerError : public PeerLostError {
 public:
  explicit MissedPeerError(MissedPeer peer)
      : PeerLostError("rank " + std::to_string(peer.rank.value()) +
                      " cannot be reached: " + peer.why),
        peer_(std::move(peer)) {}

  const MissedPeer& peer() const { return peer_; }

 private:
  MissedPeer peer_;
};

}  // namespace rackrail::runtime
