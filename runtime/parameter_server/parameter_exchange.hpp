// An asynchronous sharded parameter server, for one rank, which is a worker and a server of its
// share of the parameters: parameter_shard.hpp says what is applied and read when,
// served_parts.hpp who serves what.
//
// One progress thread serves the others' pushes while the caller's thread computes, and takes the
// answers to its own. Messages are those of the plan's parameter-server schedule, slice by slice; a
// push without payload is a gradient that was withheld. Every message must be of this plan and
// epoch, of a transfer between sender and receiver, of the size of its slice, and of the step that
// is due; whatever else comes from a peer with the same plan ends the exchange with one line that
// says so, and what comes from another plan or epoch is passed over.
//
// Memory: of what is served the parameters and each worker's momentum, now and at the last meeting
// (so for n ranks about twice the model), a copy of this rank's gradients and of the parameters
// that come for it, and an answer of each slice for each worker at most.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/ids.hpp"
#include "plan/plan.hpp"
#include "runtime/executor.hpp"
#include "runtime/missed_peer.hpp"
#include "runtime/peer_watch.hpp"
#include "runtime/trainer/gradient_exchange.hpp"
#include "runtime/transport.hpp"

namespace rackrail::runtime {

struct ParameterExchangeOptions {
  std::uint32_t epoch = 0;
  /// Steps that a worker may be ahead of the slowest one.
  std::int64_t staleness = 0;
  /// Messages in flight per destination before further ones wait.
  int send_window = 8;
  /// As ExecutorOptions has them.
  std::optional<PulseOptions> pulse = {};
  std::function<void(const MissedPeer& peer)> on_missed = {};
};

/// Of the updates that this rank applied for others, each counted by its share of a bucket's
/// elements; with a staleness of 0 there are none but those of all ranks together.
struct UpdateStatistics {
  double updates = 0;
  double conflicts = 0;         ///< those that met others' (parameter_shard.hpp)
  double stale = 0;             ///< others' updates that they met, in total
  std::int64_t most_ahead = 0;  ///< steps of a worker before the slowest one, when it went on
};

class ParameterExchange final : public trainer::GradientExchange {
 public:
  /// Keeps references: plan and transport must outlive it; the transport must be connected and is
  /// used by this object's thread alone from start() on. Throws as ServedParts.
  ParameterExchange(const plan::Plan& plan, Rank self, Transport& transport,
                    const ParameterExchangeOptions& options);
  ~ParameterExchange() override;

  bool holds_parameters() const override { return true; }
  void start(const trainer::UpdateRule& rule, std::int64_t step,
             std::vector<std::vector<float>> parameters) override;
  void begin_step(std::uint32_t step) override;
  void withhold() override;
  void launch(BucketId bucket, std::span<float> data) override;
  /// Throws PeerLostError once the exchange was aborted, MissedPeerError where it is known by whom;
  /// nothing is written into what was launched after that.
  void wait_all() override;
  /// Momentum of what this rank serves, as it was when all met last.
  trainer::Residuals residuals() const override;
  /// Before start(). Throws ConfigError for momentum of another size.
  void set_residuals(const trainer::Residuals& residuals) override;

  /// Makes every present and later wait throw PeerLostError(reason). From any thread; only the
  /// first reason counts.
  void abort(const std::string& reason);

  ExecutorStatistics statistics() const;
  UpdateStatistics update_statistics() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace rackrail::runtime
