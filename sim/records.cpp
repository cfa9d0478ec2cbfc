// What the engine recorded, in the words of results.
#include "sim/records.hpp"

#include <algorithm>

#include "sim/binding_links.hpp"
#include "sim/flow_records.hpp"
#include "sim/placed_plan.hpp"
#include "sim/results.hpp"

namespace rackrail::sim {

namespace {

/// What a message took longer than it would have taken alone.
Duration waited(const Engine& engine, const Activity& activity, const topology::Topology& topology,
                const Disturbances& disturbances) {
  if (activity.task.kind != TaskKind::kWire) {
    return Duration();
  }
  const Engine::Message message = engine.message(activity.task);
  Duration alone;
  for (std::size_t i = 0; i < message.route->links.size(); ++i) {
    const double bytes = share_of(*message.route, i) * static_cast<double>(message.bytes.count());
    const double rate = mean_rate(topology, disturbances, message.route->links[i],
                                  Duration(activity.start), Duration(activity.end));
    if (rate > 0) {
      alone = std::max(alone, Duration::from_seconds(bytes / rate));
    }
  }
  if (message.route->rate_cap > 0) {
    const auto bytes = static_cast<double>(message.bytes.count());
    alone = std::max(alone, Duration::from_seconds(bytes / message.route->rate_cap));
  }
  return std::max(Duration(), Duration(activity.end - activity.start) - alone);
}

std::vector<PathPiece> critical_path(const Engine& engine, const topology::Topology& topology,
                                     const Disturbances& disturbances, Time from,
                                     std::uint32_t last) {
  std::vector<const Activity*> on_path;
  for (const Activity* at = engine.activity(last); at != nullptr && at->end > from;
       at = engine.activity(at->cause)) {
    if (at->end > at->start) {
      on_path.push_back(at);
    }
  }
  if (on_path.empty()) {
    return {};
  }
  const BindingLinks binding(engine, topology, disturbances, on_path, from, on_path.front()->end);
  std::vector<PathPiece> path;
  for (const Activity* at : on_path) {
    const Activity& activity = *at;
    const Time start = std::max(activity.start, from) - from;
    const std::optional<LinkId> link = binding.of(at);
    std::string what = engine.describe(activity.task);
    if (link) {
      what += " on " + topology.link_name(*link);
    }
    if (path.empty() || path.back().what != what) {
      path.push_back({.what = what,
                      .end = Duration(activity.end - from),
                      .kind = std::string(name_of(activity.task.kind)),
                      .link = link});
    }
    path.back().start = Duration(start);
    path.back().waited += waited(engine, activity, topology, disturbances);
  }
  std::reverse(path.begin(), path.end());
  return path;
}

/// The first of those that end last.
Rank last_to_end(const Engine& engine, std::span<const Rank> ranks) {
  return *std::max_element(ranks.begin(), ranks.end(), [&](Rank a, Rank b) {
    return engine.watched_times(a).end < engine.watched_times(b).end;
  });
}

}  // namespace

Records records(const Engine& engine, const topology::Topology& topology,
                const SimulationOptions& options, std::span<const Rank> ranks,
                const RecordedTime& time) {
  Records result{.from = Duration(time.from), .to = Duration(time.to)};
  if (options.record_timeline) {
    result.timeline = timeline(engine, time.from, time.shown_until, ranks);
  }
  if (options.record_flows) {
    result.flow_records = flow_records(engine, time.from);
    for (LinkPiece piece : engine.link_pieces()) {
      if (piece.end > time.from) {
        piece.begin -= time.from;
        piece.end -= time.from;
        result.link_pieces.push_back(piece);
      }
    }
  }
  if (options.record_critical_path) {
    result.critical_path =
        critical_path(engine, topology, options.disturbances, time.from,
                      engine.watched_times(last_to_end(engine, ranks)).last_activity);
  }
  return result;
}

}  // namespace rackrail::sim
