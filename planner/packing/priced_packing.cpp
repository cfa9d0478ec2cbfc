#include "planner/packing/priced_packing.hpp"

#include <algorithm>
#include <limits>
#include <map>
#include <utility>

#include "planner/packing/arborescence.hpp"
#include "planner/packing/pair_shares.hpp"
#include "planner/packing/priced_paths.hpp"
#include "topology/linear_program.hpp"

namespace rackrail::planner {

namespace {

constexpr std::size_t kMostRanksPriced = 64;
constexpr int kMostPricings = 300;
constexpr double kTowardsProof = 0.7;  // share of the best proof in the prices looked at
constexpr double kShallow = 5e-3;      // of a pair's price: what it costs more if all are detours
constexpr double kCheaper = 1e-6;      // by how much a pair must be, to be added

/// The trees that a share of the data takes.
struct Pair {
  Tree reduction;
  Tree broadcast;
};

class PricedPacking {
 public:
  explicit PricedPacking(const topology::Topology& topology)
      : topology_(topology), ways_(topology), capacity_(topology.link_count()) {
    double widest = 0;
    for (std::size_t l = 0; l < capacity_.size(); ++l) {
      capacity_[l] = static_cast<double>(topology.link(LinkId(l)).bandwidth.bytes_per_second());
      widest = std::max(widest, capacity_[l]);
    }
    for (double& capacity : capacity_) {
      capacity /= widest;
      variables_.push_back(program_.add_variable(kHighPrice, -capacity));
    }
  }

  bool run(double good_enough) {
    std::vector<double> best = inverse(capacity_);  // prices of the best proof, its pair at 1
    if (!look_at(best)) {
      return false;
    }
    double bound = normalise(best);
    return price_pairs(good_enough, best, bound);
  }

  /// What was found, with its rate not set.
  AllReduceForests take() {
    std::vector<double> shares;
    for (std::size_t p = 0; p < pairs_.size(); ++p) {
      shares.push_back(program_.price(static_cast<int>(p)));
    }
    const std::vector<std::int64_t> units = units_of(std::move(shares));
    AllReduceForests forests;
    for (std::size_t p = 0; p < pairs_.size(); ++p) {
      if (units[p] > 0) {
        pairs_[p].reduction.units = pairs_[p].broadcast.units = units[p];
        forests.reduction.trees.push_back(std::move(pairs_[p].reduction));
        forests.broadcast.trees.push_back(std::move(pairs_[p].broadcast));
      }
    }
    for (Forest* forest : {&forests.reduction, &forests.broadcast}) {
      forest->routes = ways_.routes();
      forest->trees_per_rank = 1;
    }
    return forests;
  }

 private:
  static constexpr double kHighPrice = 1e6;

  static std::vector<double> inverse(std::vector<double> capacity) {
    std::transform(capacity.begin(), capacity.end(), capacity.begin(),
                   [](double of_one) { return 1 / of_one; });
    return capacity;
  }

  /// Adds pairs until they are good enough; false where the program cannot be solved.
  bool price_pairs(double good_enough, std::vector<double>& best, double& bound) {
    for (int pricing = 0; pricing < kMostPricings; ++pricing) {
      const auto value = program_.maximise();
      if (!value) {
        return false;
      }
      rate_ = -*value;
      if (rate_ >= good_enough * bound) {
        return true;
      }
      std::vector<double> last;
      for (const int variable : variables_) {
        last.push_back(std::max(0.0, program_.value(variable)));
      }
      std::vector<double> between(last.size());
      for (std::size_t l = 0; l < last.size(); ++l) {
        between[l] = kTowardsProof * best[l] + (1 - kTowardsProof) * last[l];
      }
      const std::size_t before = pairs_.size();
      look_at(between);
      improve(between, best, bound);
      if (pairs_.size() == before || !cuts_off(last, before)) {
        look_at(last);
        improve(last, best, bound);
      }
      if (pairs_.size() == before) {
        return true;  // no pair is cheaper: it is the optimum
      }
    }
    return true;
  }

  /// Adds the cheapest pair of every root that costs less than 1 at these prices; the first time,
  /// when prices are in any unit, that of every root.
  bool look_at(const std::vector<double>& prices) {
    ways_.find(prices);
    std::vector<PricedArc> back = ways_.arcs();
    for (PricedArc& arc : back) {
      std::swap(arc.from, arc.to);
    }
    const bool is_first = pairs_.empty();
    const double detour = is_first ? 0 : kShallow / static_cast<double>(2 * ranks());
    cheapest_ = std::numeric_limits<double>::infinity();
    for (std::uint32_t root = 0; root < ranks(); ++root) {
      auto broadcast = tree(root, ways_.arcs(), detour);
      auto reduction = tree(root, back, detour);
      if (!broadcast || !reduction) {
        return false;
      }
      cheapest_ = std::min(cheapest_, broadcast->at_least + reduction->at_least);
      if (is_first || broadcast->price + reduction->price < 1 - kCheaper) {
        add({std::move(reduction->tree), std::move(broadcast->tree)});
      }
    }
    return true;
  }

