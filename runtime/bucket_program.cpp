#include "runtime/bucket_program.hpp"

#include <fmt/format.h>

#include <map>
#include <set>
#include <utility>

#include "base/random.hpp"
#include "plan/mutual_sum.hpp"

namespace rackrail::runtime {

namespace {

bool same_range(const plan::Transfer& a, const plan::Transfer& b) {
  return a.chunk_begin == b.chunk_begin && a.chunk_count == b.chunk_count;
}

}  // namespace

BucketProgram::BucketProgram(const plan::Plan& plan, BucketId number, Rank self)
    : graph(plan.schedules.at(plan.buckets.at(number.index()).schedule)),
      bucket(number),
      slice_elements(plan.buckets[number.index()].slice_elements),
      sends_to(graph.rank_count()) {
  const std::int64_t elements = plan.buckets[number.index()].elements;
  const std::vector<plan::EncodingSource> sources = plan::encoding_sources(graph);
  std::unordered_map<std::uint32_t, std::uint32_t> last_addition;  // chunk → graph id
  const std::vector<RouteId> route_of = plan::distinct_routes(graph);
  std::map<std::pair<Rank, RouteId>, std::size_t> lanes;  // of sends_to[destination]
  const auto wait_for = [&](std::uint32_t local_index, TransferId before) {
    const auto it = local.find(before.value());
    if (it == local.end()) {
      return;  // moves nothing
    }
    LocalTransfer& t = transfers[local_index];
    const bool whole = !same_range(graph.transfer(before), graph.transfer(TransferId(t.id)));
    ++(whole ? t.whole_waits : t.slice_waits);
    dependents[it->second].push_back({local_index, whole});
  };
  for (std::size_t i = 0; i < graph.transfers().size(); ++i) {
    const TransferId id(i);
    const plan::Transfer& transfer = graph.transfer(id);
    if (transfer.src != self && transfer.dst != self) {
      continue;
    }
    LocalTransfer t;
    t.id = id.value();
    t.is_send = transfer.src == self;
    t.peer = t.is_send ? transfer.dst : transfer.src;
    t.op = transfer.op;
    t.codec = transfer.codec;
    t.rate = graph.rate(transfer.route);
    t.range = graph.range(transfer, elements);
    t.slices = static_cast<std::uint32_t>(plan::slice_count(t.range, slice_elements));
    if (t.slices == 0) {
      continue;
    }
    open_slices += t.slices;
    const auto index = static_cast<std::uint32_t>(transfers.size());
    local.emplace(t.id, index);
    const plan::Codec& codec = graph.codecs()[t.codec];
    if (t.is_send && codec.is_lossy()) {
      t.encoding = sources[i].kind;
      if (t.encoding != plan::EncodingKind::kOwn) {
        t.encoding_from = local.at(sources[i].from.value());
        transfers[t.encoding_from].keeps_encoding = true;
      } else if (codec.has_error_feedback()) {
        t.residual = fmt::format("bucket{}/{}/{}+{}", number.value(),
                                 t.op == plan::TransferOp::kReduce ? "reduce" : "copy",
                                 t.range.begin, t.range.size());
      }
    }
    transfers.push_back(std::move(t));
    dependents.emplace_back();
    if (transfers[index].is_send) {
      auto& routes = sends_to[transfer.dst.index()];
      const auto [lane, is_new] =
          lanes.try_emplace({transfer.dst, route_of[transfer.route.index()]}, routes.size());
      if (is_new) {
        routes.emplace_back();
      }
      routes[lane->second].push_back(index);
      for (const TransferId before : graph.dependencies(id)) {
        wait_for(index, before);
      }
    } else if (transfer.op == plan::TransferOp::kReduce) {
      // Additions into a chunk are applied in the order of their ids, so that sums are the same in
      // every run.
      std::set<std::uint32_t> before;
      for (std::uint32_t c = 0; c < transfer.chunk_count; ++c) {
        const auto [it, added] = last_addition.try_emplace(transfer.chunk_begin + c, id.value());
        if (!added) {
          before.insert(it->second);
          it->second = id.value();
        }
      }
      for (const std::uint32_t addition : before) {
        wait_for(index, TransferId(addition));
      }
    }
  }
  for (const plan::TransferGroup& sum : graph.mutual_sums()) {
    order_mutual_sum(sum, self);
  }
}

// What arrives waits until this rank has sent what it had; and what lower ranks sent is added up
// before it is added to this rank's own.
void BucketProgram::order_mutual_sum(const plan::TransferGroup& sum, Rank self) {
  std::vector<std::uint32_t> received;
  std::vector<std::uint32_t> sent;
  for (std::uint32_t i = 0; i < sum.count; ++i) {
    if (const auto found = local.find(sum.first.value() + i); found != local.end()) {
      (transfers[found->second].is_send ? sent : received).push_back(found->second);
    }
  }
  for (std::size_t i = 0; i < received.size(); ++i) {
    LocalTransfer& t = transfers[received[i]];
    t.slice_waits += static_cast<std::uint32_t>(sent.size());
    for (const std::uint32_t before : sent) {
      dependents[before].push_back({received[i], false});
    }
    if (i + 1 < received.size() && transfers[received[i + 1]].peer < self) {
      t.added_with = received[i + 1];
    }
  }
}

std::uint64_t rounding_stream(const plan::Plan& plan, std::uint32_t step, BucketId bucket,
                              plan::TransferOp op, Rank self) {
  const std::uint64_t who = op == plan::TransferOp::kCopy ? 0 : 1 + self.value();
  return mix64(mix64(mix64(plan.seed ^ mix64(step)) ^ bucket.value()) ^ who);
}

}  // namespace rackrail::runtime
