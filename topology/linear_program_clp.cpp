#include <ClpSimplex.hpp>
#include <cmath>
#include <limits>
#include <vector>

#include "topology/linear_program.hpp"

#include "base/work.hpp"

namespace rackrail::topology {

/// Variables and rows that came one by one; the solver takes many at once, as each call copies all
/// it has.
struct LinearProgram::Impl {
  int variables() const { return model.numberColumns() + static_cast<int>(uppers.size()); }
  int rows() const { return model.numberRows() + static_cast<int>(lowest.size()); }

  void hand_over() {
    if (!uppers.empty()) {
      const std::vector<double> lowers(uppers.size(), 0.0);
      model.addColumns(static_cast<int>(uppers.size()), lowers.data(), uppers.data(),
                       objectives.data(), nullptr, nullptr, nullptr);
    }
    if (!lowest.empty()) {
      model.addRows(static_cast<int>(lowest.size()), lowest.data(), highest.data(), starts.data(),
                    columns.data(), coefficients.data());
    }
    for (auto* each : {&uppers, &objectives, &lowest, &highest, &coefficients}) {
      each->clear();
    }
    starts = {0};
    columns.clear();
  }

  ClpSimplex model;
  bool is_solved = false;
  std::vector<double> uppers;
  std::vector<double> objectives;
  std::vector<double> lowest;
  std::vector<double> highest;
  std::vector<CoinBigIndex> starts = {0};  ///< of each row in the next two, and their end
  std::vector<int> columns;
  std::vector<double> coefficients;
};

bool LinearProgram::is_available() { return true; }

LinearProgram::LinearProgram() : impl_(std::make_unique<Impl>()) {
  impl_->model.setLogLevel(0);
  impl_->model.setOptimizationDirection(-1);
}

LinearProgram::~LinearProgram() = default;

int LinearProgram::add_variable(double upper, double objective) {
  impl_->uppers.push_back(upper);
  impl_->objectives.push_back(objective);
  return impl_->variables() - 1;
}

int LinearProgram::variable_count() const { return impl_->variables(); }

int LinearProgram::add_row(const Terms& terms, double lower, bool is_equal) {
  for (const auto& [variable, coefficient] : terms) {
    impl_->columns.push_back(variable);
    impl_->coefficients.push_back(coefficient);
  }
  impl_->starts.push_back(static_cast<CoinBigIndex>(impl_->columns.size()));
  impl_->lowest.push_back(lower);
  impl_->highest.push_back(is_equal ? lower : COIN_DBL_MAX);
  return impl_->rows() - 1;
}

std::optional<double> LinearProgram::maximise() {
  impl_->hand_over();
  // After the first solution new rows leave it dual feasible.
  if (impl_->is_solved) {
    impl_->model.dual();
  } else {
    impl_->model.primal();
  }
  constexpr int kRowsPerStep = 8;
  Work::add(static_cast<std::uint64_t>(impl_->model.numberIterations()) *
            static_cast<std::uint64_t>(1 + impl_->model.numberRows() / kRowsPerStep));
  impl_->is_solved = impl_->model.isProvenOptimal();
  if (!impl_->is_solved) return std::nullopt;
  return impl_->model.objectiveValue();
}

double LinearProgram::value(int variable) const {
  return impl_->model.primalColumnSolution()[variable];
}

double LinearProgram::price(int row) const {
  return row < impl_->model.numberRows() ? -impl_->model.dualRowSolution()[row] : 0;
}

}  // namespace rackrail::topology
