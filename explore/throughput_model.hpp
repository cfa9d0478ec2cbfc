// Step time as a function of placement and local batch, fitted to measured steps.
//
// Compute takes C = (α + β·b)·e^{κ(1 − 1/m)} for local batch b, with m devices at work in the
// fullest node: they share host memory, PCIe and the processor that feeds them. Synchronising takes
// nothing on one device, S = a + r·(p − 2) for p devices in one node, and S = A_N·(p/N)^{s_N} on N
// nodes: a rate of its own for each number of nodes in the data (rings and trees, and who shares a
// NIC, change with N in no smooth way), between them linear in log N. Forward and whatever else
// comes before the first gradient hides nothing, the rest of compute overlaps with S:
//   T = φ·C + (((1 − φ)·C)^γ + S^γ)^{1/γ},   φ in 0..1, γ from 1 (no overlap) to 10 (full).
//
// The fit minimises squared differences of logarithms, so that errors are relative, with weights
// that keep outliers from ruling (iteratively reweighted, w = 1/√(1 + (r/0.05)²)), by
// Levenberg–Marquardt. Weak priors, a tenth of a row's weight and less, tie neighbouring A_N and
// s_N together and settle what the data leave open. The form of Pollux (Qiao et al., OSDI 2021: T =
// (C^γ + S^γ)^{1/γ}, κ = φ = 0, one linear S for all N ≥ 2) can be fitted for comparison.
//
// What a form misses on a placement that was measured, it misses on its other batches too: the
// residuals are kriged within each placement over log b (correlation e^{−½(Δ log b/0.5)²}). Their
// standard deviations, 16 % for the placement and 10 % for a measurement, apply to the part of the
// step that is not compute, which is what varies from run to run.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/units.hpp"
#include "explore/measured_steps.hpp"

namespace rackrail::explore {

enum class ThroughputForm {
  kPerNodeCount,    ///< the form above
  kSevenParameters  ///< Pollux's, without kriging
};

class ThroughputModel {
 public:
  /// Deterministic. Throws ConfigError when there are fewer rows than parameters to find.
  static ThroughputModel fit(const std::vector<MeasuredStep>& steps,
                             ThroughputForm form = ThroughputForm::kPerNodeCount);

  /// Whatever the model thinks of a step there; beyond the known numbers of nodes the outermost
  /// ones' A and s hold. A placement of a known name also gets what was learnt about it.
  Duration step_time(const MeasuredPlacement& placement, std::int64_t local_batch) const;
  /// The part of it that is compute: C.
  Duration compute_time(const MeasuredPlacement& placement, std::int64_t local_batch) const;
  /// Fixed cost α and cost per sample β of a device alone in its node.
  Duration compute_base() const;
  Duration compute_per_sample() const;

  /// Name and value of each parameter, times in seconds.
  std::vector<std::pair<std::string, double>> parameters() const;

 private:
  /// Residuals of one placement's rows, ready to be interpolated.
  struct Memory {
    std::vector<double> log_batch;
    std::vector<double> weight;  ///< of the covariance with each row
  };

  double compute_share_left(const MeasuredPlacement& placement, std::int64_t local_batch) const;
  void remember(const std::vector<MeasuredStep>& steps);

  ThroughputForm form_ = ThroughputForm::kPerNodeCount;
  std::vector<double> log_nodes_;  ///< numbers of nodes above one in the data, ascending
  std::vector<double> values_;     ///< of the parameters, in the form in which they are fitted
  std::map<std::string, Memory> memory_;
};

/// Mean and largest |predicted/measured − 1| over the steps. Throws ConfigError without steps.
struct PredictionErrors {
  std::size_t rows = 0;
  double mean = 0;
  double median = 0;
  double worst = 0;
};
PredictionErrors prediction_errors(const ThroughputModel& model,
                                   const std::vector<MeasuredStep>& steps);

}  // namespace rackrail::explore
