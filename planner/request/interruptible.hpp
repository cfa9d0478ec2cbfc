// Simulations that end when somebody asks for it.
#pragma once

#include <functional>
#include <utility>

#include "plan/cost_model.hpp"

namespace rackrail::planner {

/// Has a cost model interrupted while this lives (CostModel::interrupt_when).
class Interruptible {
 public:
  Interruptible(plan::CostModel& cost_model, const std::function<bool()>& stop)
      : cost_model_(cost_model), before_(cost_model.interrupt_when(stop)) {}
  ~Interruptible() { cost_model_.interrupt_when(std::move(before_)); }
  Interruptible(const Interruptible&) = delete;
  Interruptible& operator=(const Interruptible&) = delete;

 private:
  plan::CostModel& cost_model_;
  std::function<bool()> before_;
};

}  // namespace rackrail::planner
