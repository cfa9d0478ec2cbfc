#include "sim/rate_control.hpp"

#include <algorithm>
#include <cmath>

namespace rackrail::sim {

namespace {
Time stretched(Duration interval, double stretch) {
  return static_cast<Time>(static_cast<double>(interval.picoseconds()) * stretch);
}
}  // namespace

DcqcnRate::DcqcnRate(const DcqcnOptions& options, double line_rate, double stretch)
    : options_(&options),
      alpha_interval_(stretched(options.alpha_interval, stretch)),
      increase_interval_(stretched(options.increase_interval, stretch)),
      line_rate_(line_rate),
      rate_(line_rate),
      target_(line_rate),
      link_rate_(line_rate) {}

void DcqcnRate::decay_alpha(Time now) {
  const Time passed = (now - alpha_at_) / alpha_interval_;
  if (passed > 0) {
    alpha_ *= std::pow(1 - options_->gain, static_cast<double>(passed));
    alpha_at_ += passed * alpha_interval_;
  }
}

void DcqcnRate::notify(Time now, double link_rate) {
  rate(now);
  link_rate_ = link_rate > 0 ? link_rate : link_rate_;
  decay_alpha(now);
  target_ = rate_;
  rate_ = std::max(rate_ * (1 - alpha_ / 2), options_->least_rate * line_rate_);
  alpha_ = (1 - options_->gain) * alpha_ + options_->gain;
  alpha_at_ = now;
  increase_at_ = now + increase_interval_;
  bytes_ = 0;
  by_time_ = 0;
  by_bytes_ = 0;
}

double DcqcnRate::rate(Time now) {
  while (rate_ < line_rate_ && increase_at_ <= now) {
    increase_at_ += increase_interval_;
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

double DcqcnRate::time_for(std::int64_t bytes, Time now) const {
  DcqcnRate later = *this;
  auto left = static_cast<double>(bytes);
  auto at = static_cast<double>(now);
  double rate = later.rate(now);
  while (rate < line_rate_) {
    const auto change = static_cast<double>(later.increase_at_);
    if (at + left / rate <= change) {
      break;
    }
    left -= (change - at) * rate;
    at = change;
    rate = later.rate(later.increase_at_);
  }
  return at + left / rate - static_cast<double>(now);
}

void DcqcnRate::set_line_rate(Time now, double line_rate) {
  rate(now);
  const double share = std::max(1.0, line_rate / line_rate_);
  const bool is_full = rate_ >= line_rate_;
  link_rate_ = link_rate_ == line_rate_ ? line_rate : link_rate_;
  line_rate_ = line_rate;
  rate_ = is_full ? line_rate : std::min(rate_ * share, line_rate);
  target_ = is_full ? line_rate : std::min(target_ * share, line_rate);
}

void DcqcnRate::set_link_rate(Time now, double link_rate) {
  rate(now);
  link_rate_ = link_rate;
}

void DcqcnRate::increase() {
  // Halving the distance to the target for ever would never reach the line rate itself.
  constexpr double kFull = 1 - 1e-3;
  if (std::min(by_time_, by_bytes_) > options_->fast_recovery_steps) {
    target_ += options_->hyper_increase * link_rate_;
  } else if (std::max(by_time_, by_bytes_) > options_->fast_recovery_steps) {
    target_ += options_->additive_increase * link_rate_;
  }
  target_ = std::min(target_, line_rate_);
  rate_ = (rate_ + target_) / 2;
  if (rate_ > kFull * line_rate_) {
    rate_ = line_rate_;
  }
}

}  // namespace rackrail::sim
