// What somebody who is no worker may ask of a running job, and what the coordinator answers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/ids.hpp"
#include "base/units.hpp"
#include "runtime/coordinator/progress.hpp"

namespace rackrail::runtime {

enum class JobState {
  kGathering,   ///< not all workers have come
  kRunning,     ///< they train
  kRegrouping,  ///< between two epochs of the membership
  kFinished,    ///< all have reported their results
  kAborted
};

struct MemberStatus {
  std::optional<Rank> rank;  ///< none: it has come, and has no rank yet
  std::optional<Rank> seat;  ///< its rank in the first epoch, once that has begun
  std::string host;          ///< empty: between two epochs, of a worker that has not come back
  std::int64_t pid = 0;
  bool is_present = false;
  Duration silence;         ///< since it was last heard
  WorkerProgress progress;  ///< between two epochs: of none
};

/// From one rank to another, in the latest steps.
struct PairRate {
  Rank source;
  Rank destination;
  Bandwidth rate;  ///< of what arrived, while some of it was under way
};

struct JobStatus {
  JobState state = JobState::kGathering;
  std::uint32_t epoch = 0;  ///< of the membership, the latest; 0: the first has not begun
  std::string plan_digest;
  JobProgress progress;
  std::vector<MemberStatus> members;
  std::vector<PairRate> rates;     ///< the slowest first; none where steps are not measured
  std::size_t rates_left_out = 0;  ///< faster ones, beyond kMostPairRates
};

inline constexpr std::size_t kMostPairRates = 65'536;

/// What came of a request for another plan.
struct ReplanAnswer {
  std::uint32_t epoch = 0;  ///< which begins with another plan; 0: the one in use is kept
  std::string reason;       ///< one line: why it is kept, or what the other one is for
  std::string plan_digest;  ///< of what the job goes on with
  std::optional<Duration> kept_step_time{};  ///< predicted with the plan in use
  std::optional<Duration> new_step_time{};   ///< with another
};

}  // namespace rackrail::runtime
