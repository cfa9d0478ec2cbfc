#include "runtime/parameter_server/served_parts.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "base/error.hpp"

namespace rackrail::runtime {

namespace {

constexpr const char* kSchedule = "parameter-server";

std::size_t missing(const std::vector<std::optional<TransferId>>& transfers) {
  return static_cast<std::size_t>(std::ranges::count(transfers, std::optional<TransferId>()));
}

[[noreturn]] void reject(const plan::Plan& plan, std::string found) {
  throw PlanError(ErrorContext{plan.name, "schedules", std::move(found),
                               std::string(kSchedule) +
                                   " for all buckets: each range has a server that all others push "
                                   "to and pull from"});
}

}  // namespace

ServedParts::ServedParts(const plan::Plan& plan) : messages_(plan.buckets.size()) {
  for (std::size_t b = 0; b < plan.buckets.size(); ++b) {
    add_bucket(plan, BucketId(b));
  }
}

void ServedParts::add_bucket(const plan::Plan& plan, BucketId bucket) {
  const plan::Bucket& its = plan.buckets[bucket.index()];
  const plan::TransferGraph& graph = plan.schedules.at(its.schedule);
  if (graph.name() != kSchedule) {
    reject(plan, fmt::format("bucket {} with schedule '{}'", bucket.value(), graph.name()));
  }
  const std::size_t ranks = graph.rank_count();
  std::map<std::uint32_t, std::size_t> part_at;  // first chunk → part
  for (std::size_t i = 0; i < graph.transfers().size(); ++i) {
    const plan::Transfer& transfer = graph.transfers()[i];
    const plan::ElementRange range = graph.range(transfer, its.elements);
    if (range.size() == 0) {
      continue;
    }
    if (transfer.codec != 0) {
      throw ConfigError(ErrorContext{plan.name, "schedules",
                                     "an asynchronous parameter server with a codec",
                                     "--codec none: gradients of one rank and parameters move as "
                                     "FP32"});
    }
    const bool is_push = transfer.op == plan::TransferOp::kReduce;
    const Rank server = is_push ? transfer.dst : transfer.src;
    const Rank worker = is_push ? transfer.src : transfer.dst;
    const auto [at, is_new] = part_at.try_emplace(transfer.chunk_begin, parts_.size());
    if (is_new) {
      ServedPart part{.bucket = bucket,
                      .server = server,
                      .range = range,
                      .pushes = {},
                      .pulls = {},
                      .order = {server}};
      part.slices = static_cast<std::uint32_t>(plan::slice_count(range, its.slice_elements));
      part.pushes.resize(ranks);
      part.pulls.resize(ranks);
      parts_.push_back(std::move(part));
    }
    ServedPart& part = parts_[at->second];
    auto& transfers = is_push ? part.pushes : part.pulls;
    if (part.server != server || part.range.size() != range.size() ||
        transfers[worker.index()].has_value()) {
      reject(plan, fmt::format("bucket {} with another use of transfer {}", bucket.value(), i));
    }
    transfers[worker.index()] = TransferId(i);
    if (is_push) {
      part.order.push_back(worker);
    }
    messages_[bucket.index()].emplace(
        static_cast<std::uint32_t>(i),
        PartMessage{static_cast<std::uint32_t>(at->second), is_push, worker});
  }
  std::int64_t end = 0;
  for (const auto& [chunk, index] : part_at) {
    const ServedPart& part = parts_[index];
    // The server neither pushes to itself nor pulls.
    if (missing(part.pushes) != 1 || missing(part.pulls) != 1 || part.range.begin != end) {
      reject(plan, fmt::format("bucket {} without all pushes and pulls of its chunk {}",
                               bucket.value(), chunk));
    }
    end = part.range.end;
  }
  if (end != its.elements) {
    reject(plan, fmt::format("bucket {} of which nobody serves a part", bucket.value()));
  }
}

std::optional<PartMessage> ServedParts::find(std::uint32_t bucket, std::uint32_t transfer) const {
  if (bucket >= messages_.size()) {
    return std::nullopt;
  }
  const auto it = messages_[bucket].find(transfer);
  return it == messages_[bucket].end() ? std::nullopt : std::optional(it->second);
}

}  // namespace rackrail::runtime
