// Executors of all ranks of one plan in this process, and graphs written by hand for them.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "plan/plan.hpp"
#include "runtime/executor.hpp"

namespace rackrail::runtime {

/// One thread per rank; rethrows the first exception by rank once all have ended.
inline void on_every_rank(std::size_t ranks, const std::function<void(Rank)>& body) {
  std::vector<std::exception_ptr> errors(ranks);
  std::vector<std::thread> threads;
  for (std::size_t r = 0; r < ranks; ++r) {
    threads.emplace_back([&, r] {
      try {
        body(Rank(r));
      } catch (...) {
        errors[r] = std::current_exception();
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  for (const std::exception_ptr& error : errors) {
    if (error) {
      std::rethrow_exception(error);
    }
  }
}

/// Transports that are connected to each other.
inline std::vector<std::unique_ptr<Transport>> joined_transports(const std::string& name,
                                                                 std::size_t ranks) {
  if (name == "in-process") {
    return make_in_process_transports(ranks);
  }
  std::vector<std::unique_ptr<Transport>> transports;
  std::vector<std::vector<std::byte>> addresses;
  for (std::size_t r = 0; r < ranks; ++r) {
    transports.push_back(make_transport(name));
    addresses.push_back(transports.back()->address());
  }
  for (std::size_t r = 0; r < ranks; ++r) {
    transports[r]->connect(Rank(r), addresses);
  }
  return transports;
}

/// One bucket per entry of `elements`; all use the one schedule.
inline plan::Plan plan_of(plan::TransferGraph graph, const std::vector<std::int64_t>& elements,
                          std::int64_t slice_elements) {
  plan::Plan plan;
  plan.name = "test";
  for (std::size_t r = 0; r < graph.rank_count(); ++r) {
    plan.rank_names.push_back("rank" + std::to_string(r));
  }
  plan.schedules.push_back(std::move(graph));
  for (std::size_t b = 0; b < elements.size(); ++b) {
    plan::Bucket bucket;
    bucket.tensors = {static_cast<std::uint32_t>(b)};
    bucket.elements = elements[b];
    bucket.slice_elements = slice_elements;
    plan.buckets.push_back(bucket);
  }
  plan.seed = 11;
  return plan;
}

/// Ring reduce-scatter, then ring all-gather.
inline plan::TransferGraph ring(std::size_t ranks, const plan::Codec& codec = {}) {
  plan::TransferGraph graph("ring", plan::Collective::kAllReduce, ranks,
                            std::vector<std::uint32_t>(ranks, 1));
  const std::uint8_t code = graph.add_codec(codec);
  std::vector<std::vector<TransferId>> before(ranks);  // by chunk: the hop before, if any
  for (std::size_t hop = 0; hop < 2 * (ranks - 1); ++hop) {
    for (std::size_t chunk = 0; chunk < ranks; ++chunk) {
      plan::Transfer t;
      t.src = Rank((chunk + hop) % ranks);
      t.dst = Rank((chunk + hop + 1) % ranks);
      t.chunk_begin = static_cast<std::uint32_t>(chunk);
      t.op = hop < ranks - 1 ? plan::TransferOp::kReduce : plan::TransferOp::kCopy;
      t.codec = code;
      before[chunk] = {graph.add_transfer(t, before[chunk])};
    }
  }
  return graph;
}

/// Every rank sends all others what it has, and all add: a mutual sum.
inline plan::TransferGraph one_shot(std::size_t ranks) {
  plan::TransferGraph graph("one-shot", plan::Collective::kAllReduce, ranks, {1});
  for (std::size_t src = 0; src < ranks; ++src) {
    for (std::size_t dst = 0; dst < ranks; ++dst) {
      if (src != dst) {
        graph.add_transfer({.src = Rank(src), .dst = Rank(dst), .op = plan::TransferOp::kReduce},
                           {});
      }
    }
  }
  graph.add_mutual_sum(TransferId(0), static_cast<std::uint32_t>(ranks * (ranks - 1)));
  return graph;
}

/// All others add into rank 0, which copies the sum to them.
inline plan::TransferGraph star(std::size_t ranks, const plan::Codec& codec = {}) {
  plan::TransferGraph graph("star", plan::Collective::kAllReduce, ranks, {1});
  const std::uint8_t code = graph.add_codec(codec);
  std::vector<TransferId> additions;
  for (std::size_t r = 1; r < ranks; ++r) {
    plan::Transfer t;
    t.src = Rank(r);
    t.dst = Rank(0);
    t.op = plan::TransferOp::kReduce;
    t.codec = code;
    additions.push_back(graph.add_transfer(t, {}));
  }
  for (std::size_t r = 1; r < ranks; ++r) {
    plan::Transfer t;
    t.src = Rank(0);
    t.dst = Rank(r);
    t.codec = code;
    graph.add_transfer(t, additions);
  }
  return graph;
}

/// Transports and executors of all ranks.
struct Ranks {
  explicit Ranks(const plan::Plan& plan, const std::string& transport = "in-process",
                 const ExecutorOptions& options = {})
      : transports(joined_transports(transport, plan.rank_count())) {
    for (std::size_t r = 0; r < plan.rank_count(); ++r) {
      executors.push_back(std::make_unique<Executor>(plan, Rank(r), *transports[r], options));
    }
  }
  ~Ranks() {
    executors.clear();
    // All at once, as ranks do: an orderly end needs the peers' help.
    on_every_rank(transports.size(), [this](Rank rank) { transports[rank.index()]->close(1_s); });
  }
  Ranks(const Ranks&) = delete;
  Ranks& operator=(const Ranks&) = delete;

  Executor& operator[](Rank rank) { return *executors[rank.index()]; }

  std::vector<std::unique_ptr<Transport>> transports;
  std::vector<std::unique_ptr<Executor>> executors;
};

}  // namespace rackrail::runtime
