#include "base/error.hpp"
#include "topology/linear_program.hpp"

namespace rackrail::topology {

struct LinearProgram::Impl {};

bool LinearProgram::is_available() { return false; }

LinearProgram::LinearProgram() {
  throw RuntimeFailure("this build has no solver for linear programs (COIN-OR Clp)");
}

LinearProgram::~LinearProgram() = default;

int LinearProgram::add_variable(double /*upper*/, double /*objective*/) { return 0; }
int LinearProgram::variable_count() const { return 0; }
int LinearProgram::add_row(const Terms& /*terms*/, double /*lower*/, bool /*is_equal*/) {
  return 0;
}
std::optional<double> LinearProgram::maximise() { return std::nullopt; }
double LinearProgram::value(int /*variable*/) const { return 0; }
double LinearProgram::price(int /*row*/) const { return 0; }

}  // namespace rackrail::topology
