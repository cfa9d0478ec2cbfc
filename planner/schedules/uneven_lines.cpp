#include "planner/schedules/uneven_lines.hpp"

#include <algorithm>
#include <utility>

#include "planner/part_loads.hpp"
#include "planner/schedules/builder.hpp"
#include "planner/schedules/group_rings.hpp"
#include "planner/schedules/line_rates.hpp"

namespace rackrail::planner {

namespace {

constexpr double kWorthLeaves = 0.98;  // of the time of rings in equal shares
// What a line with leaves takes, as simulated, over what its links do: at first leaves only send,
// in the end they only receive.
constexpr double kFillOfLeaves = 1.105;
constexpr std::size_t kMostRanksUneven = 512;

class LineShares {
 public:
  LineShares(const topology::Topology& topology, topology::Router& router)
      : topology_(topology), router_(router) {
    lines_.groups = ring_of_groups(topology);
    k_ = lines_.groups.size();
    count_ = ring_lines(lines_.groups);
  }

  std::optional<UnevenLines> run() {
    std::vector<LineTrees> rings;
    const LineRates rates =
        line_rates(topology_, router_, lines_.groups, count_, LinesOverRanks::kUsed);
    bool has_leaves = false;
    for (std::size_t line = 0; line < count_; ++line) {
      rings.push_back(trees_of(line, {}));
      lines_.lines.push_back(trees_of(line, slow_on(rates[line])));
      has_leaves = has_leaves || lines_.lines.back().has_leaves;
    }
    if (!has_leaves) {
      return std::nullopt;
    }
    const PartLoads loads = loads_of(lines_.lines);
    const auto shares = loads.best_shares();
    const std::vector<double> equal(count_, 1 / static_cast<double>(count_));
    if (!shares || loads.time(*shares) > kWorthLeaves * loads_of(rings).time(equal)) {
      return std::nullopt;
    }
    for (std::size_t line = 0; line < count_; ++line) {
      lines_.lines[line].share = (*shares)[line];
    }
    std::erase_if(lines_.lines, [](const LineTrees& line) { return line.share <= 0; });
    return std::move(lines_);
  }

 private:
  /// None where they are half of all.
  std::vector<std::size_t> slow_on(const std::vector<Bandwidth>& rates) const {
    const Bandwidth best = *std::ranges::max_element(rates);
    std::vector<std::size_t> slow;
    for (std::size_t group = 0; group < k_; ++group) {
      if (rates[group] < scaled(best, kSlowShare)) {
        slow.push_back(group);
      }
    }
    return 2 * slow.size() < k_ ? slow : std::vector<std::size_t>{};
  }

  /// Rings both ways round. With leaves all go the same way, so that what is reduced along a line
  /// and what is gathered are between other pairs of ranks, and do not wait for each other.
  LineTrees trees_of(std::size_t line, const std::vector<std::size_t>& leaves) const {
    LineTrees trees{line, !leaves.empty(), {}, 0};
    for (std::size_t root = 0; root < k_; ++root) {
      if (std::ranges::count(leaves, root) > 0) {
        continue;
      }
      trees.trees.push_back(path_from(root, false, leaves));
      if (leaves.empty()) {
        trees.trees.push_back(path_from(root, true, leaves));
      }
    }
    return trees;
  }

  GroupTree path_from(std::size_t root, bool is_back,
                      const std::vector<std::size_t>& leaves) const {
    GroupTree tree{root, leaves, {}};
    std::size_t last = root;
    for (std::size_t hop = 1; hop < k_; ++hop) {
      const std::size_t next = (is_back ? root + k_ - hop : root + hop) % k_;
      if (std::ranges::count(leaves, next) == 0) {
        tree.path.push_back({last, next});
        last = next;
      }
    }
    return tree;
  }

  /// Of both halves at once.
  PartLoads loads_of(const std::vector<LineTrees>& lines) {
    PartLoads loads(topology_);
    for (const LineTrees& line : lines) {
      const double bytes =
          (line.has_leaves ? kFillOfLeaves : 1) / static_cast<double>(line.trees.size());
      const auto exchange = [&](Rank one, Rank other) {
        loads.cross(router_.route(one, other), bytes);
        loads.cross(router_.route(other, one), bytes);
      };
      const auto enter = [&](std::size_t from, std::size_t to) {
        const Rank head = lines_.member(to, line.line);
        if (from != to) {
          exchange(lines_.member(from, line.line), head);
        }
        for (const Rank rank : lines_.groups[to].ranks) {
          if (rank != head) {
            exchange(head, rank);
          }
        }
      };
      for (const GroupTree& tree : line.trees) {
        enter(tree.root, tree.root);
        for (const std::size_t leaf : tree.leaves) {
          enter(tree.root, leaf);
        }
        for (const GroupHop& hop : tree.path) {
          enter(hop.from, hop.to);
        }
      }
      loads.end_part();
    }
    return loads;
  }

  const topology::Topology& topology_;
  topology::Router& router_;
  UnevenLines lines_;
  std::size_t k_ = 0;      ///< groups
  std::size_t count_ = 0;  ///< of lines
};

}  // namespace

Rank UnevenLines::member(std::size_t group, std::size_t line) const {
  return member_on_line(groups[group], line);
}

std::optional<UnevenLines> uneven_lines(const topology::Topology& topology,
                                        topology::Router& router) {
  if (topology.rank_count() > kMostRanksUneven) {
    return std::nullopt;
  }
  return LineShares(topology, router).run();
}

}  // namespace rackrail::planner
