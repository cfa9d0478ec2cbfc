#include "runtime/trainer/trained_model.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include "base/error.hpp"

namespace rackrail::trainer {

namespace {

OptimizerInfo optimizer_info(const TrainingConfig& config) {
  return {.kind = "sgd",
          .momentum = config.optimizer.momentum,
          .weight_decay = config.optimizer.weight_decay,
          .clip_norm = config.optimizer.clip_norm,
          .base_learning_rate = config.base_learning_rate,
          .base_batch = config.base_batch,
          .warmup_steps = config.warmup_steps,
          .decay = config.decay == Decay::kCosine ? "cosine" : "constant"};
}

}  // namespace

TrainedModel::TrainedModel(const TrainingConfig& config, std::shared_ptr<Compute> compute)
    : name_(config.name),
      compute_(std::move(compute)),
      model_(make_model(config.model, config.data.format.image, config.data.format.classes,
                        config.seed, compute_)),
      sgd_(model_->tensors(), config.optimizer, compute_) {
  info_.optimizer = optimizer_info(config);
}

TrainingState TrainedModel::state(Residuals residuals) {
  return {info_, model_->tensors(), compute_->on_host(model_->parameters(), parameters_on_host_),
          compute_->on_host(sgd_.momentum(), momentum_on_host_), std::move(residuals)};
}

void TrainedModel::restore(const LoadedCheckpoint& checkpoint) {
  const auto matches = [](const ParameterTensor& a, const ParameterTensor& b) {
    return a.name == b.name && a.shape == b.shape;
  };
  if (!std::ranges::equal(checkpoint.tensors, model_->tensors(), matches)) {
    throw ConfigError(
        ErrorContext{"", "checkpoint", "tensors of another model", "those of " + name_});
  }
  compute_->load(checkpoint.parameters, model_->parameters());
  compute_->load(checkpoint.momentum, sgd_.momentum());
  sgd_.set_skipped_steps(checkpoint.info.skipped_steps);
  info_.step = checkpoint.info.step;
  info_.position = checkpoint.info.position;
  info_.epoch = checkpoint.info.epoch;
  info_.skipped_steps = checkpoint.info.skipped_steps;
}

void TrainedModel::take_over(const TrainedModel& other) {
  // By way of the host: the other may have computed elsewhere.
  std::vector<float> buffer;
  compute_->load(other.compute_->on_host(other.model_->parameters(), buffer), model_->parameters());
  compute_->load(other.compute_->on_host(other.sgd_.momentum(), buffer), sgd_.momentum());
  sgd_.set_skipped_steps(other.info_.skipped_steps);
  info_.step = other.info_.step;
  info_.position = other.info_.position;
  info_.epoch = other.info_.epoch;
  info_.skipped_steps = other.info_.skipped_steps;
}

void TrainedModel::keep(std::optional<Point>& point) {
  if (!point) {
    point.emplace();
  }
  point->info = info_;
  compute_->copy(model_->parameters(),
                 at_least(*compute_, point->parameters, model_->parameters().size()));
  compute_->copy(sgd_.momentum(), at_least(*compute_, point->momentum, sgd_.momentum().size()));
}

void TrainedModel::return_to(const Point& point) {
  compute_->copy(point.parameters.span(), model_->parameters());
  compute_->copy(point.momentum.span(), sgd_.momentum());
  info_ = point.info;
  sgd_.set_skipped_steps(info_.skipped_steps);
}

void TrainedModel::keep_before_update() { keep(before_); }

void TrainedModel::keep_meeting(Residuals of_servers) {
  std::swap(before_, meeting_);
  keep(meeting_);
  meeting_->of_servers = std::move(of_servers);
}

void TrainedModel::return_to_meeting() { return_to(meeting_.value()); }

std::int64_t TrainedModel::oldest_step() const {
  return before_ && before_->info.step < info_.step ? before_->info.step : info_.step;
}

void TrainedModel::go_back() {
  if (oldest_step() == info_.step) {
    throw RuntimeFailure("step " + std::to_string(info_.step) + " cannot be taken back");
  }
  return_to(*before_);
  if (meeting_) {
    std::swap(before_, meeting_);
  }
  before_.reset();
}

}  // namespace rackrail::trainer
