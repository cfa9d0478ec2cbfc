#include "runtime/trainer/checkpoint_writer.hpp"

#include <chrono>
#include <exception>
#include <utility>

namespace rackrail::trainer {

namespace {
constexpr std::chrono::milliseconds kBetweenChecks{50};
}  // namespace

/// Of one checkpoint what this rank writes, and how far that is.
struct CheckpointWriter::Part {
  enum class Phase : std::uint8_t {
    kStaging,
    kTelling,  ///< its files get their names, and are told of
    kOver,
  };

  Part(Rank rank, const TrainingState& from) : self(rank) {
    state.info = from.info;
    state.residuals = from.residuals;
    if (self != Rank(0)) {
      return;  // its files hold nothing else
    }
    tensors.assign(from.tensors.begin(), from.tensors.end());
    parameters.assign(from.parameters.begin(), from.parameters.end());
    momentum.assign(from.momentum.begin(), from.momentum.end());
    state.tensors = tensors;
    state.parameters = parameters;
    state.momentum = momentum;
  }
  ~Part() {
    if (thread.joinable()) {
      thread.join();
    }
  }
  Part(const Part&) = delete;
  Part& operator=(const Part&) = delete;

  const Rank self;
  TrainingState state;  // of the three below
  std::vector<ParameterTensor> tensors;
  std::vector<float> parameters;
  std::vector<float> momentum;

  Phase phase = Phase::kStaging;
  bool is_dropped = false;
  std::exception_ptr failure;

  std::thread thread;
};

CheckpointWriter::CheckpointWriter(Stage stage, Written written, Check check)
    : stage_(std::move(stage)), written_(std::move(written)), check_(std::move(check)) {}

CheckpointWriter::~CheckpointWriter() { drop(); }

void CheckpointWriter::save(Rank self, const TrainingState& state) {
  finish();
  // What was dropped takes memory until the disk lets go of it: one such is enough.
  const auto has_let_go = [this] {
    dropped_.remove_if([](const auto& part) { return part->phase == Part::Phase::kOver; });
    return dropped_.size() <= 1;
  };
  wait_until(has_let_go);
  current_ = std::make_unique<Part>(self, state);
  current_->thread = std::thread([this, part = current_.get()] { write(*part); });
}

void CheckpointWriter::write(Part& part) {
  std::exception_ptr failure;
  try {
    StagedShards staged = stage_(part.self, part.state);
    std::unique_lock lock(mutex_);
    if (!part.is_dropped) {
      part.phase = Part::Phase::kTelling;
      lock.unlock();
      written_(part.state.info.step, staged.publish());
    }
  } catch (...) {
    failure = std::current_exception();
  }
  const std::lock_guard lock(mutex_);
  part.failure = std::move(failure);
  part.phase = Part::Phase::kOver;
  changed_.notify_all();
}

void CheckpointWriter::wait_until(const std::function<bool()>& is_over) {
  std::unique_lock lock(mutex_);
  while (!changed_.wait_for(lock, kBetweenChecks, is_over)) {
    if (check_) {
      lock.unlock();
      check_();
      lock.lock();
    }
  }
}

void CheckpointWriter::throw_failure() {
  const std::unique_ptr<Part> part = std::exchange(current_, nullptr);
  part->thread.join();
  if (part->failure != nullptr) {
    std::rethrow_exception(part->failure);
  }
}

void CheckpointWriter::require_no_failure() {
  bool has_failed = false;
  if (current_ != nullptr) {
    const std::lock_guard lock(mutex_);
    has_failed = current_->failure != nullptr;
  }
  if (has_failed) {
    throw_failure();
  }
}

void CheckpointWriter::finish() {
  if (current_ != nullptr) {
    wait_until([this] { return current_->phase == Part::Phase::kOver; });
    throw_failure();
  }
}

void CheckpointWriter::drop() {
  if (current_ == nullptr) {
    return;
  }
  std::unique_lock lock(mutex_);
  current_->is_dropped = true;
  changed_.wait(lock, [this] { return current_->phase != Part::Phase::kTelling; });
  dropped_.push_back(std::move(current_));
}

}  // namespace rackrail::trainer
