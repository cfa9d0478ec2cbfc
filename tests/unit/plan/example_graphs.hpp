#pragma once

// Small schedules, written out by hand, that the tests of this module know to be right.

#include <string>
#include <utility>
#include <vector>

#include "plan/transfer_graph.hpp"

namespace rackrail::plan::examples {

/// A transfer graph that can still be changed: what a test mutates before it builds the real one.
struct Draft {
  struct Step {
    Transfer transfer;
    std::vector<TransferId> dependencies;
  };
  std::string name = "draft";
  Collective collective = Collective::kAllReduce;
  std::size_t ranks = 0;
  std::vector<std::uint32_t> weights;
  std::vector<Codec> codecs;  ///< after codec 0, "none"
  std::vector<std::vector<LinkId>> routes;
  Bandwidth rate;  ///< of all routes
  std::vector<Rank> owners;
  std::vector<Step> steps;
  std::vector<TransferGroup> mutual_sums;

  TransferId add(int src, int dst, TransferOp op, std::vector<TransferId> dependencies,
                 std::uint32_t chunk = 0, std::uint32_t count = 1, std::uint8_t codec = 0) {
    steps.push_back({Transfer{.src = Rank(src),
                              .dst = Rank(dst),
                              .chunk_begin = chunk,
                              .chunk_count = count,
                              .op = op,
                              .codec = codec},
                     std::move(dependencies)});
    return TransferId(steps.size() - 1);
  }

