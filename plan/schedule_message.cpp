#include "plan/schedule_message.hpp"

#include <algorithm>
#include <utility>

#include "plan/codec.hpp"
#include "plan/message_errors.hpp"
#include "plan/plan.pb.h"

namespace rackrail::plan {
namespace {

using message::at;
using message::fail;
using Column = google::protobuf::RepeatedField<std::uint32_t>;

template <typename Get>
void write_column(std::span<const Transfer> transfers, Get get, Column* column) {
  const bool uniform = std::all_of(transfers.begin(), transfers.end(), [&](const Transfer& t) {
    return get(t) == get(transfers.front());
  });
  const std::size_t size = uniform ? std::min<std::size_t>(1, transfers.size()) : transfers.size();
  column->Reserve(static_cast<int>(size));
  for (std::size_t i = 0; i < size; ++i) {
    column->Add(get(transfers[i]));
  }
}

void write_transfers(const TransferGraph& graph, v1::Transfers& message) {
  const auto transfers = graph.transfers();
  message.set_count(static_cast<std::uint32_t>(transfers.size()));
  for (const Transfer& t : transfers) {
    message.add_src(t.src.value());
  }
  write_column(
      transfers, [](const Transfer& t) { return t.dst.value(); }, message.mutable_dst());
  write_column(
      transfers, [](const Transfer& t) { return t.chunk_begin; }, message.mutable_chunk_begin());
  write_column(
      transfers, [](const Transfer& t) { return t.chunk_count; }, message.mutable_chunk_count());
  write_column(
      transfers, [](const Transfer& t) { return t.op == TransferOp::kReduce ? 1U : 0U; },
      message.mutable_op());
  write_column(
      transfers, [](const Transfer& t) { return std::uint32_t{t.codec}; }, message.mutable_codec());
  write_column(
      transfers, [](const Transfer& t) { return t.route.value(); }, message.mutable_route());
  for (std::size_t i = 0; i < transfers.size(); ++i) {
    const auto dependencies = graph.dependencies(TransferId(i));
    message.add_dependency_counts(static_cast<std::uint32_t>(dependencies.size()));
    for (const TransferId dependency : dependencies) {
      message.add_dependency_distances(static_cast<std::uint32_t>(i) - dependency.value());
    }
  }
}

/// How many transfers each of them skips after the one before it, and how many it has.
void write_groups(std::span<const TransferGroup> groups, Column& skips, Column& counts) {
  std::uint32_t end = 0;
  for (const TransferGroup& group : groups) {
    skips.Add(group.first.value() - end);
    counts.Add(group.count);
    end = group.first.value() + group.count;
  }
}

template <typename Add>
void read_groups(const Column& skips, const Column& counts, const char* name,
                 const TransferGraph& graph, Add add) {
  if (skips.size() != counts.size()) {
    fail(fmt::format("transfers.{}_counts", name), fmt::format("{} values", counts.size()),
         fmt::format("{}, as of {}_skips", skips.size(), name));
  }
  std::uint64_t end = 0;
  for (int i = 0; i < counts.size(); ++i) {
    const std::uint64_t first = end + skips[i];
    end = first + counts[i];
    if (counts[i] < 2 || end > graph.transfers().size()) {
      fail(fmt::format("transfers.{}_counts[{}]", name, i),
           fmt::format("{} transfers from transfer {}", counts[i], first),
           fmt::format("at least two of {}", graph.transfers().size()));
    }
    add(TransferId(static_cast<std::uint32_t>(first)), counts[i]);
  }
}

/// A column of the message: one value for all transfers, or one for each.
class ColumnReader {
 public:
  ColumnReader(const Column& column, const char* name, std::size_t count) : column_(column) {
    const auto size = static_cast<std::size_t>(column.size());
    if (size != count && !(size == 1 && count > 0)) {
      fail(fmt::format("transfers.{}", name), fmt::format("{} values", size),
           fmt::format("{} or 1", count));
    }
  }
  std::uint32_t operator[](std::size_t i) const {
    return column_.Get(column_.size() == 1 ? 0 : static_cast<int>(i));
  }

