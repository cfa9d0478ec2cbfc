#include "explore/throughput_model.hpp"

#include <fmt/format.h>

#include <Eigen/Cholesky>
#include <Eigen/Core>
#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>
#include <unsupported/Eigen/NonLinearOptimization>
#include <unsupported/Eigen/NumericalDiff>

#include "base/error.hpp"

namespace rackrail::explore {

namespace {

// Places of the parameters, for both forms: times and their growth as logarithms, γ and φ as
// logits. The per-node-count form continues with log A_N and then s_N for each known N.
enum Common : std::size_t { kLogAlpha, kLogBeta, kLogNode, kLogNodeGrowth, kLogitGamma };
enum PerNodeCount : std::size_t { kContention = kLogitGamma + 1, kLogitFirst, kNetwork };
enum SevenParameters : std::size_t { kLogNetwork = kLogitGamma + 1, kLogNetworkGrowth, kSeven };

constexpr double kMostGamma = 10;
constexpr double kOutlier = 0.05;  // of a log residual, where it starts to weigh less
constexpr int kReweightings = 8;
constexpr double kMeasurement = 0.1;  // standard deviations of what is not compute
constexpr double kPlacement = 0.16;
constexpr double kSmallestShare = 0.1;  // even pure compute varies a little
constexpr double kBatchLength = 0.5;

double logistic(double x) { return 1 / (1 + std::exp(-x)); }

double gamma_of(double logit) { return 1 + (kMostGamma - 1) * logistic(logit); }

/// (a^γ + b^γ)^{1/γ} without overflow.
double norm(double a, double b, double gamma) {
  const double larger = std::max(a, b);
  if (larger <= 0) {
    return 0;
  }
  return larger * std::pow(1 + std::pow(std::min(a, b) / larger, gamma), 1 / gamma);
}

template <typename Values>
double compute_seconds(ThroughputForm form, const Values& p, const MeasuredPlacement& placement,
                       double batch) {
  const double base = std::exp(p[kLogAlpha]) + std::exp(p[kLogBeta]) * batch;
  if (form == ThroughputForm::kSevenParameters) {
    return base;
  }
  return base * std::exp(p[kContention] * (1 - 1 / static_cast<double>(placement.largest_node)));
}

template <typename Values>
double network_seconds(const Values& p, const std::vector<double>& log_nodes,
                       const MeasuredPlacement& placement) {
  const double nodes = std::log(static_cast<double>(placement.nodes));
  const double per_node = std::log(static_cast<double>(placement.replicas)) - nodes;
  const std::size_t count = log_nodes.size();
  const auto above = static_cast<std::size_t>(
      std::upper_bound(log_nodes.begin(), log_nodes.end(), nodes) - log_nodes.begin());
  const std::size_t high = std::min(above, count - 1);
  const std::size_t low = above == 0 ? 0 : above - 1;
  const double weight =
      high == low ? 0 : (nodes - log_nodes[low]) / (log_nodes[high] - log_nodes[low]);
  const auto between = [&](std::size_t first) {
    return (1 - weight) * p[first + low] + weight * p[first + high];
  };
  return std::exp(between(kNetwork) + between(kNetwork + count) * per_node);
}

template <typename Values>
double step_seconds(ThroughputForm form, const Values& p, const std::vector<double>& log_nodes,
                    const MeasuredPlacement& placement, double batch) {
  const double compute = compute_seconds(form, p, placement, batch);
  if (placement.replicas == 1) {
    return compute;
  }
  const double beyond_two = static_cast<double>(placement.replicas - 2);
  const double gamma = gamma_of(p[kLogitGamma]);
  const bool seven = form == ThroughputForm::kSevenParameters;
  double sync = 0;
  if (placement.nodes == 1) {
    sync = std::exp(p[kLogNode]) + std::exp(p[kLogNodeGrowth]) * beyond_two;
  } else if (seven) {
    sync = std::exp(p[kLogNetwork]) + std::exp(p[kLogNetworkGrowth]) * beyond_two;
  } else if (!log_nodes.empty()) {
    sync = network_seconds(p, log_nodes, placement);
  }
  const double first = seven ? 0 : logistic(p[kLogitFirst]);
  return first * compute + norm((1 - first) * compute, sync, gamma);
}

/// Weighted differences of logarithms, then the priors.
struct Residuals {
  using Scalar = double;
  using InputType = Eigen::VectorXd;
  using ValueType = Eigen::VectorXd;
  using JacobianType = Eigen::MatrixXd;
  enum { InputsAtCompileTime = Eigen::Dynamic, ValuesAtCompileTime = Eigen::Dynamic };

