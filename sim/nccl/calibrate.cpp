#include "sim/nccl/calibrate.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <utility>

#include "base/error.hpp"

namespace rackrail::sim::nccl {

namespace {

/// Spread of a measurement that a model of this kind leaves unexplained, as a logarithm.
constexpr double kNoise = 0.03;
constexpr double kFirstStep = 0.1;
constexpr int kEvaluations = 400;
constexpr double kFlat = 1e-9;
constexpr double kConverged = 1e-4;  // of the objective, which counts in standard deviations

using Counts = std::pair<std::size_t, std::size_t>;

/// For each machine size, at most kCasesPerMachine cases, evenly spread in log size.
std::vector<const Measured*> thin(std::span<const Measured> cases) {
  std::map<Counts, std::vector<const Measured*>> groups;
  for (const Measured& one : cases) {
    groups[{one.nodes, one.gpus_per_node}].push_back(&one);
  }
  std::vector<const Measured*> kept;
  for (auto& [counts, group] : groups) {
    std::stable_sort(group.begin(), group.end(),
                     [](const Measured* a, const Measured* b) { return a->size < b->size; });
    if (group.size() <= kCasesPerMachine) {
      kept.insert(kept.end(), group.begin(), group.end());
      continue;
    }
    const double least = std::log(static_cast<double>(group.front()->size.count()));
    const double most = std::log(static_cast<double>(group.back()->size.count()));
    std::size_t at = 0;
    for (std::size_t k = 0; k < kCasesPerMachine; ++k) {
      const double wanted =
          least + (most - least) * static_cast<double>(k) / (kCasesPerMachine - 1);
      while (at + 1 < group.size() &&
             std::log(static_cast<double>(group[at]->size.count())) < wanted) {
        ++at;
      }
      if (kept.empty() || kept.back() != group[at]) {
        kept.push_back(group[at]);
      }
    }
  }
  return kept;
}

/// The parameters of the table with these indices at e^logarithm, within their limits.
Parameters parameters_at(const std::vector<std::size_t>& indices,
                         const std::vector<double>& logarithms, Parameters start) {
  for (std::size_t i = 0; i < indices.size(); ++i) {
    const ParameterInfo& info = parameter_table()[indices[i]];
    start.*info.member = std::clamp(std::exp(logarithms[i]), info.least, info.most);
  }
  return start;
}

}  // namespace

const Machine& Machines::of(const Measured& one) {
  std::vector<std::size_t> hosts = one.hosts;
  if (hosts.empty()) {
    hosts.resize(one.nodes);
    std::iota(hosts.begin(), hosts.end(), std::size_t{0});
  }
  Key key{std::move(hosts), one.gpus_per_node};
  const auto known = machines_.find(key);
  if (known != machines_.end()) {
    return known->second;
  }
  Machine machine(cluster_, key.first, key.second);
  return machines_.emplace(std::move(key), std::move(machine)).first->second;
}

Fit fit(const topology::Topology& cluster, std::span<const Measured> cases,
        const Parameters& start) {
  const std::vector<const Measured*> kept = thin(cases);
  if (kept.empty()) {
    throw ConfigError(ErrorContext{"", "calibration", "no measured case", "at least one"});
  }
  Machines machines(cluster);
  const auto squares = [&](const Parameters& parameters) {
    double sum = 0;
    for (const Measured* one : kept) {
      const Prediction prediction =
          all_reduce(machines.of(*one), one->size, one->choice, parameters);
      const double error = std::log(prediction.time.seconds() / one->seconds);
      sum += error * error;
    }
    return sum;
  };
  // Only what the cases depend on is fitted.
  const auto table = parameter_table();
  std::vector<std::size_t> indices;
  std::vector<double> logarithms;
  const double at_start = squares(start);
  for (std::size_t i = 0; i < table.size(); ++i) {
    Parameters moved = start;
    moved.*table[i].member *= std::exp(-kFirstStep);
    if (std::abs(squares(moved) - at_start) > kFlat) {
      indices.push_back(i);
      logarithms.push_back(std::log(start.*table[i].member));
    }
  }
  const auto objective = [&](const std::vector<double>& at) {
    double sum = squares(parameters_at(indices, at, start)) / (kNoise * kNoise);
    for (std::size_t i = 0; i < indices.size(); ++i) {
      const ParameterInfo& info = table[indices[i]];
      const double stray = (at[i] - std::log(info.usual)) / info.spread;
      const double outside =
          std::max({0.0, at[i] - std::log(info.most), std::log(info.least) - at[i]});
      sum += stray * stray + outside * outside / (kNoise * kNoise);
    }
    return sum;
  };
  // A simplex may shrink before it arrives; starting it again where it stopped costs little.
  logarithms = minimise(objective, logarithms, kFirstStep, kEvaluations);
  logarithms = minimise(objective, logarithms, kFirstStep, kEvaluations);

  Fit result;
  result.parameters = parameters_at(indices, logarithms, start);
  result.rms_log_error = std::sqrt(squares(result.parameters) / static_cast<double>(kept.size()));
  for (const std::size_t i : indices) {
    result.fitted.push_back(table[i].name);
  }
  return result;
}

std::vector<double> minimise(const std::function<double(const std::vector<double>&)>& f,
                             const std::vector<double>& start, double scale, int evaluations) {
  struct Vertex {
    std::vector<double> at;
    double value;
  };
  int calls = 0;
  const auto vertex = [&](std::vector<double> at) {
    ++calls;
    const double value = f(at);
    return Vertex{std::move(at), value};
  };
  const std::size_t dimensions = start.size();
  std::vector<Vertex> simplex{vertex(start)};
  for (std::size_t i = 0; i < dimensions; ++i) {
    std::vector<double> at = start;
    at[i] += scale;
    simplex.push_back(vertex(std::move(at)));
  }
  const auto by_value = [](const Vertex& a, const Vertex& b) { return a.value < b.value; };
  while (calls < evaluations) {
    std::stable_sort(simplex.begin(), simplex.end(), by_value);
    Vertex& worst = simplex.back();
    if (worst.value - simplex.front().value < kConverged) {
      break;
    }
    std::vector<double> centre(dimensions, 0);
    for (std::size_t v = 0; v < dimensions; ++v) {
      for (std::size_t i = 0; i < dimensions; ++i) {
        centre[i] += simplex[v].at[i] / static_cast<double>(dimensions);
      }
    }
    // The point on the line from the worst vertex through the centre; −1 is the worst itself.
    const auto along = [&](double t) {
      std::vector<double> at = centre;
      for (std::size_t i = 0; i < dimensions; ++i) {
        at[i] += t * (centre[i] - worst.at[i]);
      }
      return vertex(std::move(at));
    };
    Vertex reflected = along(1);
    if (reflected.value < simplex.front().value) {
      Vertex expanded = along(2);
      worst = expanded.value < reflected.value ? std::move(expanded) : std::move(reflected);
    } else if (reflected.value < simplex[dimensions - 1].value) {
      worst = std::move(reflected);
    } else {
      Vertex contracted = along(reflected.value < worst.value ? 0.5 : -0.5);
      if (contracted.value < std::min(reflected.value, worst.value)) {
        worst = std::move(contracted);
      } else {
        for (std::size_t v = 1; v <= dimensions; ++v) {
          for (std::size_t i = 0; i < dimensions; ++i) {
            simplex[v].at[i] = (simplex[v].at[i] + simplex.front().at[i]) / 2;
          }
          simplex[v] = vertex(std::move(simplex[v].at));
        }
      }
    }
  }
  return std::min_element(simplex.begin(), simplex.end(), by_value)->at;
}

}  // namespace rackrail::sim::nccl