 private:
  const Column& column_;
};

void read_transfers(const v1::Transfers& message, TransferGraph& graph) {
  const std::size_t count = message.count();
  const auto exactly = [&](int size, std::uint64_t expected, const char* name) {
    if (static_cast<std::uint64_t>(size) != expected) {
      fail(fmt::format("transfers.{}", name), fmt::format("{} values", size),
           fmt::format("{}", expected));
    }
  };
  // These two are always written out, so that a short file cannot claim 2³² transfers.
  exactly(message.src_size(), count, "src");
  exactly(message.dependency_counts_size(), count, "dependency_counts");
  std::uint64_t dependency_count = 0;
  for (const std::uint32_t n : message.dependency_counts()) {
    dependency_count += n;
  }
  exactly(message.dependency_distances_size(), dependency_count, "dependency_distances");
  const ColumnReader dst(message.dst(), "dst", count);
  const ColumnReader chunk_begin(message.chunk_begin(), "chunk_begin", count);
  const ColumnReader chunk_count(message.chunk_count(), "chunk_count", count);
  const ColumnReader op(message.op(), "op", count);
  const ColumnReader codec(message.codec(), "codec", count);
  const ColumnReader route(message.route(), "route", count);

  graph.reserve(count, dependency_count);
  std::vector<TransferId> dependencies;
  int next = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const auto place = [i](const char* column) {
      return fmt::format("transfers.{}[{}]", column, i);
    };
    if (op[i] > 1) {
      fail(place("op"), fmt::format("{}", op[i]), "0 (copy) or 1 (reduce)");
    }
    if (codec[i] >= graph.codecs().size()) {
      fail(place("codec"), fmt::format("{}", codec[i]),
           fmt::format("a number below {}", graph.codecs().size()));
    }
    dependencies.clear();
    for (std::uint32_t k = 0; k < message.dependency_counts(static_cast<int>(i)); ++k, ++next) {
      const std::uint32_t distance = message.dependency_distances(next);
      if (distance == 0 || distance > i) {
        fail(fmt::format("transfers.dependency_distances[{}]", next), fmt::format("{}", distance),
             fmt::format("1 to {}, a transfer before transfer {}", i, i));
      }
      dependencies.emplace_back(i - distance);
    }
    graph.add_transfer({.src = Rank(message.src(static_cast<int>(i))),
                        .dst = Rank(dst[i]),
                        .chunk_begin = chunk_begin[i],
                        .chunk_count = chunk_count[i],
                        .op = op[i] == 1 ? TransferOp::kReduce : TransferOp::kCopy,
                        .codec = static_cast<std::uint8_t>(codec[i]),
                        .route = RouteId(route[i])},
                       dependencies);
  }
}

v1::Collective to_message(Collective collective) {
  switch (collective) {
    case Collective::kAllReduce:
      return v1::ALL_REDUCE;
    case Collective::kReduceScatter:
      return v1::REDUCE_SCATTER;
    case Collective::kAllGather:
      return v1::ALL_GATHER;
  }
  return v1::COLLECTIVE_UNSPECIFIED;
}

Collective read_collective(int value) {
  switch (value) {
    case v1::ALL_REDUCE:
      return Collective::kAllReduce;
    case v1::REDUCE_SCATTER:
      return Collective::kReduceScatter;
    case v1::ALL_GATHER:
      return Collective::kAllGather;
    default:
      fail("collective", fmt::format("{}", value), "ALL_REDUCE, REDUCE_SCATTER or ALL_GATHER");
  }
}

}  // namespace

void write_schedule(const TransferGraph& graph, v1::Schedule& message) {
  message.set_name(message::utf8(graph.name(), "schedules"));
  message.set_mechanism(message::utf8(graph.mechanism(), "schedules"));
  message.set_collective(to_message(graph.collective()));
  message.set_rank_count(static_cast<std::uint32_t>(graph.rank_count()));
  message.mutable_chunk_weights()->Add(graph.chunk_weights().begin(), graph.chunk_weights().end());
  for (const Codec& codec : graph.codecs()) {
    message.add_codecs(to_string(codec));
  }
  for (std::size_t r = 0; r < graph.routes().size(); ++r) {
    v1::Route& route = *message.add_routes();
    for (const LinkId link : graph.routes()[r]) {
      route.add_links(link.value());
    }
    route.set_rate(graph.rate(RouteId(r)).bytes_per_second());
  }
  for (const Rank owner : graph.owners()) {
    message.add_owners(owner.value());
  }
  write_transfers(graph, *message.mutable_transfers());
  v1::Transfers& transfers = *message.mutable_transfers();
  write_groups(graph.groups(), *transfers.mutable_group_skips(), *transfers.mutable_group_counts());
  write_groups(graph.mutual_sums(), *transfers.mutable_mutual_skips(),
               *transfers.mutable_mutual_counts());
}

TransferGraph read_schedule(const v1::Schedule& message, std::size_t rank_count) {
  if (message.rank_count() != rank_count) {
    fail("rank_count", fmt::format("{}", message.rank_count()),
         fmt::format("{}, as the plan has rank_names", rank_count));
  }
  TransferGraph graph(message::one_line(message.name(), "name"),
                      read_collective(message.collective()), rank_count,
                      {message.chunk_weights().begin(), message.chunk_weights().end()});
  graph.set_mechanism(message::one_line(message.mechanism(), "mechanism"));
  for (int i = 0; i < message.codecs_size(); ++i) {
    const std::string place = fmt::format("codecs[{}]", i);
    const Codec codec = at(place, [&] { return parse_codec(message.codecs(i)); });
    if (graph.add_codec(codec) != i) {
      fail(place, fmt::format("'{}'", message.codecs(i)),
           i == 0 ? "'none'" : "a codec that is not in the list before");
    }
  }
  for (int i = 0; i < message.routes_size(); ++i) {
    const auto& links = message.routes(i).links();
    std::vector<LinkId> route;
    route.reserve(static_cast<std::size_t>(links.size()));
    for (const std::uint32_t link : links) {
      route.emplace_back(link);
    }
    if (route.empty() != (i == 0)) {
      fail(fmt::format("routes[{}]", i), fmt::format("{} links", route.size()),
           i == 0 ? "none" : "at least one");
    }
    graph.add_route(std::move(route), Bandwidth(message.routes(i).rate()));
  }
  if (message.owners_size() > 0 || graph.collective() != Collective::kAllReduce) {
    std::vector<Rank> owners;
    for (const std::uint32_t owner : message.owners()) {
      owners.emplace_back(owner);
    }
    graph.set_owners(std::move(owners));
  }
  read_transfers(message.transfers(), graph);
  const v1::Transfers& transfers = message.transfers();
  read_groups(transfers.group_skips(), transfers.group_counts(), "group", graph,
              [&](TransferId first, std::uint32_t count) { graph.add_group(first, count); });
  read_groups(transfers.mutual_skips(), transfers.mutual_counts(), "mutual", graph,
              [&](TransferId first, std::uint32_t count) { graph.add_mutual_sum(first, count); });
  return graph;
}

}  // namespace rackrail::plan
