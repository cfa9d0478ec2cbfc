// What `rackrail validate <cluster>` has measured so far, and how it is reported. A run takes
// minutes, so what was measured is kept when the run is interrupted.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "cli/comparison.hpp"
#include "cli/emulated_collectives.hpp"
#include "cli/emulated_messages.hpp"
#include "cli/emulation.hpp"
#include "cli/session.hpp"
#include "cli/table.hpp"
#include "plan/calibration.hpp"
#include "plan/workload.hpp"

namespace rackrail::cli {

/// Text goes to stdout row by row; JSON at the end, and to `file`, if that is not empty, as it is
/// after each row.
class ValidationRecord {
 public:
  ValidationRecord(Session& session, std::filesystem::path file);

  void add_links(const runtime::emulate::NetworkPlan& plan, const CheckedLinks& checked);
  /// What this machine costs, and all that is to be executed.
  void begin(const plan::Calibration& calibration, const plan::Workload& workload,
             const std::vector<MessagePlan>& messages, const std::vector<CollectivePlan>& plans,
             std::size_t steps);
  /// The next one of these, measured: first the messages, then the collectives.
  void add(const EmulatedMessage& one);
  void add(const EmulatedCollective& one);
  /// The cases of one codec are all there: what its choices are worth.
  void end_codec();
  /// With no other codec than `codec`, where that may be used; none: with those that are best. The
  /// first one is `step` in JSON, and all are `steps`.
  void add_step(const Compared& step, const std::optional<plan::Codec>& codec,
                const nlohmann::json& ranks);
  /// All that was measured so far.
  struct Measured {
    std::size_t messages = 0;
    std::size_t collectives = 0;
    std::size_t steps = 0;
  };
  Measured measured() const { return {messages_.size(), cases_.size(), steps_.size()}; }
  /// What was measured after `before` does not count, as other programs took so many cores, and is
  /// measured again.
  void withdraw(const Measured& before, double other_cores);
  /// It does not count, but stays: they always took so many.
  void add_busy(double other_cores);
  /// Writes the final summary; the last call.
  void finish();
  /// Instead of finish(), when a signal ended the run: the same summary of what was measured.
  void finish_partially();

  bool links_are_held() const { return checked_ && checked_->is_held; }
  /// Of all that was measured; none if nothing was.
  std::optional<ErrorSummary> errors() const;

 private:
  void say(const std::string& text) const;
  void save() const;
  void say_totals() const;
  nlohmann::json to_json() const;

  Session& session_;
  std::filesystem::path file_;
  std::int64_t local_batch_ = 0;
  nlohmann::json result_;  ///< without what is computed from the cases
  std::optional<CheckedLinks> checked_;
  std::optional<RowByRow> message_table_;
  std::optional<RowByRow> table_;
  std::size_t planned_messages_ = 0;
  std::size_t planned_ = 0;
  std::size_t planned_steps_ = 0;
  std::vector<EmulatedMessage> messages_;
  std::vector<EmulatedCollective> cases_;
  std::size_t of_earlier_codecs_ = 0;  ///< cases
  std::vector<Compared> steps_;
  double other_cores_ = 0;  ///< the most that others took of what stays, where times do not count
  bool is_whole_ = false;
};

}  // namespace rackrail::cli
