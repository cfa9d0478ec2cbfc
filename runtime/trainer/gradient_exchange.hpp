// What the trainer asks of whatever moves gradients between ranks.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/ids.hpp"

namespace rackrail::trainer {

/// Error-feedback state of one rank by the name of the encoding place (runtime/executor.hpp).
using Residuals = std::map<std::string, std::vector<float>>;

/// Used by the trainer's thread alone.
class GradientExchange {
 public:
  virtual ~GradientExchange() = default;
  GradientExchange() = default;
  GradientExchange(const GradientExchange&) = delete;
  GradientExchange& operator=(const GradientExchange&) = delete;

  /// Comes before the launches of a step; steps count up by one from any first one.
  virtual void begin_step(std::uint32_t step) = 0;
  /// `data` holds the rank's share of the bucket and becomes the sum over all ranks, the same bits
  /// on each of them. It is not touched between this call and the end of wait_all().
  virtual void launch(BucketId bucket, std::span<float> data) = 0;
  /// Blocks until every launched bucket is summed. Throws PeerLostError; the data is then
  /// unspecified.
  virtual void wait_all() = 0;

  /// Between steps only.
  virtual Residuals residuals() const { return {}; }
  virtual void set_residuals(const Residuals& /*residuals*/) {}
};

/// One rank alone: its share is the sum.
class LocalExchange final : public GradientExchange {
 public:
  void begin_step(std::uint32_t /*step*/) override {}
  void launch(BucketId /*bucket*/, std::span<float> /*data*/) override {}
  void wait_all() override {}
};

}  // namespace rackrail::trainer
