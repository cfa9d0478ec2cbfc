#include "cli/trace.hpp"

#include <array>
#include <catch2/catch.hpp>
#include <map>
#include <nlohmann/json.hpp>

namespace rackrail::cli::trace_test {
namespace {

using nlohmann::json;

// What a viewer shows: (process, thread) → its events' names.
std::map<std::pair<std::string, std::string>, std::vector<std::string>> as_shown(
    const json& trace) {
  std::map<int, std::string> processes;
  std::map<std::pair<int, int>, std::string> threads;
  for (const json& event : trace.at("traceEvents")) {
    if (event.at("ph") == "M" && event.at("name") == "process_name") {
      processes[event.at("pid")] = event.at("args").at("name");
    } else if (event.at("ph") == "M" && event.at("name") == "thread_name") {
      threads[{event.at("pid"), event.at("tid")}] = event.at("args").at("name");
    }
  }
  std::map<std::pair<std::string, std::string>, std::vector<std::string>> shown;
  for (const json& event : trace.at("traceEvents")) {
    if (event.at("ph") == "X") {
      const int pid = event.at("pid");
      const int tid = event.at("tid");
      shown[{processes.at(pid), threads.at({pid, tid})}].push_back(event.at("name"));
    }
  }
  return shown;
}

TEST_CASE("each timeline is a process and each track a thread of it, both named") {
  const std::array<TraceProcess, 2> processes = {
      TraceProcess{"simulated",
                   {{"forward", "rank 0 compute", 0_us, 2_us},
                    {"bucket 0", "rank 0 network", 2_us, 5_us},
                    {"backward", "rank 0 compute", 2_us, 4_us}}},
      TraceProcess{"measured", {{"forward", "rank 0 compute", 0_us, 3_us}}}};
  const auto shown = as_shown(json::parse(to_trace_json(processes)));
  CHECK(shown.size() == 3);
  CHECK(shown.at({"simulated", "rank 0 compute"}) ==
        std::vector<std::string>{"forward", "backward"});
  CHECK(shown.at({"simulated", "rank 0 network"}) == std::vector<std::string>{"bucket 0"});
  CHECK(shown.at({"measured", "rank 0 compute"}) == std::vector<std::string>{"forward"});
}

TEST_CASE("what overlaps on a track is shown in rows beneath each other") {
  const TraceProcess process{"p",
                             {{"a", "rank 0 network", 0_us, 4_us},
                              {"b", "rank 0 network", 1_us, 5_us},
                              {"c", "rank 0 network", 2_us, 3_us},
                              {"d", "rank 0 network", 4_us, 6_us},
                              {"e", "rank 1 network", 0_us, 9_us},
                              {"f", "rank 0 network", 5_us, 6_us}}};
  const auto shown = as_shown(json::parse(to_trace_json({&process, 1})));
  using Names = std::vector<std::string>;
  CHECK(shown.size() == 4);
  CHECK(shown.at({"p", "rank 0 network"}) == Names{"a", "d"});
  CHECK(shown.at({"p", "rank 0 network (2)"}) == Names{"b", "f"});
  CHECK(shown.at({"p", "rank 0 network (3)"}) == Names{"c"});
  CHECK(shown.at({"p", "rank 1 network"}) == Names{"e"});
}

TEST_CASE("times are microseconds, down to the picosecond") {
  const TraceProcess process{
      "p", {{"what", "track", Duration(1'500'000), Duration(1'500'000) + 2_ms + Duration(1)}}};
  const json trace = json::parse(to_trace_json({&process, 1}));
  const json& event = trace.at("traceEvents").back();
  CHECK(event.at("ts").get<double>() == Approx(1.5));
  CHECK(event.at("dur").get<double>() == Approx(2000.000001).epsilon(1e-12));
}

TEST_CASE("names of any text survive") {
  const std::string name = "a \"quoted\" \\ name\nwith → arrow";
  const TraceProcess process{name, {{name, name, 0_us, 1_us}}};
  const auto shown = as_shown(json::parse(to_trace_json({&process, 1})));
  CHECK(shown.at({name, name}) == std::vector<std::string>{name});
}

TEST_CASE("a trace of nothing is still a trace") {
  const json trace = json::parse(to_trace_json({}));
  CHECK(trace.at("traceEvents").empty());
}

}  // namespace
}  // namespace rackrail::cli::trace_test