  TransferGraph build() const {
    TransferGraph graph(name, collective, ranks, weights);
    for (const Codec& codec : codecs) {
      graph.add_codec(codec);
    }
    for (const auto& route : routes) {
      graph.add_route(route, rate);
    }
    for (const Step& step : steps) {
      graph.add_transfer(step.transfer, step.dependencies);
    }
    for (const TransferGroup& sum : mutual_sums) {
      graph.add_mutual_sum(sum.first, sum.count);
    }
    if (collective != Collective::kAllReduce) {
      graph.set_owners(owners);
    }
    return graph;
  }
};

/// All of these ranks send all others what they have, and add.
inline void add_mutual_sum(Draft& draft, const std::vector<int>& ranks,
                           const std::vector<TransferId>& after = {}) {
  const auto first = static_cast<std::uint32_t>(draft.steps.size());
  for (const int src : ranks) {
    for (const int dst : ranks) {
      if (src == dst) {
        continue;
      }
      std::vector<TransferId> own;
      for (const TransferId id : after) {
        if (draft.steps[id.index()].transfer.dst == Rank(src)) {
          own.push_back(id);
        }
      }
      draft.add(src, dst, TransferOp::kReduce, own);
    }
  }
  draft.mutual_sums.push_back(
      {TransferId(first), static_cast<std::uint32_t>(draft.steps.size()) - first});
}

/// Recursive doubling among four: 0 and 1, 2 and 3; then 0 and 2, 1 and 3.
inline Draft recursive_doubling() {
  Draft draft;
  draft.name = "recursive doubling";
  draft.ranks = 4;
  draft.weights = {1};
  add_mutual_sum(draft, {0, 1});
  add_mutual_sum(draft, {2, 3});
  const std::vector<TransferId> first{TransferId(0), TransferId(1), TransferId(2), TransferId(3)};
  add_mutual_sum(draft, {0, 2}, first);
  add_mutual_sum(draft, {1, 3}, first);
  return draft;
}

inline Draft one_shot(int ranks) {
  Draft draft;
  draft.name = "one-shot";
  draft.ranks = static_cast<std::size_t>(ranks);
  draft.weights = {1};
  std::vector<int> all;
  for (int rank = 0; rank < ranks; ++rank) {
    all.push_back(rank);
  }
  add_mutual_sum(draft, all);
  return draft;
}

/// Reduce-scatter and all-gather round the ring: rank r sends to rank r + 1. The codecs are indices
/// into {none, `codecs`...}.
inline Draft ring(int ranks, std::vector<Codec> codecs = {}, std::uint8_t reduce_codec = 0,
                  std::uint8_t copy_codec = 0) {
  Draft draft;
  draft.name = "ring";
  draft.ranks = static_cast<std::size_t>(ranks);
  draft.weights.assign(draft.ranks, 1);
  draft.codecs = std::move(codecs);
  // The transfer with which each chunk came to each rank last.
  std::vector<std::vector<TransferId>> arrived(draft.ranks * draft.ranks);
  for (int phase = 0; phase < 2; ++phase) {
    for (int step = 0; step + 1 < ranks; ++step) {
      for (int rank = 0; rank < ranks; ++rank) {
        const int chunk = (rank - step + phase + 2 * ranks) % ranks;
        const int next = (rank + 1) % ranks;
        const auto here =
            static_cast<std::size_t>(rank) * draft.ranks + static_cast<std::size_t>(chunk);
        const auto there =
            static_cast<std::size_t>(next) * draft.ranks + static_cast<std::size_t>(chunk);
        const TransferId id = draft.add(
            rank, next, phase == 0 ? TransferOp::kReduce : TransferOp::kCopy, arrived[here],
            static_cast<std::uint32_t>(chunk), 1, phase == 0 ? reduce_codec : copy_codec);
        arrived[there] = {id};
      }
    }
  }
  return draft;
}

/// Two ranks: one adds what the other has and sends the sum back.
inline Draft exchange() {
  Draft draft;
  draft.name = "exchange";
  draft.ranks = 2;
  draft.weights = {1};
  const TransferId there = draft.add(1, 0, TransferOp::kReduce, {});
  draft.add(0, 1, TransferOp::kCopy, {there});
  return draft;
}

/// Sum up a tree of seven ranks (1 and 2 below 0, 3 to 6 below them), then copy down.
inline Draft tree(std::uint8_t copy_codec = 0, std::vector<Codec> codecs = {}) {
  Draft draft;
  draft.name = "tree";
  draft.ranks = 7;
  draft.weights = {1};
  draft.codecs = std::move(codecs);
  const TransferId u3 = draft.add(3, 1, TransferOp::kReduce, {});
  const TransferId u4 = draft.add(4, 1, TransferOp::kReduce, {});
  const TransferId u5 = draft.add(5, 2, TransferOp::kReduce, {});
  const TransferId u6 = draft.add(6, 2, TransferOp::kReduce, {});
  const TransferId u1 = draft.add(1, 0, TransferOp::kReduce, {u3, u4});
  const TransferId u2 = draft.add(2, 0, TransferOp::kReduce, {u5, u6});
  const TransferId d1 = draft.add(0, 1, TransferOp::kCopy, {u1, u2}, 0, 1, copy_codec);
  const TransferId d2 = draft.add(0, 2, TransferOp::kCopy, {u1, u2}, 0, 1, copy_codec);
  draft.add(1, 3, TransferOp::kCopy, {d1}, 0, 1, copy_codec);
  draft.add(1, 4, TransferOp::kCopy, {d1}, 0, 1, copy_codec);
  draft.add(2, 5, TransferOp::kCopy, {d2}, 0, 1, copy_codec);
  draft.add(2, 6, TransferOp::kCopy, {d2}, 0, 1, copy_codec);
  return draft;
}

/// Recursive halving, then doubling, on four ranks; moves ranges of one and of two chunks.
inline Draft halving_doubling(std::uint8_t copy_codec = 0, std::vector<Codec> codecs = {}) {
  Draft draft;
  draft.codecs = std::move(codecs);
  draft.name = "halving-doubling";
  draft.ranks = 4;
  draft.weights = {1, 1, 1, 1};
  // Halves between 0-1 and 2-3 (even ranks keep chunks 0 and 1), quarters between 0-2 and 1-3.
  const TransferId h01 = draft.add(0, 1, TransferOp::kReduce, {}, 2, 2);
  const TransferId h10 = draft.add(1, 0, TransferOp::kReduce, {}, 0, 2);
  const TransferId h23 = draft.add(2, 3, TransferOp::kReduce, {}, 2, 2);
  const TransferId h32 = draft.add(3, 2, TransferOp::kReduce, {}, 0, 2);
  const TransferId q02 = draft.add(0, 2, TransferOp::kReduce, {h10}, 1, 1);
  const TransferId q20 = draft.add(2, 0, TransferOp::kReduce, {h32}, 0, 1);
  const TransferId q13 = draft.add(1, 3, TransferOp::kReduce, {h01}, 3, 1);
  const TransferId q31 = draft.add(3, 1, TransferOp::kReduce, {h23}, 2, 1);
  const TransferId d02 = draft.add(0, 2, TransferOp::kCopy, {h10, q20}, 0, 1, copy_codec);
  const TransferId d20 = draft.add(2, 0, TransferOp::kCopy, {h32, q02}, 1, 1, copy_codec);
  const TransferId d13 = draft.add(1, 3, TransferOp::kCopy, {h01, q31}, 2, 1, copy_codec);
  const TransferId d31 = draft.add(3, 1, TransferOp::kCopy, {h23, q13}, 3, 1, copy_codec);
  draft.add(0, 1, TransferOp::kCopy, {h10, q20, d02, d20}, 0, 2, copy_codec);
  draft.add(1, 0, TransferOp::kCopy, {h01, q31, d13, d31}, 2, 2, copy_codec);
  draft.add(2, 3, TransferOp::kCopy, {h32, q02, d20, d02}, 0, 2, copy_codec);
  draft.add(3, 2, TransferOp::kCopy, {h23, q13, d31, d13}, 2, 2, copy_codec);
  return draft;
}

}  // namespace rackrail::plan::examples
