#include "cli/trace_explanation.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <system_error>

#include "base/file.hpp"
#include "base/gzip.hpp"
#include "base/parse_units.hpp"
#include "base/text.hpp"
#include "cli/progress.hpp"
#include "cli/table.hpp"

namespace rackrail::cli {
namespace {

constexpr std::size_t kMostShown = 12;  // kinds of collectives

nlohmann::json json_of(const std::optional<Bandwidth>& rate) {
  return rate ? nlohmann::json(rate->bytes_per_second()) : nullptr;
}

nlohmann::json json_of(const explore::TracedCollectives& one) {
  return {{"collective", plan::name_of(one.kind)},
          {"bytes", one.bytes > 0 ? nlohmann::json(one.bytes) : nullptr},
          {"dtype", one.dtype},
          {"ranks", one.ranks > 0 ? nlohmann::json(one.ranks) : nullptr},
          {"per_step", one.per_step},
          {"time_s", one.time.seconds()},
          {"shortest_s", one.shortest.seconds()},
          {"exposed_s", one.exposed.seconds()},
          {"algbw_Bps", json_of(one.algorithm_bandwidth)},
          {"busbw_Bps", json_of(one.bus_bandwidth)}};
}

std::string name_of(const explore::TracedCollectives& one) {
  std::string name(plan::name_of(one.kind));
  if (one.bytes > 0) {
    name += fmt::format(", {}", to_string(Bytes(one.bytes)));
  }
  if (!one.dtype.empty()) {
    name += fmt::format(" of {}", one.dtype);
  }
  return name;
}

void print_collectives(const explore::TraceExplanation& all) {
  if (all.collectives.empty()) {
    return;
  }
  Table table({{"collective"},
               {"ranks", Align::kRight},
               {"a step", Align::kRight},
               {"mean", Align::kRight},
               {"shortest", Align::kRight},
               {"exposed a step", Align::kRight},
               {"busbw", Align::kRight}});
  const std::size_t shown = std::min(all.collectives.size(), kMostShown);
  for (std::size_t i = 0; i < shown; ++i) {
    const explore::TracedCollectives& one = all.collectives[i];
    table.add_row({name_of(one), one.ranks > 0 ? std::to_string(one.ranks) : "?",
                   fmt::format("{:g}", one.per_step), to_string(one.time), to_string(one.shortest),
                   to_string(one.exposed), one.bus_bandwidth ? to_string(*one.bus_bandwidth) : ""});
  }
  fmt::print("{}\n", table.to_string());
  if (shown < all.collectives.size()) {
    fmt::print("and {} more kinds of collectives, which are exposed less\n\n",
               all.collectives.size() - shown);
  }
}

void print_parts(const explore::TraceExplanation& all) {
  Table parts({{"time of the GPU"}, {"a step", Align::kRight}, {"share", Align::kRight}});
  const auto add = [&](const std::string& what, Duration time) {
    parts.add_row({what, to_string(time), percent(all.share(time))});
  };
  add("compute", all.compute);
  add("exposed communication", all.exposed);
  if (all.cause) {
    add("  transfer", all.transfer);
    add("  latency", all.latency);
    add("  waiting", all.waiting);
  }
  add("idle", all.idle);
  fmt::print("{}\n", parts.to_string());
}

}  // namespace

std::optional<explore::TraceExplanation> explain_if_trace(Session& session,
                                                          const std::string& path) {
  std::error_code status;
  if (!std::filesystem::is_regular_file(path, status)) {
    return std::nullopt;
  }
  ProgressBar bar("reading the trace", session.progress_elsewhere());
  std::string content = read_file(path);
  if (is_gzip(content)) {
    content = gunzip(content, path);
  }
  if (!plan::is_trace(content)) {
    bar.clear();
    return std::nullopt;
  }
  require_utf8(content, path);
  explore::TraceExplanation explanation = explore::explain_trace(plan::read_trace(path, content));
  bar.clear();
  session.add_input(path);
  return explanation;
}

nlohmann::json to_json(const explore::TraceExplanation& all) {
  nlohmann::json collectives = nlohmann::json::array();
  for (const explore::TracedCollectives& one : all.collectives) {
    collectives.push_back(json_of(one));
  }
  nlohmann::json gains = nlohmann::json::array();
  for (const explore::TraceGain& gain : all.gains) {
    gains.push_back(
        {{"what", gain.what}, {"step_time_s", gain.step_time.seconds()}, {"gain", gain.gain}});
  }
  return {{"steps", all.steps},
          {"step_time_s", all.step_time.seconds()},
          {"compute_s", all.compute.seconds()},
          {"communication_s", all.communication.seconds()},
          {"exposed_s", all.exposed.seconds()},
          {"idle_s", all.idle.seconds()},
          {"exposed_transfer_s", all.transfer.seconds()},
          {"exposed_latency_s", all.latency.seconds()},
          {"exposed_waiting_s", all.waiting.seconds()},
          {"bound", explore::name_of(all.bound)},
          {"communication_bound", all.bound == explore::TraceBound::kCommunication},
          {"cause", all.cause ? nlohmann::json(explore::name_of(*all.cause)) : nullptr},
          {"verdict", all.verdict},
          {"collectives", collectives},
          {"gains", gains},
          {"notes", all.notes}};
}

void print(const explore::TraceExplanation& all, const std::string& path) {
  fmt::print("{}: {}, {} each\n\n", path, counted(all.steps, "step"), to_string(all.step_time));
  print_parts(all);
  print_collectives(all);
  if (!all.gains.empty()) {
    Table gains({{"what if"}, {"step time", Align::kRight}, {"gain", Align::kRight}});
    for (const explore::TraceGain& gain : all.gains) {
      gains.add_row({gain.what, to_string(gain.step_time), percent(gain.gain)});
    }
    fmt::print("{}\n", gains.to_string());
  }
  fmt::print("verdict         {}\n", all.verdict);
  for (const std::string& note : all.notes) {
    fmt::print("note            {}\n", note);
  }
}

}  // namespace rackrail::cli
