// One rank's part of checkpoints, written while it trains on.
//
// save() copies the state and returns; a thread encodes, digests, writes and flushes the files.
// Only when they are on the disk do they get their names, and only then is the committer told, so
// what is committed is durable. If a rank is lost before that, the previous checkpoint remains the
// last whole one.
//
// At most one is in flight: a save that finds one waits for it. It is never skipped, since a rank
// that skips by itself leaves a checkpoint that no other rank can make whole. So a disk that takes
// longer than the steps between two checkpoints slows the training down to its own pace. While a
// disk is waited for, somebody is asked now and then whether there is still a reason to: when
// another rank is lost, no disk keeps this one from coming back to the job.
//
// Memory: a copy of what this rank writes, beside the content of one file as it is encoded. The
// same once more while a dropped checkpoint is still being written to the disk.
#pragma once

#include <condition_variable>
#include <functional>
#include <list>
#include <memory>
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
  /// Throws when there is no reason to wait any longer.
  using Check = std::function<void()>;

  /// `stage` and `written` are called on threads of the writer, `stage` on two at a time where one
  /// was dropped; what they throw is the failure of that checkpoint. `check` is called by save()
  /// and finish() while they wait, and what it throws comes out of them.
  CheckpointWriter(Stage stage, Written written, Check check = {});
  /// Drops what is in flight, and waits until its writes to the disk have ended.
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
  struct Part;

  void write(Part& part);
  /// `is_over` is asked with the mutex held.
  void wait_until(const std::function<bool()>& is_over);
  void throw_failure();

  const Stage stage_;
  const Written written_;
  const Check check_;

  std::mutex mutex_;  // guards what is in the parts but their state
  std::condition_variable changed_;
  std::list<std::unique_ptr<Part>> dropped_;  // some may still be writing to the disk
  std::unique_ptr<Part> current_;             // null: none since the last one was over
};

}  // namespace rackrail::trainer
