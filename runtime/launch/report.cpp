#include "runtime/launch/report.hpp"

#include <limits>
#include <nlohmann/json.hpp>
#include <type_traits>

#include "base/error.hpp"

namespace rackrail::runtime {
namespace {

using nlohmann::json;

// Writing and reading go through the same list of fields, so they cannot drift apart. An archive is
// asked for one field after another: Writer puts it, Reader gets it.

class Writer {
 public:
  void operator()(const char* name, const Rank& rank) { object_[name] = rank.value(); }
  void operator()(const char* name, const Bytes& bytes) { object_[name] = bytes.count(); }
  void operator()(const char* name, const Duration& time) { object_[name] = time.picoseconds(); }
  template <typename T>
  void operator()(const char* name, const std::optional<T>& value) {
    if (value) {
      object_[name] = *value;
    }
  }
  void operator()(const char* name, const std::map<std::pair<Rank, Rank>, Bytes>& pairs) {
    json list = json::array();
    for (const auto& [pair, bytes] : pairs) {
      list.push_back({pair.first.value(), pair.second.value(), bytes.count()});
    }
    object_[name] = std::move(list);
  }
  void operator()(const char* name, const std::vector<plan::TimelineEvent>& events) {
    json list = json::array();
    for (const plan::TimelineEvent& event : events) {
      list.push_back({event.what, event.track, event.start.picoseconds(), event.end.picoseconds()});
    }
    object_[name] = std::move(list);
  }
  template <typename T>
  void operator()(const char* name, const T& value) {
    object_[name] = value;
  }

  const json& object() const { return object_; }

 private:
  json object_ = json::object();
};

class Reader {
 public:
  explicit Reader(const json& object) : object_(object) {}

  void operator()(const char* name, Rank& rank) { rank = Rank(get<std::uint32_t>(name)); }
  void operator()(const char* name, Bytes& bytes) { bytes = Bytes(get<std::int64_t>(name)); }
  void operator()(const char* name, Duration& time) { time = Duration(get<std::int64_t>(name)); }
  template <typename T>
  void operator()(const char* name, std::optional<T>& value) {
    value.reset();
    if (object_.contains(name)) {
      (*this)(name, value.emplace());
    }
  }
  // JSON has no number for what a training that diverges computes: null stands for it.
  void operator()(const char* name, double& value) { value = read(name, number_of); }
  void operator()(const char* name, std::vector<double>& values) {
    values = read(name, [](const json& list) {
      std::vector<double> numbers;
      for (const json& number : list.get_ref<const json::array_t&>()) {
        numbers.push_back(number_of(number));
      }
      return numbers;
    });
  }
  void operator()(const char* name, std::map<std::pair<Rank, Rank>, Bytes>& pairs) {
    using Entry = std::tuple<std::uint32_t, std::uint32_t, std::int64_t>;
    for (const auto& [source, destination, bytes] : get<std::vector<Entry>>(name)) {
      pairs.emplace(std::pair(Rank(source), Rank(destination)), Bytes(bytes));
    }
  }
  void operator()(const char* name, std::vector<plan::TimelineEvent>& events) {
    using Entry = std::tuple<std::string, std::string, std::int64_t, std::int64_t>;
    for (auto& [what, track, start, end] : get<std::vector<Entry>>(name)) {
      events.push_back({what, track, Duration(start), Duration(end)});
    }
  }
  template <typename T>
  void operator()(const char* name, T& value) {
    value = get<T>(name);
  }

 private:
  static double number_of(const json& value) {
    return value.is_null() ? std::numeric_limits<double>::quiet_NaN() : value.get<double>();
  }
  template <typename T>
  T get(const char* name) const {
    return read(name, [](const json& value) { return value.get<T>(); });
  }
  template <typename Read>
  std::invoke_result_t<Read, const json&> read(const char* name, const Read& read) const {
    try {
      return read(object_.at(name));
    } catch (const json::exception&) {
      const auto it = object_.find(name);
      throw RuntimeFailure("a worker's report: " + std::string(name) + ": found " +
                           (it == object_.end() ? "nothing" : it->dump().substr(0, 100)) +
                           ", which cannot be read");
    }
  }

  const json& object_;
};

template <typename Report, typename Archive>
void visit(Report& report, Archive& field) {
  field("rank", report.rank);
  field("host", report.host);
  field("pid", report.pid);
  field("transport", report.transport);
  field("device", report.device);
  field("notes", report.notes);
  field("first_step", report.first_step);
  field("steps", report.steps);
  field("losses", report.losses);
  field("weighted_squared_norms", report.weighted_squared_norms);
  field("squared_norms", report.squared_norms);
  field("final_loss", report.final_loss);
  field("final_accuracy", report.final_accuracy);
  field("final_test_loss", report.final_test_loss);
  field("skipped_steps", report.skipped_steps);
  field("parameters_digest", report.parameters_digest);
  field("step_time_ps", report.step_time);
  field("compute_time_ps", report.compute_time);
  field("compute_cpu_time_ps", report.compute_cpu_time);
  field("sync_time_ps", report.sync_time);
  field("input_wait_ps", report.input_wait);
  field("sync_share", report.sync_share);
  field("mean_step_time_ps", report.mean_step_time);
  field("encode_step_time_ps", report.encode_step_time);
  field("decode_step_time_ps", report.decode_step_time);
  field("progress_cpu_time_ps", report.progress_cpu_time);
  field("process_cpu_time_ps", report.process_cpu_time);
  field("updates", report.updates);
  field("conflicts", report.conflicts);
  field("stale_updates", report.stale_updates);
  field("most_ahead", report.most_ahead);
  field("bytes_sent", report.bytes_sent);
  field("messages", report.messages);
  field("bytes_by_pair", report.bytes_by_pair);
  field("encode_time_ps", report.encode_time);
  field("decode_time_ps", report.decode_time);
  field("cpu_time_ps", report.cpu_time);
  field("wall_time_ps", report.wall_time);
  field("membership_epochs", report.membership_epochs);
  field("timeline", report.timeline);
}

}  // namespace

std::string to_json(const WorkerReport& report) {
  Writer writer;
  visit(report, writer);
  // Host names and messages are not ours: what is no UTF-8 is replaced, not refused.
  return writer.object().dump(-1, ' ', false, json::error_handler_t::replace);
}

WorkerReport parse_worker_report(const std::string& text) {
  const json object = json::parse(text, nullptr, false);
  if (!object.is_object()) {
    throw RuntimeFailure("a worker's report is no JSON object");
  }
  WorkerReport report;
  Reader reader(object);
  visit(report, reader);
  return report;
}

}  // namespace rackrail::runtime
