// The pulses between this rank and its peers on the network that carries the gradients: those that
// it sends, and its watch for theirs (peer_watch.hpp).
//
// A pulse is a message without payload, of a plan and an epoch and a bucket that no plan has. Each
// rail of a peer has its own (transport.hpp): one that is cut is noticed though the others work,
// and its peer is missed. Used by the thread of the transport.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/ids.hpp"
#include "runtime/peer_watch.hpp"
#include "runtime/transport.hpp"

namespace rackrail::runtime {

class PeerPulses {
 public:
  /// Keeps a reference. No `options`: peers are neither told nor watched. `plan`, `epoch`: those of
  /// the headers.
  PeerPulses(Transport& transport, Rank self, std::size_t ranks, std::uint64_t plan,
             std::uint32_t epoch, const std::optional<PulseOptions>& options,
             std::span<const Rail> rails = {});
  PeerPulses(const PeerPulses&) = delete;
  PeerPulses& operator=(const PeerPulses&) = delete;

  static bool is_pulse(const SliceHeader& header) { return header.bucket == kNoBucket; }

  /// Something came from this peer by this rail, whatever it was.
  void heard(Rank peer, std::uint32_t rail = 0);
  /// It has ended its connections: nothing is sent to it or expected of it.
  void forget(Rank peer);
  /// Sends what is due. To be called often. Throws MissedPeerError when a peer was silent for too
  /// long.
  void beat();

 private:
  static constexpr std::uint32_t kNoBucket = ~0U;

  /// The peers' rails of one number.
  struct Line {
    PeerWatch watch;
    std::vector<char> has_rail;            ///< by peer
    std::vector<char> in_flight;           ///< by peer
    std::map<Rank, std::string> adapters;  ///< which ones a peer's rail joins, in words
  };

  void beat(std::uint32_t rail, PeerWatch::TimePoint now);

  Transport& transport_;
  const Rank self_;
  SliceHeader header_;
  std::vector<char> is_gone_;  ///< by peer
  /// By number; none where nobody is watched. Outlives this object as long as the transport has
  /// completions to call.
  std::shared_ptr<std::vector<Line>> lines_;
};

}  // namespace rackrail::runtime
