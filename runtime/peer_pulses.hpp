// The pulses between this rank and its peers on the network that carries the gradients: those that
// it sends, and its watch for theirs (peer_watch.hpp).
//
// A pulse is a message without payload, of a plan and an epoch and a bucket that no plan has. Used
// by the thread of the transport.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
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
             std::uint32_t epoch, const std::optional<PulseOptions>& options);
  PeerPulses(const PeerPulses&) = delete;
  PeerPulses& operator=(const PeerPulses&) = delete;

  static bool is_pulse(const SliceHeader& header) { return header.bucket == kNoBucket; }

  /// Something came from this peer, whatever it was.
  void heard(Rank peer);
  /// It has ended its connections: nothing is sent to it or expected of it.
  void forget(Rank peer);
  /// Sends what is due. To be called often. Throws MissedPeerError when a peer was silent for too
  /// long.
  void beat();

 private:
  static constexpr std::uint32_t kNoBucket = ~0U;

  void send(Rank peer);

  Transport& transport_;
  const Rank self_;
  SliceHeader header_;
  std::optional<PeerWatch> watch_;
  std::vector<char> is_gone_;  ///< by peer
  /// By peer; outlives this object as long as the transport has completions to call.
  std::shared_ptr<std::vector<char>> in_flight_;
};

}  // namespace rackrail::runtime
