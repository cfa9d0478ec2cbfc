// What a worker that comes for a lost one is given by those who went on: parameters, the
// optimiser's state and the place in the data, so that it is to a bit where they are.
//
// It goes over the transport of the new epoch, before there is an executor that would take messages
// from it: each newcomer gets it from one of the others, in turn, in pieces that arrive in order.
// Nobody sends slices meanwhile, since all ranks meet at the coordinator before they train. A
// digest of everything goes first, so what arrives is either whole or refused. Error feedback is
// not part of it: it belongs to encoders, and starts anew with every plan.
//
// Each call blocks until it is done, `check` (called often) throws, or nothing moved for a while,
// which is a MissedPeerError, as is whatever the transport says of any rank.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/ids.hpp"
#include "base/units.hpp"
#include "runtime/trainer/checkpoint.hpp"
#include "runtime/transport.hpp"

namespace rackrail::runtime {

/// Whom a rank gives its state, out of those who have none; and the reverse.
std::vector<Rank> receivers_of(Rank giver, const std::vector<Rank>& newcomers, std::size_t ranks);
Rank giver_of(Rank newcomer, const std::vector<Rank>& newcomers, std::size_t ranks);

class StateTransfer {
 public:
  /// Takes over the transport's handlers until it is destroyed.
  StateTransfer(Transport& transport, std::uint32_t epoch, std::function<void()> check,
                Duration patience = Duration(10'000'000'000'000));
  ~StateTransfer();
  StateTransfer(const StateTransfer&) = delete;
  StateTransfer& operator=(const StateTransfer&) = delete;

  /// Until all of them have it.
  void give(const std::vector<Rank>& receivers, const trainer::TrainingState& state);
  /// `parameters`: how many there are. Throws RuntimeFailure for anything else than a whole state
  /// of so many.
  trainer::LoadedCheckpoint receive(Rank giver, std::size_t parameters);

 private:
  /// Lives as long as a send of it is under way, also where that is given up.
  using Packed = std::shared_ptr<const std::vector<std::byte>>;

  void on_piece(Rank source, const SliceHeader& header, std::span<const std::byte> payload);
  void send_to(Rank receiver, const Packed& state);
  template <typename Condition>
  void progress_until(Rank peer, Condition condition);

  Transport& transport_;
  const std::uint32_t epoch_;
  const std::function<void()> check_;
  const Duration patience_;
  std::shared_ptr<std::size_t> in_flight_ = std::make_shared<std::size_t>(0);
  std::vector<Rank> taken_by_;  ///< receivers that have all of it
  std::optional<Rank> giver_;
  std::size_t most_bytes_ = 0;  ///< that may come
  std::uint32_t pieces_ = 0;    ///< that are to come, once the first has
  std::uint32_t came_ = 0;
  std::vector<std::byte> received_;
};

}  // namespace rackrail::runtime
