#include "cli/validation_record.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <utility>

#include "base/file.hpp"
#include "base/other_load.hpp"
#include "base/parse_units.hpp"
#include "plan/codec_name.hpp"

namespace rackrail::cli {

namespace {

nlohmann::json collective_json(const EmulatedCollective& one) {
  return {{"what", to_string(one.size)},          {"bytes", one.size.count()},
          {"codec", plan::to_string(one.codec)},  {"by", one.family},
          {"is_chosen", one.is_chosen},           {"predicted_s", one.predicted.seconds()},
          {"measured_s", one.measured.seconds()}, {"relative_error", one.error()}};
}

nlohmann::json message_json(const EmulatedMessage& one) {
  return {{"link", one.link},
          {"from", one.from},
          {"to", one.to},
          {"is_slowest", one.is_slowest},
          {"bytes", one.size.count()},
          {"predicted_s", one.predicted.seconds()},
          {"measured_s", one.measured.seconds()},
          {"relative_error", one.error()}};
}

nlohmann::json choice_json(const MeasuredChoice& choice) {
  return {{"bytes", choice.chosen->size.count()},
          {"codec", plan::to_string(choice.chosen->codec)},
          {"chosen", choice.chosen->family},
          {"best", choice.best->family},
          {"over_best", choice.over_best()}};
}

/// What a rank computes in a step, as it was measured beforehand: processor time, in seconds.
nlohmann::json compute_json(const plan::Workload& workload) {
  return {{"forward_s", workload.forward.seconds()},
          {"backward_s", workload.backward().seconds()},
          {"optimizer_s", workload.optimizer.seconds()}};
}

constexpr std::size_t kSizeWidth = 10;
constexpr std::size_t kTimeWidth = 9;

std::string ends_text(const EmulatedMessage& one) {
  return fmt::format("{}, {}{}", one.from, one.to, one.is_slowest ? "" : " (not the slowest link)");
}

RowByRow rows_for(const std::vector<MessagePlan>& plans) {
  std::size_t link = 0;
  std::size_t ends = 0;
  for (const MessagePlan& plan : plans) {
    for (const EmulatedMessage& one : plan.cases) {
      link = std::max(link, one.link.size());
      ends = std::max(ends, ends_text(one).size());
    }
  }
  return RowByRow({{"message", kSizeWidth},
                   {"over", link},
                   {"between", ends},
                   {"predicted", kTimeWidth, Align::kRight},
                   {"measured", kTimeWidth, Align::kRight},
                   {"error", kTimeWidth, Align::kRight}});
}

RowByRow rows_for(const std::vector<CollectivePlan>& plans) {
  std::size_t codec = 0;
  std::size_t family = 0;
  for (const CollectivePlan& plan : plans) {
    for (const EmulatedCollective& one : plan.cases) {
      codec = std::max(codec, plan::display_name(one.codec).size());
      family = std::max(family, one.family.size());
    }
  }
  return RowByRow({{"all-reduce", kSizeWidth},
                   {"codec", codec},
                   {"by", family},
                   {"predicted", kTimeWidth, Align::kRight},
                   {"measured", kTimeWidth, Align::kRight},
                   {"error", kTimeWidth, Align::kRight}});
}

std::string over_best_text(const MeasuredChoice& choice) {
  return fmt::format("({} at {}, {}: {:.1f} % longer than the best, {})\n", choice.chosen->family,
                     to_string(choice.chosen->size), plan::display_name(choice.chosen->codec),
                     choice.over_best() * 100, choice.best->family);
}

std::string worst_choice_text(const std::vector<MeasuredChoice>& choices) {
  if (choices.empty()) {
    return "";
  }
  const auto worst = std::ranges::max_element(
      choices, {}, [](const MeasuredChoice& choice) { return choice.over_best(); });
  return fmt::format("the chosen schedule takes at most {} longer than the best of all ({}, {})\n",
                     percent(worst->over_best()), to_string(worst->chosen->size),
                     plan::display_name(worst->chosen->codec));
}

}  // namespace

ValidationRecord::ValidationRecord(Session& session, std::filesystem::path file)
    : session_(session), file_(std::move(file)) {}

void ValidationRecord::add_links(const runtime::emulate::NetworkPlan& plan,
                                 const CheckedLinks& checked) {
  checked_ = checked;
  result_.update(links_json(plan, checked));
  say(links_table(plan, checked) + "\n");
  save();
}

void ValidationRecord::begin(const plan::Calibration& calibration, const plan::Workload& workload,
                             const std::vector<MessagePlan>& messages,
                             const std::vector<CollectivePlan>& plans, std::size_t steps) {
  planned_steps_ = steps;
  result_["calibration"] = nlohmann::json::parse(plan::to_json(calibration));
  result_["compute"] = compute_json(workload);
  local_batch_ = workload.profiled_batch;
  for (const MessagePlan& plan : messages) {
    planned_messages_ += plan.cases.size();
  }
  for (const CollectivePlan& plan : plans) {
    planned_ += plan.cases.size();
  }
  message_table_ = rows_for(messages);
  table_ = rows_for(plans);
  save();
}

void ValidationRecord::add(const EmulatedMessage& one) {
  if (messages_.empty()) {
    say(message_table_->head());
  }
  messages_.push_back(one);
  say(message_table_->row({to_string(one.size), one.link, ends_text(one), to_string(one.predicted),
                           to_string(one.measured), error_text(one.error())}));
  save();
}

void ValidationRecord::add(const EmulatedCollective& one) {
  if (cases_.empty()) {
    say(fmt::format("{}{}", messages_.empty() ? "" : "\n", table_->head()));
  }
  cases_.push_back(one);
  say(table_->row({to_string(one.size), plan::display_name(one.codec), one.family,
                   to_string(one.predicted), to_string(one.measured), error_text(one.error())}));
  save();
}

void ValidationRecord::end_codec() {
  const std::vector<EmulatedCollective> of_codec(
      cases_.begin() + static_cast<std::ptrdiff_t>(of_earlier_codecs_), cases_.end());
  for (const MeasuredChoice& choice : measured_choices(of_codec)) {
    say(over_best_text(choice));
  }
  of_earlier_codecs_ = cases_.size();
}

void ValidationRecord::add_step(const Compared& step, const std::optional<plan::Codec>& codec,
                                const nlohmann::json& ranks) {
  steps_.push_back(step);
  nlohmann::json json = cli::to_json(step);
  json["codec"] = codec ? nlohmann::json(plan::to_string(*codec)) : nlohmann::json();
  json["local_batch"] = local_batch_;
  json["ranks"] = ranks;
  json["compute"] = result_["compute"];
  result_.emplace("step", json);
  result_["steps"].push_back(std::move(json));
  say("\n" + comparison_table("training", {step}));
  save();
}

void ValidationRecord::withdraw(const Measured& before, double other_cores) {
  messages_.resize(before.messages);
  cases_.resize(before.collectives);
  steps_.resize(before.steps);
  if (before.steps == 0) {
    result_.erase("step");
    result_.erase("steps");
  } else {
    nlohmann::json& steps = result_["steps"];
    steps.erase(steps.begin() + static_cast<std::ptrdiff_t>(before.steps), steps.end());
  }
  say(fmt::format("({}: measured again)\n", other_load_text(other_cores)));
  save();
}

void ValidationRecord::add_busy(double other_cores) {
  other_cores_ = std::max(other_cores_, other_cores);
  save();
}

void ValidationRecord::finish() {
  is_whole_ = true;
  say_totals();
  save();
  if (session_.json) {
    session_.print_json(to_json());
  }
}

void ValidationRecord::finish_partially() {
  say(fmt::format(
      "\nPARTIAL: interrupted after {} of {} messages, {} of {} all-reduces, {} of {} trainings\n",
      messages_.size(), planned_messages_, cases_.size(), planned_, steps_.size(), planned_steps_));
  say_totals();
  save();
  if (session_.json) {
    session_.print_json(to_json());
  }
}

std::optional<ErrorSummary> ValidationRecord::errors() const {
  std::vector<double> errors;
  for (const EmulatedMessage& one : messages_) {
    if (one.size >= kLeastMessageJudged) {
      errors.push_back(one.error());
    }
  }
  for (const EmulatedCollective& one : cases_) {
    errors.push_back(one.error());
  }
  for (const Compared& step : steps_) {
    errors.push_back(step.error());
  }
  return errors.empty() ? std::nullopt : std::optional(summarise(errors));
}

void ValidationRecord::say(const std::string& text) const {
  if (!session_.json) {
    fmt::print("{}", text);
    std::fflush(stdout);
  }
}

void ValidationRecord::save() const {
  if (!file_.empty()) {
    nlohmann::json whole = session_.envelope();
    whole.update(to_json());
    write_file_atomically(file_, whole.dump(2) + "\n");
  }
}

void ValidationRecord::say_totals() const {
  const auto summary = errors();
  if (summary) {
    say(fmt::format("\n{}{} (load {:.1f} before)\n", worst_choice_text(measured_choices(cases_)),
                    summary_text(*summary), checked_->load));
  }
  if (other_cores_ > 0) {
    say(fmt::format("measured times do not count: {}; run it again on an idle machine\n",
                    other_load_text(other_cores_)));
  }
}

nlohmann::json ValidationRecord::to_json() const {
  nlohmann::json json = result_;
  json.erase("compute");  // of the step, once there is one
  json["partial"] = !is_whole_;
  json["times_count"] = other_cores_ == 0;
  json["other_load_cores"] = other_cores_;
  json["planned_messages"] = planned_messages_;
  json["messages"] = nlohmann::json::array();
  for (const EmulatedMessage& one : messages_) {
    json["messages"].push_back(message_json(one));
  }
  json["planned_collectives"] = planned_;
  json["collectives"] = nlohmann::json::array();
  for (const EmulatedCollective& one : cases_) {
    json["collectives"].push_back(collective_json(one));
  }
  json["choices"] = nlohmann::json::array();
  for (const MeasuredChoice& choice : measured_choices(cases_)) {
    json["choices"].push_back(choice_json(choice));
  }
  if (const auto summary = errors()) {
    json["worst_relative_error"] = std::abs(summary->worst);
    json["median_relative_error"] = summary->median;
    json["geomean_relative_error"] = summary->mean;
  }
  return json;
}

}  // namespace rackrail::cli
