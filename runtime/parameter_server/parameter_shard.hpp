// The parameters of one slice at their server, and who may read them when.
//
// Workers push the gradient of one step after the other; the answer to a push is the parameters.
// Stale synchronous parallel (Ho et al., NIPS 2013): a worker that has done c steps gets them, and
// so may go on, once every worker has done c − K. Until then its answer waits, and is read when it
// may leave, so it holds all updates that were applied by then.
//
// K > 0: a push is an update of its own, applied when it comes, with a momentum of its worker's
// own:
//   v_i ← μ·v_i + g + p·λ·w,  w ← w − η·v_i
// with g the worker's part of the step's gradient (weighted by its share p of the samples) and η of
// the worker's step. The v_i sum up to the v of synchronous training, so as many updates as there
// are ranks are one step of it. While a worker computes, all v_i go on to move w; so what it is
// given to compute on is where they alone will have moved it, w − η·μ·Σ v_i, which is what makes
// momentum and staleness bear each other (DANA: Hakimi et al., "Taming momentum in a distributed
// asynchronous environment", 2019).
//
// K = 0: all pushes of a step are for the same parameters, so they are added, in an order that does
// not depend on when they came, and applied at once: synchronous training, the same bits as the
// sums of an executor with the same schedule. A step in which a worker withheld its gradient is
// then skipped by all.
//
// Conflicts. Between the reading of the answer to a worker's push and its next push, updates of
// others may be applied. Their number is the staleness of its update, and the update conflicts if
// there is any: it was computed on parameters that are older than the ones that it changes. The
// conflict rate is the share of such updates (sim::AsynchronousResult).
//
// Meetings. After some numbers of steps (UpdateRule::meets) the bound is 0: no update is between,
// all workers get w itself, the same parameters, and the momentum is kept as it is then, for
// checkpoints.
//
// Memory: for K > 0 three times as many floats as elements, and twice the workers' number as many.
// Not thread-safe. A push or a read costs O(elements + workers).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/ids.hpp"
#include "runtime/trainer/update_rule.hpp"

namespace rackrail::runtime {

class ParameterShard {
 public:
  /// `parameters` after `step` steps; `regions` cover them. `order`: all workers, as their
  /// gradients are to be added. Keeps references to `rule` and `order`.
  ParameterShard(const trainer::UpdateRule& rule, std::int64_t staleness,
                 const std::vector<Rank>& order, std::vector<trainer::DecayRegion> regions,
                 std::span<const float> parameters, std::int64_t step);

  /// What became of a push.
  struct Applied {
    bool is_update = false;    ///< by itself
    std::int64_t between = 0;  ///< updates of others since the worker's parameters were read
  };
  /// The gradient of the worker's step `step`; an empty one is withheld. Throws RuntimeFailure when
  /// that is not its next one, or the worker has no answer to its last push.
  Applied push(Rank worker, std::int64_t step, std::span<const float> gradient);
  /// Workers that may go on and have not been told, who read the parameters now.
  std::vector<Rank> release();

  std::span<const float> parameters() const { return parameters_; }
  /// What a worker that was let go on computes on.
  void read(Rank worker, std::span<float> into) const;
  /// Steps of a worker.
  std::int64_t done(Rank worker) const { return workers_[worker.index()].done; }
  /// How many v there are: one for each worker, or one for all with K = 0.
  std::size_t momentum_count() const { return momentum_.size(); }
  /// Before the first push: all of them, one after the other.
  void set_momentum(std::span<const float> momentum);
  /// As it was at the last meeting, or set.
  std::span<const float> momentum_at_meeting() const { return met_momentum_; }
  /// The most steps that a worker was ahead of the slowest one when it was let go on.
  std::int64_t most_ahead() const { return most_ahead_; }

 private:
  struct Worker {
    std::int64_t done = 0;        ///< steps
    bool waits = false;           ///< for the answer to its last push
    std::int64_t read = 0;        ///< version that it got
    std::vector<float> gradient;  ///< of the step that is being collected
    bool withheld = false;
  };

  bool collects() const { return staleness_ == 0; }
  void apply(std::span<const float> gradient, std::int64_t step, double share,
             std::vector<float>& momentum);
  void keep_momentum();
  void apply_collected(std::int64_t step);
  std::int64_t slowest() const;

  const trainer::UpdateRule& rule_;
  const std::int64_t staleness_;
  const std::vector<Rank>& order_;
  std::vector<trainer::DecayRegion> regions_;
  std::vector<float> parameters_;
  std::vector<std::vector<float>> momentum_;  ///< by worker, or one
  std::vector<float> momentum_sum_;           ///< of several
  std::vector<float> met_momentum_;
  std::vector<Worker> workers_;
  std::int64_t version_ = 0;  ///< updates applied
  std::int64_t most_ahead_ = 0;
};

}  // namespace rackrail::runtime
