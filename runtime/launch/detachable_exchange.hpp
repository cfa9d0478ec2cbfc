// What moves a trainer's gradients in one epoch of the membership; the trainer stays when it goes.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "runtime/parameter_server/parameter_exchange.hpp"
#include "runtime/plan_executor.hpp"
#include "runtime/trainer/executor_exchange.hpp"
#include "runtime/trainer/gradient_exchange.hpp"

namespace rackrail::runtime {

/// The executor or the servers, as long as they are there. Keeps a reference until detach().
class DetachableExchange final : public trainer::GradientExchange {
 public:
  explicit DetachableExchange(PlanExecutor& executor)
      : sums_(std::in_place, executor), exchange_(&*sums_), holds_parameters_(false) {}
  explicit DetachableExchange(ParameterExchange& servers)
      : exchange_(&servers), holds_parameters_(true) {}

  /// It goes. A trainer that still refers to this may be asked what it has.
  void detach() { exchange_ = nullptr; }
  bool is_attached() const { return exchange_ != nullptr; }

  void begin_step(std::uint32_t step) override { attached().begin_step(step); }
  void launch(BucketId bucket, std::span<float> data) override { attached().launch(bucket, data); }
  void wait_all() override { attached().wait_all(); }
  bool holds_parameters() const override { return holds_parameters_; }
  void start(const trainer::UpdateRule& rule, std::int64_t step,
             std::vector<std::vector<float>> parameters) override {
    attached().start(rule, step, std::move(parameters));
  }
  void withhold() override { attached().withhold(); }
  trainer::Residuals residuals() const override {
    return exchange_ != nullptr ? exchange_->residuals() : trainer::Residuals();
  }
  void set_residuals(const trainer::Residuals& residuals) override {
    attached().set_residuals(residuals);
  }

 private:
  trainer::GradientExchange& attached() {
    if (exchange_ == nullptr) {
      throw RuntimeFailure("what moves the gradients is not there any more");
    }
    return *exchange_;
  }

  std::optional<trainer::ExecutorExchange> sums_;
  trainer::GradientExchange* exchange_;
  const bool holds_parameters_;
};

}  // namespace rackrail::runtime
