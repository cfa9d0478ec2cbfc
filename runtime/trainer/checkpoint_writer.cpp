#include "runtime/trainer/checkpoint_writer.hpp"

#include <utility>

namespace rackrail::trainer {

CheckpointWriter::CheckpointWriter(Stage stage, Written written)
    : stage_(std::move(stage)), written_(std::move(written)) {}

CheckpointWriter::~CheckpointWriter() {
  drop();
  if (thread_.joinable()) {
    thread_.join();
  }
}

void CheckpointWriter::save(Rank self, const TrainingState& state) {
  finish();
  take_snapshot(self, state);
  is_dropped_ = false;
  thread_ = std::thread([this] { write(); });
}

void CheckpointWriter::take_snapshot(Rank self, const TrainingState& state) {
  self_ = self;
  snapshot_.info = state.info;
  snapshot_.residuals = state.residuals;
  if (self != Rank(0)) {
    return;  // its files hold nothing else
  }
  tensors_.assign(state.tensors.begin(), state.tensors.end());
  parameters_.assign(state.parameters.begin(), state.parameters.end());
  momentum_.assign(state.momentum.begin(), state.momentum.end());
  snapshot_.tensors = tensors_;
  snapshot_.parameters = parameters_;
  snapshot_.momentum = momentum_;
}

void CheckpointWriter::write() {
  try {
    StagedShards staged = stage_(self_, snapshot_);
    const std::lock_guard lock(mutex_);
    if (!is_dropped_) {
      written_(snapshot_.info.step, staged.publish());
    }
  } catch (...) {
    const std::lock_guard lock(mutex_);
    if (!is_dropped_) {
      failure_ = std::current_exception();
      has_failed_ = true;
    }
  }
}

void CheckpointWriter::require_no_failure() {
  if (has_failed_) {
    finish();
  }
}

void CheckpointWriter::finish() {
  if (thread_.joinable()) {
    thread_.join();
  }
  if (has_failed_.exchange(false)) {
    std::rethrow_exception(std::exchange(failure_, nullptr));
  }
}

void CheckpointWriter::drop() {
  const std::lock_guard lock(mutex_);
  is_dropped_ = true;
  failure_ = nullptr;
  has_failed_ = false;
}

}  // namespace rackrail::trainer
