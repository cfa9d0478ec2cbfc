#include "sim/rate_control.hpp"

#include <algorithm>
#include <cmath>

namespace rackrail::sim {

DcqcnRate::DcqcnRate(const DcqcnOptions& options, double line_rate)
    : options_(&options), line_rate_(line_rate), rate_(line_rate), target_(line_rate) {}

void DcqcnRate::decay_alpha(Time now) {
  const Time interval = options_->alpha_interval.picoseconds();
  const Time passed = (now - alpha_at_) / interval;
  if (passed > 0) {
    alpha_ *= std::pow(1 - options_->gain, static_cast<double>(passed));
    alpha_at_ += passed * interval;
  }
}

void DcqcnRate::notify(Time now) {
  rate(now);
  decay_alpha(now);
  target_ = rate_;
  rate_ *= 1 - alpha_ / 2;
  alpha_ = (1 - options_->gain) * alpha_ + options_->gain;
  alpha_at_ = now;
  increase_at_ = now + options_->increase_interval.picoseconds();
  bytes_ = 0;
  by_time_ = 0;
  by_bytes_ = 0;
}

double DcqcnRate::rate(Time now) {
  while (rate_ < line_rate_ && increase_at_ <= now) {
    increase_at_ += options_->increase_interval.picoseconds();
    ++by_time_;
    increase();
  }
  return rate_;
}

void DcqcnRate::sent(std::int64_t bytes) {
  bytes_ += bytes;
  if (rate_ < line_rate_ && bytes_ >= options_->increase_bytes.count()) {
    bytes_ -= options_->increase_bytes.count();
    ++by_bytes_;
    increase();
  }
}

void DcqcnRate::increase() {
  // Halving the distance to the target for ever would never reach the line rate itself.
  constexpr double kFull = 1 - 1e-3;
  if (std::min(by_time_, by_bytes_) > options_->fast_recovery_steps) {
    target_ += options_->hyper_increase * line_rate_;
  } else if (std::max(by_time_, by_bytes_) > options_->fast_recovery_steps) {
    target_ += options_->additive_increase * line_rate_;
  }
  target_ = std::min(target_, line_rate_);
  rate_ = (rate_ + target_) / 2;
  if (rate_ > kFull * line_rate_) {
    rate_ = line_rate_;
  }
}

}  // namespace rackrail::sim
