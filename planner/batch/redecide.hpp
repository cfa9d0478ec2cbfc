// Whether a running job should change its batch, now that noise scale or link rates have moved.
//
// A change costs something that no model here counts (the learning rate jumps, buckets are planned
// anew), and estimates waver, so a better batch must be worth it and must stay better: it has to
// promise `least_gain` more goodput, to the same side of the present batch, in `confirmations`
// decisions in a row. A wavering estimate therefore changes nothing, a lasting shift changes the
// batch once, and a change can only be undone by as much evidence as made it.
#pragma once

#include <string>

#include "planner/batch/goodput.hpp"

namespace rackrail::planner {

struct RedecisionRule {
  double least_gain = 0.05;  ///< share of the present goodput
  int confirmations = 3;
};

/// What is kept from one decision to the next.
struct RedecisionState {
  plan::BatchPlan batch;  ///< in use
  int larger = 0;         ///< decisions in a row that wanted a larger batch
  int smaller = 0;        ///< or a smaller one
};

struct Redecision {
  bool changes = false;
  RedecisionState next;  ///< with the batch to use from now on
  double gain = 0;       ///< of the best batch over the present one, by goodput, as a share
  std::string reason;    ///< one sentence
};

/// `workload` and `space` have the noise scale as measured now, `step_time` simulates with the link
/// rates of now. Throws ConfigError without a noise scale, and for a rule with a negative gain or
/// without confirmations.
Redecision redecide(const RedecisionState& previous, const plan::Workload& workload,
                    const BatchSpace& space, const StepTime& step_time,
                    const RedecisionRule& rule = {});

}  // namespace rackrail::planner