  int inputs() const { return static_cast<int>(start.size()); }
  int values() const {
    const auto ties = log_nodes.empty() ? 0 : 3 * log_nodes.size() - 2;
    return static_cast<int>(steps.size() + ties) + inputs();
  }

  int operator()(const Eigen::VectorXd& p, Eigen::VectorXd& out) const {
    Eigen::Index at = 0;
    for (const MeasuredStep& step : steps) {
      const double seconds =
          step_seconds(form, p, log_nodes, step.placement, static_cast<double>(step.local_batch));
      out[at] = std::sqrt(weights[at]) * std::log(seconds / step.step_time.seconds());
      ++at;
    }
    constexpr double kNeighbours = 0.1;
    constexpr double kSpread = 0.02;
    constexpr double kNearContention = 0.05;
    constexpr double kNearStart = 1e-3;
    const auto count = static_cast<Eigen::Index>(log_nodes.size());
    for (Eigen::Index i = 0; i < count; ++i) {
      const Eigen::Index s = static_cast<Eigen::Index>(kNetwork) + count + i;
      out[at++] = kSpread * p[s];
      if (i > 0) {
        out[at++] = kNeighbours * (p[s] - p[s - 1]);
        out[at++] = kNeighbours * (p[s - count] - p[s - count - 1]);
      }
    }
    for (Eigen::Index i = 0; i < p.size(); ++i) {
      const bool contention =
          form == ThroughputForm::kPerNodeCount && i == static_cast<Eigen::Index>(kContention);
      out[at++] = (contention ? kNearContention : kNearStart) * (p[i] - start[i]);
    }
    return 0;
  }

