// What the trainer asks of whatever moves gradients between ranks.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/ids.hpp"

namespace rackrail::trainer {

/// State of one rank by a name: error feedback by that of the encoding place
/// (runtime/executor.hpp).
using Residuals = std::map<std::string, std::vector<float>>;

struct UpdateRule;

/// Used by the trainer's thread alone.
//
// There are two kinds: those that sum, and those that hold the parameters, whose servers update
// them by what each rank launches.
class GradientExchange {
 public:
  virtual ~GradientExchange() = default;
  GradientExchange() = default;
  GradientExchange(const GradientExchange&) = delete;
  GradientExchange& operator=(const GradientExchange&) = delete;

  /// Comes before the launches of a step; steps count up by one from any first one.
  virtual void begin_step(std::uint32_t step) = 0;
  /// `data` holds the rank's share of the bucket and becomes the sum over all ranks, the same bits
  /// on each of them, or the bucket's parameters. It is not touched between this call and the end
  /// of wait_all().
  virtual void launch(BucketId bucket, std::span<float> data) = 0;
  /// Blocks until every launched bucket is summed, or its parameters are here. Throws
  /// PeerLostError; the data is then unspecified.
  virtual void wait_all() = 0;

  /// Whether its servers hold the parameters.
  virtual bool holds_parameters() const { return false; }
  /// Those only, once, before the first step: `parameters` of each bucket after `step` steps, the
  /// same on all ranks.
  virtual void start(const UpdateRule& /*rule*/, std::int64_t /*step*/,
                     std::vector<std::vector<float>> /*parameters*/) {}
  /// Those only, between begin_step() and the first launch: nothing is updated by what this rank
  /// launches in this step.
  virtual void withhold() {}

  /// What of the exchange's state belongs into this rank's part of a checkpoint: error feedback, or
  /// the momentum of the parameters that it holds. Between steps only.
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
