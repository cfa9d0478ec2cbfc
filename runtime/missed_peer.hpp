// Which peer is at fault when a collective breaks off: what a rank tells the coordinator, which
// weighs it against what the others say.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

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
  explicit MissedPeerError(MissedPeer peer, std::vector<MissedPeer> others = {})
      : PeerLostError("rank " + std::to_string(peer.rank.value()) +
                      " cannot be reached: " + peer.why),
        peer_(std::move(peer)),
        others_(std::move(others)) {}

  const MissedPeer& peer() const { return peer_; }
  /// Missed at the same time: who misses everybody is likely to be the one at fault.
  const std::vector<MissedPeer>& others() const { return others_; }

 private:
  MissedPeer peer_;
  std::vector<MissedPeer> others_;
};

}  // namespace rackrail::runtime
