// What one worker says about its run, as the coordinator collects it from every rank.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/ids.hpp"
#include "base/units.hpp"
#include "plan/cost_model.hpp"

namespace rackrail::runtime {

struct WorkerReport {
  Rank rank;
  std::string host;
  std::int64_t pid = 0;
  std::string transport;           ///< name of the transport that moved the gradients
  std::vector<std::string> notes;  ///< what the user should know, one line each
  std::uint32_t first_step = 0;    ///< steps before this one came from a checkpoint
  std::uint32_t steps = 0;         ///< steps of the whole training that are done
  double final_loss = 0;
  std::optional<double> final_accuracy;  ///< share of held-out samples; some ranks do not measure
  Duration step_time;                    ///< median over the steps of this run
  Duration sync_time;                    ///< median wait for gradients per step
  double sync_share = 0;                 ///< of all step time: gradients move and nothing computes
  Bytes bytes_sent;
  std::uint64_t messages = 0;
  std::map<std::pair<Rank, Rank>, Bytes> bytes_by_pair;  ///< sent by this rank, by (self, dst)
  Duration encode_time;                                  ///< in total
  Duration decode_time;                                  ///< in total
  Duration cpu_time;                                     ///< user and system time of this process
  Duration wall_time;                                    ///< from joining to the last step's end
  std::uint32_t membership_epochs = 1;
  std::string parameters_digest;  ///< SHA-256 of the trained parameters: equal on all ranks
  std::vector<plan::TimelineEvent> timeline;  ///< of the step that was asked for
};

/// One JSON object; durations in integer picoseconds, so that nothing is lost on the way.
std::string to_json(const WorkerReport& report);
/// Throws RuntimeFailure that names the field when the text is not such an object.
WorkerReport parse_worker_report(const std::string& json);

}  // namespace rackrail::runtime
