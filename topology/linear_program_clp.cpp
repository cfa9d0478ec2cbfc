#include <ClpSimplex.hpp>
#include <cmath>
#include <limits>

#include "topology/linear_program.hpp"

namespace rackrail::topology {

struct LinearProgram::Impl {
  ClpSimplex model;
  bool is_solved = false;
};

bool LinearProgram::is_available() { return true; }

LinearProgram::LinearProgram() : impl_(std::make_unique<Impl>()) {
  impl_->model.setLogLevel(0);
  impl_->model.setOptimizationDirection(-1);
}

LinearProgram::~LinearProgram() = default;

int LinearProgram::add_variable(double upper, double objective) {
  impl_->model.addColumn(0, nullptr, nullptr, 0, upper, objective);
  return impl_->model.numberColumns() - 1;
}

int LinearProgram::add_row(const Terms& terms, double lower, bool is_equal) {
  std::vector<int> variables;
  std::vector<double> coefficients;
  for (const auto& [variable, coefficient] : terms) {
    variables.push_back(variable);
    coefficients.push_back(coefficient);
  }
  impl_->model.addRow(static_cast<int>(terms.size()), variables.data(), coefficients.data(), lower,
                      is_equal ? lower : COIN_DBL_MAX);
  return impl_->model.numberRows() - 1;
}

std::optional<double> LinearProgram::maximise() {
  // After the first solution new rows leave it dual feasible.
  if (impl_->is_solved) {
    impl_->model.dual();
  } else {
    impl_->model.primal();
  }
  impl_->is_solved = impl_->model.isProvenOptimal();
  if (!impl_->is_solved) return std::nullopt;
  return impl_->model.objectiveValue();
}

double LinearProgram::value(int variable) const {
  return impl_->model.primalColumnSolution()[variable];
}

double LinearProgram::price(int row) const { return -impl_->model.dualRowSolution()[row]; }

}  // namespace rackrail::topology
