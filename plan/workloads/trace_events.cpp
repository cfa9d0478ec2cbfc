#include "plan/workloads/trace_events.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/error.hpp"

namespace rackrail::plan {
namespace {

// More tensors or dimensions than an operator has are not kept.
constexpr std::size_t kMostDims = 4096;

/// Follows the parser: depth and the last key at each of the few depths that matter.
class EventHandler : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit EventHandler(const std::function<void(TraceEvent&)>& take) : take_(take) {}

  bool null() override { return true; }
  bool boolean(bool /*value*/) override { return true; }
  bool number_integer(number_integer_t value) override {
    return number(static_cast<double>(value), value);
  }
  bool number_unsigned(number_unsigned_t value) override {
    return number(static_cast<double>(value), static_cast<std::int64_t>(value));
  }
  bool number_float(number_float_t value, const string_t& /*text*/) override {
    return number(value, value >= -9e15 && value <= 9e15 ? static_cast<std::int64_t>(value) : -1);
  }
  bool binary(binary_t& /*value*/) override { return true; }

  bool string(string_t& value) override {
    if (depth_ == events_ + 1) {
      event_text(value);
    } else if (is_in_args() && depth_ == events_ + 2) {
      argument_text(value);
    } else if (is_in_args() && argument_ == "Input type" && depth_ == events_ + 3) {
      if (event_.types.size() < kMostDims) {
        event_.types.push_back(std::move(value));
      }
    } else if (root_ == "deviceProperties" && key_ == "name" && head_.device.empty()) {
      head_.device = std::move(value);
    }
    return true;
  }

  bool start_object(std::size_t /*elements*/) override {
    ++depth_;
    if (depth_ == events_ + 1) {
      event_ = {};
      phase_.clear();
      has_time_ = false;
      field_.clear();
    }
    return true;
  }
  bool end_object() override {
    if (depth_ == events_ + 1 && phase_ == "X" && has_time_) {
      take_(event_);
    }
    leave();
    return true;
  }
  bool key(string_t& value) override {
    if (depth_ == 1 && events_ != 1) {
      root_ = value;
    }
    if (depth_ == events_ + 1) {
      field_ = value;
    } else if (is_in_args() && depth_ == events_ + 2) {
      argument_ = value;
    }
    if (events_ == kNotThere) {
      key_ = std::move(value);
    }
    return true;
  }
  bool start_array(std::size_t /*elements*/) override {
    ++depth_;
    if (depth_ == 1 || (depth_ == 2 && root_ == "traceEvents")) {
      events_ = depth_;
    } else if (is_in_args() && argument_ == "Input Dims" && depth_ == events_ + 4 &&
               event_.dims.size() < kMostDims) {
      event_.dims.emplace_back();
    }
    return true;
  }
  bool end_array() override {
    leave();
    return true;
  }

  bool parse_error(std::size_t position, const std::string& /*token*/,
                   const nlohmann::detail::exception& /*error*/) override {
    error_position = position;
    return false;
  }

  const TraceHead& head() const { return head_; }
  std::size_t error_position = 0;

 private:
  static constexpr int kNotThere = 1'000'000'000;

  /// `field_` is the event's last key, also while its value is read.
  bool is_in_args() const { return depth_ > events_ + 1 && field_ == "args"; }

  void leave() {
    if (depth_ == events_) {
      events_ = kNotThere;
    }
    --depth_;
  }

  void event_text(std::string& value) {
    if (field_ == "ph") {
      phase_ = std::move(value);
    } else if (field_ == "cat") {
      event_.category = std::move(value);
    } else if (field_ == "name") {
      event_.name = std::move(value);
    }
  }

  void argument_text(std::string& value) {
    if (argument_ == "Collective name") {
      event_.collective = std::move(value);
    } else if (argument_ == "dtype") {
      event_.dtype = std::move(value);
    }
  }

  bool number(double value, std::int64_t whole) {
    if (depth_ == events_ + 1) {
      if (field_ == "ts") {
        event_.start = value;
        has_time_ = true;
      } else if (field_ == "dur") {
        event_.duration = value;
      } else if (field_ == "tid") {
        event_.thread = whole;
      }
    } else if (is_in_args() && depth_ == events_ + 2) {
      argument_number(whole);
    } else if (is_in_args() && argument_ == "Input Dims" && depth_ == events_ + 4) {
      if (!event_.dims.empty() && event_.dims.back().size() < kMostDims) {
        event_.dims.back().push_back(whole);
      }
    } else if (root_ == "distributedInfo" && key_ == "world_size") {
      head_.world_size = whole;
    }
    return true;
  }

  void argument_number(std::int64_t value) {
    if (argument_ == "correlation") {
      event_.correlation = value;
    } else if (argument_ == "device") {
      event_.device = value;
    } else if (argument_ == "In msg nelems") {
      event_.in_elements = value;
    } else if (argument_ == "Out msg nelems") {
      event_.out_elements = value;
    } else if (argument_ == "Group size") {
      event_.group_size = value;
    }
  }

  const std::function<void(TraceEvent&)>& take_;
  int depth_ = 0;
  int events_ = kNotThere;  ///< depth of the list of events while the parser is within it
  std::string root_, key_, field_, argument_, phase_;
  bool has_time_ = false;
  TraceEvent event_;
  TraceHead head_;
};

}  // namespace

TraceHead for_each_event(const std::string& file, std::string_view content,
                         const std::function<void(TraceEvent&)>& take) {
  EventHandler handler(take);
  if (!nlohmann::json::sax_parse(content.begin(), content.end(), &handler)) {
    throw ConfigError(ErrorContext{file, fmt::format("byte {}", handler.error_position),
                                   "broken JSON", "a whole trace of the PyTorch profiler"});
  }
  return handler.head();
}

}  // namespace rackrail::plan
