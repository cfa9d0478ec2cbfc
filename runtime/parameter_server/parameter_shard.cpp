#include "runtime/parameter_server/parameter_shard.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <utility>

#include "base/error.hpp"

namespace rackrail::runtime {

ParameterShard::ParameterShard(const trainer::UpdateRule& rule, std::int64_t staleness,
                               const std::vector<Rank>& order,
                               std::vector<trainer::DecayRegion> regions,
                               std::span<const float> parameters, std::int64_t step)
    : rule_(rule),
      staleness_(staleness),
      order_(order),
      regions_(std::move(regions)),
      parameters_(parameters.begin(), parameters.end()),
      momentum_(staleness == 0 ? 1 : order.size(), std::vector<float>(parameters.size())),
      momentum_sum_(staleness == 0 ? 0 : parameters.size()),
      workers_(order.size()) {
  keep_momentum();
  for (Worker& worker : workers_) {
    worker.done = step;
  }
}

void ParameterShard::set_momentum(std::span<const float> momentum) {
  for (std::vector<float>& own : momentum_) {
    std::ranges::copy(momentum.first(own.size()), own.begin());
    momentum = momentum.subspan(own.size());
    std::ranges::transform(momentum_sum_, own, momentum_sum_.begin(), std::plus<>());
  }
  keep_momentum();
}

void ParameterShard::keep_momentum() {
  met_momentum_.clear();
  for (const std::vector<float>& own : momentum_) {
    met_momentum_.insert(met_momentum_.end(), own.begin(), own.end());
  }
}

void ParameterShard::read(Rank worker, std::span<float> into) const {
  const std::int64_t next = done(worker);
  if (collects() || rule_.meets(next)) {
    std::ranges::copy(parameters_, into.begin());
    return;
  }
  const auto ahead = static_cast<float>(rule_.learning_rate.at(next) * rule_.optimizer.momentum);
  std::ranges::transform(parameters_, momentum_sum_, into.begin(),
                         [ahead](float w, float v) { return w - ahead * v; });
}

ParameterShard::Applied ParameterShard::push(Rank rank, std::int64_t step,
                                             std::span<const float> gradient) {
  Worker& worker = workers_[rank.index()];
  if (step != worker.done || worker.waits) {
    throw RuntimeFailure(fmt::format("rank {} pushed its gradient of step {}, where {} {}",
                                     rank.value(), step,
                                     worker.waits ? "it has to wait after step" : "it is at step",
                                     worker.waits ? worker.done - 1 : worker.done));
  }
  ++worker.done;
  worker.waits = true;
  if (collects()) {
    worker.withheld = gradient.empty();
    worker.gradient.assign(gradient.begin(), gradient.end());
    if (slowest() == worker.done) {
      apply_collected(step);
    }
    return {};
  }
  Applied applied;
  if (!gradient.empty()) {
    applied = {.is_update = true, .between = version_ - worker.read};
    std::vector<float>& own = momentum_[rank.index()];
    std::ranges::transform(momentum_sum_, own, momentum_sum_.begin(), std::minus<>());
    apply(gradient, step, rule_.shares[rank.index()], own);
    std::ranges::transform(momentum_sum_, own, momentum_sum_.begin(), std::plus<>());
  }
  return applied;
}

void ParameterShard::apply_collected(std::int64_t step) {
  if (std::ranges::any_of(workers_, &Worker::withheld)) {
    return;
  }
  std::vector<float> sum = std::move(workers_[order_.front().index()].gradient);
  for (std::size_t i = 1; i < order_.size(); ++i) {
    const std::vector<float>& part = workers_[order_[i].index()].gradient;
    std::ranges::transform(sum, part, sum.begin(), std::plus<>());
  }
  apply(sum, step, 1.0, momentum_.front());
}

void ParameterShard::apply(std::span<const float> gradient, std::int64_t step, double share,
                           std::vector<float>& momentum) {
  trainer::SgdStep update;
  update.momentum = static_cast<float>(rule_.optimizer.momentum);
  update.rate = static_cast<float>(rule_.learning_rate.at(step));
  for (const trainer::DecayRegion& region : regions_) {
    update.decay = static_cast<float>(region.decay * share);
    const auto of = [&](auto whole) { return whole.subspan(region.begin, region.size); };
    trainer::update(of(std::span(parameters_)), of(std::span(momentum)), of(gradient), update);
  }
  ++version_;
}

std::int64_t ParameterShard::slowest() const {
  return std::ranges::min_element(workers_, {}, &Worker::done)->done;
}

std::vector<Rank> ParameterShard::release() {
  const std::int64_t slowest_done = slowest();
  std::vector<Rank> released;
  bool is_met = false;
  for (std::size_t i = 0; i < workers_.size(); ++i) {
    Worker& worker = workers_[i];
    const bool is_meeting = rule_.meets(worker.done);
    const std::int64_t bound = is_meeting ? 0 : staleness_;
    if (worker.waits && slowest_done >= worker.done - bound) {
      worker.waits = false;
      worker.read = version_;
      most_ahead_ = std::max(most_ahead_, worker.done - slowest_done);
      is_met = is_met || is_meeting;
      released.emplace_back(i);
    }
  }
  if (is_met) {
    keep_momentum();
  }
  return released;
}

}  // namespace rackrail::runtime
