#include "runtime/rails.hpp"

#include <algorithm>
#include <set>
#include <span>

namespace rackrail::runtime {

PlanRails::PlanRails(const plan::Plan& plan, Rank self) : self_(self) {
  for (std::size_t i = 0; i < plan.adapters.size(); ++i) {
    for (const LinkId link : plan.adapters[i].out) {
      sends_by_.emplace(link, i);
    }
    for (const LinkId link : plan.adapters[i].in) {
      receives_by_.emplace(link, i);
    }
  }
  if (plan.adapters.empty()) {
    return;
  }
  std::set<std::uint32_t> used;
  for (const plan::Bucket& bucket : plan.buckets) {
    used.insert(bucket.schedule);
  }
  for (const std::uint32_t schedule : used) {
    const plan::TransferGraph& graph = plan.schedules.at(schedule);
    for (const plan::Transfer& transfer : graph.transfers()) {
      if (transfer.src != self && transfer.dst != self) {
        continue;
      }
      if (const std::optional<Ends> ends = ends_of(graph, transfer)) {
        numbers_[transfer.src == self ? transfer.dst : transfer.src][*ends] = 0;
      }
    }
  }
  for (auto& [peer, rails] : numbers_) {
    std::uint32_t number = 0;
    for (auto& [ends, own_number] : rails) {
      own_number = ++number;
      const auto [own, other] = self_ < peer ? ends : Ends{ends.second, ends.first};
      all_.push_back({.peer = peer,
                      .number = number,
                      .adapter = plan.adapters[own].name,
                      .devices = plan.adapters[own].devices,
                      .peer_adapter = plan.adapters[other].name});
    }
  }
}

std::uint32_t PlanRails::number_of(const plan::TransferGraph& graph,
                                   const plan::Transfer& transfer) const {
  const auto rails = numbers_.find(transfer.src == self_ ? transfer.dst : transfer.src);
  const std::optional<Ends> ends = ends_of(graph, transfer);
  return rails == numbers_.end() || !ends ? 0 : rails->second.at(*ends);
}

std::optional<PlanRails::Ends> PlanRails::ends_of(const plan::TransferGraph& graph,
                                                  const plan::Transfer& transfer) const {
  const std::span<const LinkId> route = graph.routes()[transfer.route.index()];
  const auto first = std::find_if(route.begin(), route.end(),
                                  [this](LinkId link) { return sends_by_.contains(link); });
  const auto last = std::find_if(route.rbegin(), route.rend(),
                                 [this](LinkId link) { return receives_by_.contains(link); });
  if (first == route.end() || last == route.rend()) {
    return std::nullopt;
  }
  const std::size_t sender = sends_by_.at(*first);
  const std::size_t receiver = receives_by_.at(*last);
  return transfer.src < transfer.dst ? Ends{sender, receiver} : Ends{receiver, sender};
}

}  // namespace rackrail::runtime