  const std::vector<MeasuredStep>& steps;
  const std::vector<double>& log_nodes;
  ThroughputForm form;
  Eigen::VectorXd start;
  Eigen::VectorXd weights;
};

/// A beginning of the right magnitude: half of the shortest step is fixed and half grows with the
/// batch; synchronising is a small part of a typical step.
Eigen::VectorXd first_guess(const std::vector<MeasuredStep>& steps, ThroughputForm form,
                            std::size_t node_counts) {
  double shortest = steps.front().step_time.seconds();
  double mean = 0;
  double batch = static_cast<double>(steps.front().local_batch);
  for (const MeasuredStep& step : steps) {
    shortest = std::min(shortest, step.step_time.seconds());
    batch = std::min(batch, static_cast<double>(step.local_batch));
    mean += step.step_time.seconds() / static_cast<double>(steps.size());
  }
  const bool seven = form == ThroughputForm::kSevenParameters;
  Eigen::VectorXd p =
      Eigen::VectorXd::Zero(static_cast<Eigen::Index>(seven ? kSeven : kNetwork + 2 * node_counts));
  p[kLogAlpha] = std::log(shortest / 2);
  p[kLogBeta] = std::log(shortest / 2 / batch);
  p[kLogNode] = std::log(mean / 50);
  p[kLogNodeGrowth] = std::log(mean / 100);
  if (seven) {
    p[kLogNetwork] = std::log(mean * 0.3);
    p[kLogNetworkGrowth] = std::log(mean / 50);
    return p;
  }
  const auto count = static_cast<Eigen::Index>(node_counts);
  constexpr double kFewer = 0.2;
  p.segment(kNetwork, count).setConstant(std::log(mean / 2));
  p.segment(static_cast<Eigen::Index>(kNetwork) + count, count).setConstant(kFewer);
  return p;
}

}  // namespace

ThroughputModel ThroughputModel::fit(const std::vector<MeasuredStep>& steps, ThroughputForm form) {
  ThroughputModel model;
  model.form_ = form;
  if (form == ThroughputForm::kPerNodeCount) {
    std::set<std::int64_t> counts;
    for (const MeasuredStep& step : steps) {
      if (step.placement.nodes > 1) {
        counts.insert(step.placement.nodes);
      }
    }
    for (const std::int64_t nodes : counts) {
      model.log_nodes_.push_back(std::log(static_cast<double>(nodes)));
    }
  }
  const std::size_t wanted =
      form == ThroughputForm::kSevenParameters ? kSeven : kNetwork + 2 * model.log_nodes_.size();
  if (steps.size() < wanted) {
    throw ConfigError(ErrorContext{"", "measured steps", fmt::format("{} rows", steps.size()),
                                   fmt::format("at least {} to fit as many parameters", wanted)});
  }
  const Eigen::VectorXd start = first_guess(steps, form, model.log_nodes_.size());
  Eigen::NumericalDiff<Residuals> residuals(
      Residuals{steps, model.log_nodes_, form, start,
                Eigen::VectorXd::Ones(static_cast<Eigen::Index>(steps.size()))});
  Eigen::VectorXd p = start;
  Eigen::VectorXd out(residuals.values());
  for (int round = 0; round <= kReweightings; ++round) {
    Eigen::LevenbergMarquardt<Eigen::NumericalDiff<Residuals>> solver(residuals);
    constexpr int kEvaluations = 2000;
    solver.parameters.maxfev = kEvaluations;
    solver.minimize(p);
    residuals(p, out);
    for (Eigen::Index i = 0; i < residuals.weights.size(); ++i) {
      const double z = out[i] / std::sqrt(residuals.weights[i]) / kOutlier;
      residuals.weights[i] = 1 / std::sqrt(1 + z * z);
    }
  }
  model.values_.assign(p.begin(), p.end());
  if (form == ThroughputForm::kPerNodeCount) {
    model.remember(steps);
  }
  return model;
}

double ThroughputModel::compute_share_left(const MeasuredPlacement& placement,
                                           std::int64_t local_batch) const {
  const auto batch = static_cast<double>(local_batch);
  const double whole = step_seconds(form_, values_, log_nodes_, placement, batch);
  return std::max(kSmallestShare, 1 - compute_seconds(form_, values_, placement, batch) / whole);
}

void ThroughputModel::remember(const std::vector<MeasuredStep>& steps) {
  std::map<std::string, std::vector<const MeasuredStep*>> rows;
  for (const MeasuredStep& step : steps) {
    rows[step.placement.name].push_back(&step);
  }
  for (const auto& [name, known] : rows) {
    const auto count = static_cast<Eigen::Index>(known.size());
    Memory memory;
    Eigen::VectorXd residual(count);
    Eigen::VectorXd share(count);
    for (Eigen::Index i = 0; i < count; ++i) {
      const MeasuredStep& step = *known[static_cast<std::size_t>(i)];
      const auto batch = static_cast<double>(step.local_batch);
      memory.log_batch.push_back(std::log(batch));
      share[i] = compute_share_left(step.placement, step.local_batch);
      residual[i] = std::log(step.step_time.seconds() /
                             step_seconds(form_, values_, log_nodes_, step.placement, batch));
    }
    Eigen::MatrixXd covariance(count, count);
    for (Eigen::Index i = 0; i < count; ++i) {
      for (Eigen::Index j = 0; j < count; ++j) {
        const double apart = (memory.log_batch[static_cast<std::size_t>(i)] -
                              memory.log_batch[static_cast<std::size_t>(j)]) /
                             kBatchLength;
        covariance(i, j) =
            kPlacement * kPlacement * share[i] * share[j] * std::exp(-apart * apart / 2);
      }
      // A residual beyond three deviations is trusted less, as in the fit.
      const double deviation = kMeasurement * share[i];
      covariance(i, i) +=
          deviation * deviation * std::max(1.0, std::abs(residual[i]) / (3 * deviation));
    }
    const Eigen::VectorXd weight =
        (kPlacement * kPlacement) * share.cwiseProduct(covariance.ldlt().solve(residual));
    memory.weight.assign(weight.begin(), weight.end());
    memory_.emplace(name, std::move(memory));
  }
}

Duration ThroughputModel::step_time(const MeasuredPlacement& placement,
                                    std::int64_t local_batch) const {
  const auto batch = static_cast<double>(local_batch);
  double seconds = step_seconds(form_, values_, log_nodes_, placement, batch);
  const auto it = memory_.find(placement.name);
  if (it != memory_.end()) {
    double correction = 0;
    for (std::size_t i = 0; i < it->second.weight.size(); ++i) {
      const double apart = (std::log(batch) - it->second.log_batch[i]) / kBatchLength;
      correction += it->second.weight[i] * std::exp(-apart * apart / 2);
    }
    seconds *= std::exp(correction * compute_share_left(placement, local_batch));
  }
  return Duration::from_seconds(seconds);
}

Duration ThroughputModel::compute_time(const MeasuredPlacement& placement,
                                       std::int64_t local_batch) const {
  return Duration::from_seconds(
      compute_seconds(form_, values_, placement, static_cast<double>(local_batch)));
}

Duration ThroughputModel::compute_base() const {
  return Duration::from_seconds(std::exp(values_[kLogAlpha]));
}

Duration ThroughputModel::compute_per_sample() const {
  return Duration::from_seconds(std::exp(values_[kLogBeta]));
}

std::vector<std::pair<std::string, double>> ThroughputModel::parameters() const {
  const auto at = [&](std::size_t i) { return values_[i]; };
  std::vector<std::pair<std::string, double>> named = {
      {"compute_fixed_s", std::exp(at(kLogAlpha))},
      {"compute_per_sample_s", std::exp(at(kLogBeta))},
      {"sync_node_s", std::exp(at(kLogNode))},
      {"sync_node_growth_s", std::exp(at(kLogNodeGrowth))},
      {"overlap_gamma", gamma_of(at(kLogitGamma))}};
  if (form_ == ThroughputForm::kSevenParameters) {
    named.emplace_back("sync_network_s", std::exp(at(kLogNetwork)));
    named.emplace_back("sync_network_growth_s", std::exp(at(kLogNetworkGrowth)));
    return named;
  }
  named.emplace_back("contention", at(kContention));
  named.emplace_back("before_first_gradient", logistic(at(kLogitFirst)));
  for (std::size_t i = 0; i < log_nodes_.size(); ++i) {
    const auto nodes = std::lround(std::exp(log_nodes_[i]));
    named.emplace_back(fmt::format("sync_{}_nodes_s", nodes), std::exp(at(kNetwork + i)));
    named.emplace_back(fmt::format("sync_{}_nodes_exponent", nodes),
                       at(kNetwork + log_nodes_.size() + i));
  }
  return named;
}

PredictionErrors prediction_errors(const ThroughputModel& model,
                                   const std::vector<MeasuredStep>& steps) {
  if (steps.empty()) {
    throw ConfigError(ErrorContext{"", "measured steps", "no rows to predict", "at least one"});
  }
  std::vector<double> errors;
  for (const MeasuredStep& step : steps) {
    errors.push_back(
        std::abs(model.step_time(step.placement, step.local_batch) / step.step_time - 1));
  }
  std::sort(errors.begin(), errors.end());
  return {errors.size(),
          std::accumulate(errors.begin(), errors.end(), 0.0) / static_cast<double>(errors.size()),
          errors[errors.size() / 2], errors.back()};
}

}  // namespace rackrail::explore
