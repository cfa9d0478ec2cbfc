#include "sim/binding_links.hpp"

#include <algorithm>
#include <cstddef>
#include <vector>

#include "sim/results.hpp"

namespace rackrail::sim {

namespace {

/// A message whose binding link is looked for.
struct Sought {
  const Activity* activity;
  Time start;
  Time end;
  std::vector<LinkId> links;
  std::vector<double> bytes;  ///< by link, in the time of the message
  Bytes own;
};

std::vector<Sought> sought_messages(const Engine& engine,
                                    std::span<const Activity* const> activities) {
  std::vector<Sought> messages;
  for (const Activity* one : activities) {
    const Activity& activity = *one;
    if (activity.task.kind != TaskKind::kWire || activity.end <= activity.start) {
      continue;
    }
    const std::span<const LinkId> links = engine.message(activity.task).route->links;
    if (!links.empty()) {
      messages.push_back({one,
                          activity.start,
                          activity.end,
                          {links.begin(), links.end()},
                          std::vector<double>(links.size()),
                          engine.message(activity.task).bytes});
    }
  }
  std::sort(messages.begin(), messages.end(),
            [](const Sought& a, const Sought& b) { return a.start < b.start; });
  return messages;
}

/// Adds what `link` carried from `begin` to `end` to all messages that pass it in that time.
void add(std::vector<Sought>& messages, Time begin, Time end, LinkId link, double bytes) {
  auto message = std::partition_point(messages.begin(), messages.end(),
                                      [begin](const Sought& one) { return one.end <= begin; });
  for (; message != messages.end() && message->start < end; ++message) {
    const auto place = std::find(message->links.begin(), message->links.end(), link);
    if (place != message->links.end()) {
      const Time together = std::min(end, message->end) - std::max(begin, message->start);
      message->bytes[static_cast<std::size_t>(place - message->links.begin())] +=
          bytes * static_cast<double>(together) / static_cast<double>(end - begin);
    }
  }
}

}  // namespace

BindingLinks::BindingLinks(const Engine& engine, const topology::Topology& topology,
                           const Disturbances& disturbances,
                           std::span<const Activity* const> activities, Time from, Time to) {
  std::vector<Sought> messages = sought_messages(engine, activities);
  if (messages.empty()) {
    return;
  }
  for (const Activity& activity : engine.activities()) {
    if (activity.task.kind != TaskKind::kWire || activity.end <= messages.front().start ||
        activity.start >= messages.back().end || activity.end <= activity.start) {
      continue;
    }
    const Engine::Message moved = engine.message(activity.task);
    for (std::size_t i = 0; i < moved.route->links.size(); ++i) {
      add(messages, activity.start, activity.end, moved.route->links[i],
          share_of(*moved.route, i) * static_cast<double>(moved.bytes.count()));
    }
  }
  const std::vector<double>& others = engine.carried().others;
  for (const Sought& message : messages) {
    const double share_of_step =
        static_cast<double>(message.end - message.start) / static_cast<double>(to - from);
    double most = -1;
    for (std::size_t i = 0; i < message.links.size(); ++i) {
      const std::size_t link = message.links[i].index();
      const double bytes =
          message.bytes[i] + (link < others.size() ? share_of_step * others[link] : 0);
      const double rate = mean_rate(topology, disturbances, message.links[i],
                                    Duration(message.start), Duration(message.end));
      const Bandwidth of_one = topology.link(message.links[i]).flow_bandwidth;
      const double share =
          std::max(rate > 0 ? bytes / rate : 0,
                   of_one > Bandwidth(0) ? static_cast<double>(message.own.count()) /
                                               static_cast<double>(of_one.bytes_per_second())
                                         : 0);
      if (share > most) {
        most = share;
        links_[message.activity] = message.links[i];
      }
    }
  }
}

std::optional<LinkId> BindingLinks::of(const Activity* activity) const {
  const auto known = links_.find(activity);
  return known == links_.end() ? std::nullopt : std::optional(known->second);
}

}  // namespace rackrail::sim
