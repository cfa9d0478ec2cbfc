// The real gradient exchange: the executor of a plan.
#pragma once

#include "runtime/plan_executor.hpp"
#include "runtime/trainer/gradient_exchange.hpp"

namespace rackrail::trainer {

class ExecutorExchange final : public GradientExchange {
 public:
  /// `executor` must outlive this object.
  explicit ExecutorExchange(runtime::PlanExecutor& executor) : executor_(executor) {}

  void begin_step(std::uint32_t step) override { executor_.begin_step(step); }
  void launch(BucketId bucket, std::span<float> data) override { executor_.launch(bucket, data); }
  void wait_all() override { executor_.wait_all(); }
  Residuals residuals() const override { return executor_.residuals(); }
  void set_residuals(const Residuals& residuals) override { executor_.set_residuals(residuals); }

 private:
  runtime::PlanExecutor& executor_;
};

}  // namespace rackrail::trainer