  std::size_t ranks() const { return topology_.rank_count(); }

  struct PricedTree {
    Tree tree;
    double price = 0;
    double at_least = 0;  ///< no tree is cheaper
  };

  /// One that is cheapest when arcs that do not lead away from the root cost as much more.
  std::optional<PricedTree> tree(std::uint32_t root, const std::vector<PricedArc>& ways,
                                 double detour) const {
    std::vector<PricedArc> arcs = ways;
    const std::vector<std::uint32_t> distance = distances(root, arcs);
    for (PricedArc& arc : arcs) {
      if (distance[arc.to] != distance[arc.from] + 1) {
        arc.price += detour;
      }
    }
    const auto in = cheapest_tree(ranks(), root, arcs);
    if (!in) {
      return std::nullopt;
    }
    PricedTree found;
    found.tree.root = Rank(root);
    std::vector<std::vector<std::uint32_t>> children(ranks());
    for (std::uint32_t v = 0; v < ranks(); ++v) {
      if (v != root) {
        const std::uint32_t arc = (*in)[v];
        children[arcs[arc].from].push_back(v);
        found.price += ways[arc].price;
        found.at_least += arcs[arc].price - detour;
      }
    }
    std::vector<std::uint32_t> queue{root};
    for (std::size_t i = 0; i < queue.size(); ++i) {
      for (const std::uint32_t child : children[queue[i]]) {
        found.tree.arcs.push_back({Rank(queue[i]), Rank(child), ways_.route_of((*in)[child])});
        queue.push_back(child);
      }
    }
    return found;
  }

  std::vector<std::uint32_t> distances(std::uint32_t root,
                                       const std::vector<PricedArc>& arcs) const {
    std::vector<std::vector<std::uint32_t>> out(ranks());
    for (const PricedArc& arc : arcs) {
      out[arc.from].push_back(arc.to);
    }
    std::vector<std::uint32_t> distance(ranks(), 0xffffffff);
    std::vector<std::uint32_t> queue{root};
    distance[root] = 0;
    for (std::size_t i = 0; i < queue.size(); ++i) {
      for (const std::uint32_t next : out[queue[i]]) {
        if (distance[next] == 0xffffffff) {
          distance[next] = distance[queue[i]] + 1;
          queue.push_back(next);
        }
      }
    }
    return distance;
  }

  void add(Pair pair) {
    std::map<int, double> loads;
    for (const Tree* tree : {&pair.reduction, &pair.broadcast}) {
      for (const TreeArc& arc : tree->arcs) {
        for (const LinkId link : ways_.routes()[arc.route]) {
          loads[variables_[link.index()]] += 1;
        }
      }
    }
    topology::LinearProgram::Terms terms(loads.begin(), loads.end());
    program_.add_row(terms, 1);
    rows_.push_back(std::move(terms));
    pairs_.push_back(std::move(pair));
  }

  /// Whether a pair from `first` on is cheaper than 1 at these prices.
  bool cuts_off(const std::vector<double>& prices, std::size_t first) const {
    return std::any_of(rows_.begin() + static_cast<std::ptrdiff_t>(first), rows_.end(),
                       [&](const auto& row) {
                         double price = 0;
                         for (const auto& [variable, load] : row) {
                           price += load * prices[static_cast<std::size_t>(variable)];
                         }
                         return price < 1 - kCheaper;
                       });
  }

  /// Divides prices by what the cheapest pair costs at them; the bound that they prove.
  double normalise(std::vector<double>& prices) const {
    double bound = 0;
    for (std::size_t l = 0; l < prices.size(); ++l) {
      prices[l] /= cheapest_;
      bound += prices[l] * capacity_[l];
    }
    return bound;
  }

  void improve(std::vector<double> prices, std::vector<double>& best, double& bound) const {
    if (cheapest_ <= 0) {
      return;  // a pair that costs nothing proves nothing
    }
    if (const double proved = normalise(prices); proved < bound) {
      bound = proved;
      best = std::move(prices);
    }
  }

  const topology::Topology& topology_;
  PricedPaths ways_;
  std::vector<double> capacity_;  // over the widest, by link
  topology::LinearProgram program_;
  std::vector<int> variables_;  // the price of each link
  std::vector<topology::LinearProgram::Terms> rows_;
  std::vector<Pair> pairs_;
  double cheapest_ = 0;  // at the prices looked at last
  double rate_ = 0;
};

}  // namespace

std::optional<AllReduceForests> pack_by_prices(const topology::Topology& topology,
                                               double good_enough) {
  if (!topology::LinearProgram::is_available() || topology.rank_count() > kMostRanksPriced) {
    return std::nullopt;
  }
  PricedPacking packing(topology);
  return packing.run(good_enough) ? std::optional(packing.take()) : std::nullopt;
}

}  // namespace rackrail::planner
