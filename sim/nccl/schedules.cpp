#include "sim/nccl/schedules.hpp"

#include <algorithm>
#include <bit>
#include <span>
#include <utility>

#include "base/error.hpp"

namespace rackrail::sim::nccl {

namespace {

constexpr int kTrees = 2;

/// Positions 0..n−1 in order: position p > 0 with lowest set bit b has its parent at (p ^ b) | 2b,
/// or at p ^ b where that is past the end (Sanders, Speck, Träff 2009).
std::uint32_t in_order_parent(std::uint32_t p, std::uint32_t n) {
  if (p == 0) {
    return 0;
  }
  const std::uint32_t bit = p & (~p + 1);
  const std::uint32_t up = (p ^ bit) | (bit << 1U);
  return up < n ? up : p ^ bit;
}

/// A tree of hosts for one chunk: what moves it up (sums) and down (copies).
struct TreeOrder {
  std::vector<std::uint32_t> parent;
  std::vector<std::uint32_t> from_root;
};

TreeOrder tree_order(std::size_t hosts, int tree) {
  TreeOrder order{tree_parents(hosts, tree), {}};
  for (std::uint32_t h = 0; h < hosts; ++h) {
    if (order.parent[h] == h) {
      order.from_root.push_back(h);
    }
  }
  for (std::size_t i = 0; i < order.from_root.size(); ++i) {
    for (std::uint32_t h = 0; h < hosts; ++h) {
      if (order.parent[h] == order.from_root[i] && h != order.from_root[i]) {
        order.from_root.push_back(h);
      }
    }
  }
  return order;
}

class LoopBuilder {
 public:
  LoopBuilder(std::string name, std::size_t ranks, std::size_t chunks)
      : graph_(std::move(name), plan::Collective::kAllReduce, ranks,
               std::vector<std::uint32_t>(chunks, 1)) {}

  TransferId move(plan::TransferOp op, std::size_t src, std::size_t dst, std::size_t chunk,
                  std::span<const TransferId> after) {
    return graph_.add_transfer({.src = Rank(src),
                                .dst = Rank(dst),
                                .chunk_begin = static_cast<std::uint32_t>(chunk),
                                .chunk_count = 1,
                                .op = op,
                                .codec = 0,
                                .route = {}},
                               after);
  }

  /// Sums over the hosts' heads and copies back: `sums[h]` is what brought the host's own sum to
  /// its head; returns what brings the whole to each head.
  std::vector<std::vector<TransferId>> across(const TreeOrder& tree, std::size_t gpus,
                                              std::size_t head, std::size_t chunk,
                                              std::vector<std::vector<TransferId>> sums) {
    for (auto it = tree.from_root.rbegin(); it != tree.from_root.rend(); ++it) {
      const std::uint32_t up = tree.parent[*it];
      if (up != *it) {
        sums[up].push_back(
            move(plan::TransferOp::kReduce, *it * gpus + head, up * gpus + head, chunk, sums[*it]));
      }
    }
    std::vector<std::vector<TransferId>> whole(sums.size());
    for (const std::uint32_t host : tree.from_root) {
      const std::uint32_t up = tree.parent[host];
      if (up == host) {
        whole[host] = sums[host];
      } else {
        whole[host] = {
            move(plan::TransferOp::kCopy, up * gpus + head, host * gpus + head, chunk, whole[up])};
      }
    }
    return whole;
  }

  plan::TransferGraph take() { return std::move(graph_); }

