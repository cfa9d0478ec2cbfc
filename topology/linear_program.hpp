// A linear program that grows by rows and is solved again: maximise c·x with lower ≤ Ax ≤ upper and
// bounds on x. The solver behind it is COIN-OR Clp where the build found it (dual simplex, warm
// started after each new row); without it `is_available` says no, and callers do without.
#pragma once

#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace rackrail::topology {

class LinearProgram {
 public:
  using Terms = std::vector<std::pair<int, double>>;  ///< variable and coefficient

  static bool is_available();

  /// Must not be called where the solver is not available; throws RuntimeFailure there.
  LinearProgram();
  ~LinearProgram();
  LinearProgram(const LinearProgram&) = delete;
  LinearProgram& operator=(const LinearProgram&) = delete;

  /// 0 ≤ x ≤ upper, with its coefficient in the objective; returns its number.
  int add_variable(double upper, double objective);
  int variable_count() const;
  /// Terms ≥ lower; with `is_equal`, = lower. Returns its number: rows are numbered from 0 in the
  /// order of their coming.
  int add_row(const Terms& terms, double lower, bool is_equal = false);

  /// The largest objective; none when there is none (infeasible or unbounded).
  [[nodiscard]] std::optional<double> maximise();
  /// Of a variable in the last solution.
  double value(int variable) const;
  /// By how much the objective of the last solution falls for a unit that a row's lower bound, or
  /// the value of an equality, rises: not negative for the former, and 0 for rows that came later.
  double price(int row) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace rackrail::topology
