// What a coordinator must not forget when it is killed: an SQLite database with a write-ahead log
// in a folder of the job's own.
//
// It holds who may come back and with what: the job (where its coordinator listens, its token, the
// options of its workers) and its epochs of membership, each written, and synchronised to the disk,
// before the first worker hears of it. Everything else a coordinator knows, its workers know too,
// and say when they come back. The database is locked for as long as it is open, so that two
// coordinators cannot run one job; the kernel gives the lock back when a process dies. The file is
// readable by its owner alone, since it holds the token.
//
// One object may be used by several threads.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "runtime/coordinator/host_port.hpp"
#include "runtime/coordinator/regroup.hpp"

namespace rackrail::runtime {

struct JobRecord {
  std::string identity;     ///< of what is trained: only the same job may be resumed
  HostPort address;         ///< where workers look for the coordinator
  std::string token;        ///< of the job
  std::string job_options;  ///< JSON, for all workers
};

/// A job that was begun and not ended.
struct UnfinishedJob {
  JobRecord job;
  EpochRecord epoch;  ///< the latest
};

class JobStore {
 public:
  /// Makes the folder and the database where there are none. Throws ConfigError when that cannot be
  /// done, the file is no such database, or another process has it open.
  explicit JobStore(const std::filesystem::path& folder);
  ~JobStore();
  JobStore(const JobStore&) = delete;
  JobStore& operator=(const JobStore&) = delete;

  // Each throws RuntimeFailure when the database cannot be read or written.
  std::optional<UnfinishedJob> unfinished() const;
  /// Forgets the job that was there.
  void begin(const JobRecord& job);
  /// Durable when it returns.
  void add(const EpochRecord& epoch);
  /// There is nothing to go on with any more.
  void end();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace rackrail::runtime