 private:
  plan::TransferGraph graph_;
};

/// The switch adds into the head, host-local.
std::vector<TransferId> gather(LoopBuilder& builder, std::size_t first, std::size_t gpus,
                               std::size_t head, std::size_t chunk) {
  std::vector<TransferId> sums;
  for (std::size_t g = 0; g < gpus; ++g) {
    if (g != head) {
      sums.push_back(builder.move(plan::TransferOp::kReduce, first + g, first + head, chunk, {}));
    }
  }
  return sums;
}

void spread(LoopBuilder& builder, std::size_t first, std::size_t gpus, std::size_t head,
            std::size_t chunk, std::span<const TransferId> after) {
  for (std::size_t g = 0; g < gpus; ++g) {
    if (g != head) {
      builder.move(plan::TransferOp::kCopy, first + head, first + g, chunk, after);
    }
  }
}

}  // namespace

std::vector<std::uint32_t> tree_parents(std::size_t hosts, int tree) {
  const auto n = static_cast<std::uint32_t>(hosts);
  std::vector<std::uint32_t> parents(n);
  // The second tree is the first one shifted by a host (odd n) or its mirror image (even n), so
  // that its leaves are inner hosts of the first.
  const auto place = [&](std::uint32_t p) {
    if (tree == 0) {
      return p;
    }
    return n % 2 == 0 ? n - 1 - p : (p + 1) % n;
  };
  for (std::uint32_t p = 0; p < n; ++p) {
    parents[place(p)] = place(in_order_parent(p, n));
  }
  return parents;
}

std::size_t tree_depth(std::size_t hosts) {
  return hosts < 2 ? 0 : static_cast<std::size_t>(std::bit_width(hosts - 1));
}

std::vector<HostPair> ring_pairs(std::size_t hosts) {
  std::vector<HostPair> pairs;
  for (std::uint32_t h = 0; hosts > 1 && h < hosts; ++h) {
    pairs.emplace_back(h, (h + 1) % static_cast<std::uint32_t>(hosts));
  }
  return pairs;
}

std::vector<HostPair> tree_pairs(std::size_t hosts) {
  std::vector<HostPair> pairs;
  for (int tree = 0; tree < kTrees; ++tree) {
    const std::vector<std::uint32_t> parents = tree_parents(hosts, tree);
    for (std::uint32_t h = 0; h < parents.size(); ++h) {
      if (parents[h] != h) {
        pairs.emplace_back(h, parents[h]);
        pairs.emplace_back(parents[h], h);
      }
    }
  }
  std::sort(pairs.begin(), pairs.end());
  pairs.erase(std::unique(pairs.begin(), pairs.end()), pairs.end());
  return pairs;
}

plan::TransferGraph tree_loop(std::size_t hosts, std::size_t gpus) {
  LoopBuilder builder("nccl-tree", hosts * gpus, kTrees);
  for (int tree = 0; tree < kTrees; ++tree) {
    const auto chunk = static_cast<std::size_t>(tree);
    std::vector<std::vector<TransferId>> sums(hosts);
    for (std::size_t h = 0; h < hosts; ++h) {
      for (std::size_t g = gpus; g-- > 1;) {
        sums[h] = {builder.move(plan::TransferOp::kReduce, h * gpus + g, h * gpus + g - 1, chunk,
                                sums[h])};
      }
    }
    auto whole = builder.across(tree_order(hosts, tree), gpus, 0, chunk, std::move(sums));
    for (std::size_t h = 0; h < hosts; ++h) {
      for (std::size_t g = 1; g < gpus; ++g) {
        whole[h] = {
            builder.move(plan::TransferOp::kCopy, h * gpus + g - 1, h * gpus + g, chunk, whole[h])};
      }
    }
  }
  return builder.take();
}

plan::TransferGraph nvls_loop(std::size_t gpus) {
  LoopBuilder builder("nccl-nvls", gpus, gpus);
  for (std::size_t head = 0; head < gpus; ++head) {
    spread(builder, 0, gpus, head, head, gather(builder, 0, gpus, head, head));
  }
  return builder.take();
}

plan::TransferGraph nvls_tree_loop(std::size_t hosts, std::size_t gpus) {
  LoopBuilder builder("nccl-nvls-tree", hosts * gpus, kTrees * gpus);
  for (int tree = 0; tree < kTrees; ++tree) {
    const TreeOrder order = tree_order(hosts, tree);
    for (std::size_t head = 0; head < gpus; ++head) {
      const std::size_t chunk = static_cast<std::size_t>(tree) * gpus + head;
      std::vector<std::vector<TransferId>> sums;
      for (std::size_t h = 0; h < hosts; ++h) {
        sums.push_back(gather(builder, h * gpus, gpus, head, chunk));
      }
      const auto whole = builder.across(order, gpus, head, chunk, std::move(sums));
      for (std::size_t h = 0; h < hosts; ++h) {
        spread(builder, h * gpus, gpus, head, chunk, whole[h]);
      }
    }
  }
  return builder.take();
}

}  // namespace rackrail::sim::nccl
