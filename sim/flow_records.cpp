#include "sim/flow_records.hpp"

#include <algorithm>
#include <unordered_map>

namespace rackrail::sim {

std::vector<FlowRecord> flow_records(const Engine& engine, Time from, std::uint32_t first_run) {
  std::vector<FlowRecord> records;
  std::unordered_map<std::uint32_t, std::size_t> by_activity;
  for (std::uint32_t i = 0; i < engine.activities().size(); ++i) {
    const Activity& activity = engine.activities()[i];
    const Task& task = activity.task;
    if (task.kind == TaskKind::kWire && task.run >= first_run) {
      const Engine::Message message = engine.message(task);
      by_activity.emplace(i, records.size());
      records.push_back({.bucket = task.run - first_run,
                         .slice = task.slice,
                         .src = task.rank,
                         .dst = message.dst,
                         .bytes = message.bytes,
                         .start = Duration(activity.start - from),
                         .sent = Duration(activity.end - from),
                         .delivered = Duration(activity.end - from),
                         .links = message.route->links,
                         .shares = message.route->shares});
    } else if (task.kind == TaskKind::kLatency && task.run >= first_run) {
      records[by_activity.at(activity.cause)].delivered = Duration(activity.end - from);
    }
  }
  for (const auto& [activity, piece] : engine.moved_pieces()) {
    if (const auto record = by_activity.find(activity); record != by_activity.end()) {
      records[record->second].pieces.push_back(
          {Duration(piece.begin - from), Duration(piece.end - from), piece.bytes});
    }
  }
  return records;
}

LinkTimeline link_timeline(const std::vector<FlowRecord>& flows, const topology::Topology& topology,
                           std::size_t bins) {
  LinkTimeline timeline;
  Duration end;
  std::vector<std::size_t> place(topology.link_count(), SIZE_MAX);
  for (const FlowRecord& flow : flows) {
    end = std::max(end, flow.delivered);
    for (const LinkId link : flow.links) {
      if (place[link.index()] == SIZE_MAX) {
        place[link.index()] = timeline.links.size();
        timeline.links.push_back(link);
      }
    }
  }
  const auto bin = (end.picoseconds() + static_cast<Time>(bins) - 1) / static_cast<Time>(bins);
  timeline.bin = Duration(std::max<Time>(bin, 1));
  timeline.utilization.resize(bins * timeline.links.size());
  const auto add = [&](const FlowRecord& flow, const FlowRecord::Piece& piece) {
    const Duration time = std::max(piece.end - piece.begin, Duration(1));
    for (auto i = static_cast<std::size_t>(piece.begin / timeline.bin);
         i < bins && timeline.bin * static_cast<std::int64_t>(i) < piece.begin + time; ++i) {
      const Duration begin = timeline.bin * static_cast<std::int64_t>(i);
      const Duration inside =
          std::min(begin + timeline.bin, piece.begin + time) - std::max(begin, piece.begin);
      const double bytes = piece.bytes * (inside / time);
      for (std::size_t hop = 0; hop < flow.links.size(); ++hop) {
        const LinkId link = flow.links[hop];
        const auto rate = static_cast<double>(topology.link(link).bandwidth.bytes_per_second());
        const double share = flow.shares.empty() ? 1 : flow.shares[hop];
        timeline.utilization[i * timeline.links.size() + place[link.index()]] +=
            share * bytes / (rate * timeline.bin.seconds());
      }
    }
  };
  for (const FlowRecord& flow : flows) {
    if (flow.pieces.empty()) {
      add(flow, {flow.start, flow.sent, static_cast<double>(flow.bytes.count())});
    }
    for (const FlowRecord::Piece& piece : flow.pieces) {
      add(flow, piece);
    }
  }
  return timeline;
}

}  // namespace rackrail::sim
