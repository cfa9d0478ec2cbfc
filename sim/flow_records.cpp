#include "sim/flow_records.hpp"

#include <algorithm>
#include <unordered_map>

#include "sim/results.hpp"

namespace rackrail::sim {

std::vector<FlowRecord> flow_records(const Engine& engine, Time from) {
  std::vector<FlowRecord> records;
  std::unordered_map<std::uint32_t, std::size_t> by_activity;
  std::unordered_map<std::uint32_t, std::uint32_t> buckets;  // by collective
  for (const std::uint32_t run : engine.kept()) {
    buckets.emplace(run, static_cast<std::uint32_t>(buckets.size()));
  }
  std::uint32_t number = engine.first_activity();
  for (const Activity& activity : engine.activities()) {
    const Task& task = activity.task;
    const bool is_message = task.kind == TaskKind::kWire || task.kind == TaskKind::kLatency;
    const auto bucket = is_message ? buckets.find(task.run) : buckets.end();
    if (bucket != buckets.end() && task.kind == TaskKind::kWire) {
      const Engine::Message message = engine.message(task);
      by_activity.emplace(number, records.size());
      records.push_back({.bucket = bucket->second,
                         .slice = task.slice,
                         .src = task.rank,
                         .dst = message.dst,
                         .bytes = message.bytes,
                         .start = Duration(activity.start - from),
                         .sent = Duration(activity.end - from),
                         .delivered = Duration(activity.end - from),
                         .links = message.route->links,
                         .shares = message.route->shares});
    } else if (bucket != buckets.end()) {
      records[by_activity.at(activity.cause)].delivered = Duration(activity.end - from);
    }
    ++number;
  }
  return records;
}

namespace {

/// Adds up what links carry in bins of equal length.
class Bins {
 public:
  Bins(const topology::Topology& topology, LinkTimeline& timeline, std::size_t count)
      : timeline_(timeline), count_(count), place_(topology.link_count(), SIZE_MAX) {}

  void show(LinkId link) {
    if (place_[link.index()] == SIZE_MAX) {
      place_[link.index()] = timeline_.links.size();
      timeline_.links.push_back(link);
    }
  }
  /// Of `bytes` that the link carried evenly from `begin` to `end`.
  void add(std::vector<double>& sums, LinkId link, Duration begin, Duration end, double bytes) {
    const Duration time = std::max(end - begin, Duration(1));
    const Duration bin = timeline_.bin;
    const auto first = begin < Duration() ? std::size_t{0} : static_cast<std::size_t>(begin / bin);
    for (auto i = first; i < count_ && bin * static_cast<std::int64_t>(i) < begin + time; ++i) {
      const Duration start = bin * static_cast<std::int64_t>(i);
      const Duration inside = std::min(start + bin, begin + time) - std::max(start, begin);
      sums[i * timeline_.links.size() + place_[link.index()]] += bytes * (inside / time);
    }
  }

 private:
  LinkTimeline& timeline_;
  std::size_t count_;
  std::vector<std::size_t> place_;  ///< by link
};

/// When the last message is there; where there is none, when all ends.
Duration last_delivery(const Records& records) {
  Duration end;
  for (const FlowRecord& flow : records.flow_records) {
    end = std::max(end, flow.delivered);
  }
  return end > Duration() ? end : records.to - records.from;
}

}  // namespace

LinkTimeline link_timeline(const Records& records, const topology::Topology& topology,
                           const Disturbances& disturbances, std::size_t bins) {
  LinkTimeline timeline;
  Bins sums(topology, timeline, bins);
  for (const FlowRecord& flow : records.flow_records) {
    for (const LinkId link : flow.links) {
      sums.show(link);
    }
  }
  // Links whose pieces are known one by one need not be guessed from messages.
  std::vector<bool> is_known(topology.link_count());
  bool has_background = false;
  for (const LinkPiece& piece : records.link_pieces) {
    sums.show(piece.link);
    is_known[piece.link.index()] = is_known[piece.link.index()] || !piece.is_background;
    has_background = has_background || piece.is_background;
  }
  const Time end = last_delivery(records).picoseconds();
  const auto bin = (end + static_cast<Time>(bins) - 1) / static_cast<Time>(bins);
  timeline.bin = Duration(std::max<Time>(bin, 1));
  timeline.utilization.resize(bins * timeline.links.size());
  timeline.background.resize(has_background ? timeline.utilization.size() : 0);
  for (const LinkPiece& piece : records.link_pieces) {
    sums.add(piece.is_background ? timeline.background : timeline.utilization, piece.link,
             Duration(piece.begin), Duration(piece.end), piece.bytes);
  }
  for (const FlowRecord& flow : records.flow_records) {
    for (std::size_t hop = 0; hop < flow.links.size(); ++hop) {
      const double share = flow.shares.empty() ? 1 : flow.shares[hop];
      if (!is_known[flow.links[hop].index()]) {
        sums.add(timeline.utilization, flow.links[hop], flow.start, flow.sent,
                 share * static_cast<double>(flow.bytes.count()));
      }
    }
  }
  const std::vector<double> possible =
      possible_bytes(topology, disturbances, timeline.links, records.from, timeline.bin, bins);
  for (std::vector<double>* carried : {&timeline.utilization, &timeline.background}) {
    for (std::size_t i = 0; i < carried->size(); ++i) {
      (*carried)[i] = possible[i] > 0 ? (*carried)[i] / possible[i] : 0;
    }
  }
  return timeline;
}

}  // namespace rackrail::sim
