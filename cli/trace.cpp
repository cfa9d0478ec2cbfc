#include "cli/trace.hpp"

#include <map>
#include <nlohmann/json.hpp>

namespace rackrail::cli {

namespace {
constexpr double kPicosecondsPerMicrosecond = 1e6;

double microseconds(Duration time) {
  return static_cast<double>(time.picoseconds()) / kPicosecondsPerMicrosecond;
}
}  // namespace

std::string to_trace_json(std::span<const TraceProcess> processes) {
  nlohmann::json events = nlohmann::json::array();
  int pid = 0;
  for (const TraceProcess& process : processes) {
    ++pid;
    events.push_back({{"ph", "M"},
                      {"name", "process_name"},
                      {"pid", pid},
                      {"tid", 0},
                      {"args", {{"name", process.name}}}});
    std::map<std::string, int> threads;
    for (const plan::TimelineEvent& event : process.events) {
      threads.emplace(event.track, 0);
    }
    int tid = 0;
    for (auto& [track, id] : threads) {
      id = ++tid;
      events.push_back({{"ph", "M"},
                        {"name", "thread_name"},
                        {"pid", pid},
                        {"tid", id},
                        {"args", {{"name", track}}}});
    }
    for (const plan::TimelineEvent& event : process.events) {
      events.push_back({{"ph", "X"},
                        {"name", event.what},
                        {"cat", "rackrail"},
                        {"pid", pid},
                        {"tid", threads.at(event.track)},
                        {"ts", microseconds(event.start)},
                        {"dur", microseconds(event.end - event.start)}});
    }
  }
  return nlohmann::json{{"displayTimeUnit", "ms"}, {"traceEvents", events}}.dump();
}

}  // namespace rackrail::cli
