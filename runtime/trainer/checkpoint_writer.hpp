// One rank's part of checkpoints, written while it trains on.
//
// save() copies the state and returns; a thread encodes, digests, writes and flushes the files.
// Only when they are on the disk do they get their names and does whoever commits hear of them, so
// what is committed is durable, and a rank that is lost before leaves the checkpoint before this
// one as the last whole one.
//
// At most one is in flight: a save that finds one waits for it. It is never skipped, since a rank
// that skips by itself leaves a checkpoint that no other rank can make whole. So a disk that takes
// longer than the steps between two checkpoints slows the training down to its own pace.
//
// Memory: a copy of what this rank writes, beside the content of one file as it is encoded.
#pragma once

#include <atomic>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "base/ids.hpp"
#include "runtime/trainer/checkpoint.hpp"

namespace rackrail::trainer {

/// Used by one thread.
class CheckpointWriter {
 public:
  using Stage = std::function<StagedShards(Rank self, const TrainingState&)>;
  using Written = std::function<void(std::int64_t step, const std::vector<CheckpointFile>&)>;

  /// Both are called on the writer's thread; what they throw is the failure of that checkpoint.
  CheckpointWriter(Stage stage, Written written);
  /// Drops what is in flight, and waits until the disk has let go of it.
  ~CheckpointWriter();
  CheckpointWriter(const CheckpointWriter&) = delete;
  CheckpointWriter& operator=(const CheckpointWriter&) = delete;

  /// The part of rank `self` of a checkpoint. Throws what the one before failed with.
  void save(Rank self, const TrainingState& state);
  /// Throws what a checkpoint has failed with, once, and does not wait for one that is in flight.
  void require_no_failure();
  /// Waits for the one in flight, and throws what it failed with.
  void finish();
  /// Nobody will hear of the one in flight, nor see a file of it; its failure does not count. Waits
  /// for `written`, where that was called already, but not for the disk.
  void drop();

 private:
  void take_snapshot(Rank self, const TrainingState& state);
  void write();

  const Stage stage_;
  const Written written_;
  std::thread thread_;

  // The thread's alone while there is one.
  Rank self_;
  TrainingState snapshot_;
  std::vector<ParameterTensor> tensors_;
  std::vector<float> parameters_;
  std::vector<float> momentum_;

  std::mutex mutex_;  // guards what follows; held while files get their names and are told of
  bool is_dropped_ = false;
  std::exception_ptr failure_;
  std::atomic<bool> has_failed_ = false;  // whether there is a failure, without waiting
};

}  // namespace rackrail::trainer
