#include "cli/trace.hpp"

#include <algorithm>
#include <cstddef>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace rackrail::cli {

namespace {
constexpr double kPicosecondsPerMicrosecond = 1e6;

double microseconds(Duration time) {
  return static_cast<double>(time.picoseconds()) / kPicosecondsPerMicrosecond;
}

struct PlacedEvent {
  const plan::TimelineEvent* event;
  std::size_t row;
};

/// Viewers want events of a row one after another: those that overlap (the messages of a rank, say)
/// go to further rows of the same track, each to the first that is free.
std::vector<PlacedEvent> in_rows(std::vector<const plan::TimelineEvent*> events) {
  std::stable_sort(events.begin(), events.end(),
                   [](const auto* a, const auto* b) { return a->start < b->start; });
  std::vector<Duration> busy_until;  // by row
  std::vector<PlacedEvent> placed;
  for (const plan::TimelineEvent* event : events) {
    const auto free = std::find_if(busy_until.begin(), busy_until.end(),
                                   [event](Duration until) { return until <= event->start; });
    const auto row = static_cast<std::size_t>(free - busy_until.begin());
    if (free == busy_until.end()) {
      busy_until.emplace_back();
    }
    busy_until[row] = event->end;
    placed.push_back({event, row});
  }
  return placed;
}

void add_name(nlohmann::json& events, const char* of_what, int pid, int tid,
              const std::string& name) {
  events.push_back(
      {{"ph", "M"}, {"name", of_what}, {"pid", pid}, {"tid", tid}, {"args", {{"name", name}}}});
}

void add_process(nlohmann::json& events, const TraceProcess& process, int pid) {
  add_name(events, "process_name", pid, 0, process.name);
  std::map<std::string, std::vector<const plan::TimelineEvent*>> tracks;
  for (const plan::TimelineEvent& event : process.events) {
    tracks[event.track].push_back(&event);
  }
  int first_tid = 1;
  for (const auto& [track, of_track] : tracks) {
    int end_tid = first_tid;
    for (const auto& [event, row] : in_rows(of_track)) {
      const int tid = first_tid + static_cast<int>(row);
      if (tid == end_tid) {
        add_name(events, "thread_name", pid, tid,
                 row == 0 ? track : track + " (" + std::to_string(row + 1) + ")");
        ++end_tid;
      }
      events.push_back({{"ph", "X"},
                        {"name", event->what},
                        {"cat", "rackrail"},
                        {"pid", pid},
                        {"tid", tid},
                        {"ts", microseconds(event->start)},
                        {"dur", microseconds(event->end - event->start)}});
    }
    first_tid = end_tid;
  }
}

}  // namespace

std::string to_trace_json(std::span<const TraceProcess> processes) {
  nlohmann::json events = nlohmann::json::array();
  int pid = 0;
  for (const TraceProcess& process : processes) {
    add_process(events, process, ++pid);
  }
  return nlohmann::json{{"displayTimeUnit", "ms"}, {"traceEvents", events}}.dump();
}

}  // namespace rackrail::cli
