#include "planner/pipeline/balanced_routes.hpp"

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <utility>

#include "plan/alpha_beta.hpp"
#include "plan/changed_graph.hpp"

namespace rackrail::planner {

namespace {

constexpr std::size_t kMostEqualRoutes = 64;  // routes of a pair
constexpr std::size_t kMostRoutedPairs = 4096;
constexpr std::size_t kMostRoutedLinks =
    8'000'000;  // of transfers one by one: looked at in a sweep
constexpr int kMostRouteSweeps = 16;
constexpr int kPriceDoublings = 4;          // of the exponent: loads count with their 16th power
constexpr double kWorthOther = 0.99;        // of the load of the fullest link
constexpr double kNearlyEven = 1.01;        // times that load where equal routes have equal parts
constexpr double kCheaperRoute = 1 - 1e-9;  // times what another route costs
constexpr std::int64_t kNominalElements = std::int64_t{1} << 40U;

/// What goes over one of several routes: of a pair all transfers, or one.
struct RoutedItem {
  std::size_t pair = 0;
  double bytes = 0;
  std::size_t choice = 0;  ///< of the pair's routes
};

class RouteBalance {
 public:
  RouteBalance(const plan::TransferGraph& graph, const std::vector<RoutedPair>& pairs,
               const topology::Topology& topology, topology::Router& router)
      : graph_(graph), seconds_(topology.link_count()), load_(topology.link_count()) {
    for (std::size_t l = 0; l < topology.link_count(); ++l) {
      seconds_[l] = 1 / static_cast<double>(topology.link(LinkId(l)).bandwidth.bytes_per_second());
    }
    find_bytes();
    for (std::size_t i = 0; i < bytes_.size(); ++i) {
      add(graph.routes()[graph.transfers()[i].route.index()], bytes_[i]);
    }
    fullest_ = fullest();
    if (!is_avoidable(static_cast<std::size_t>(std::ranges::max_element(load_) - load_.begin()),
                      pairs, router)) {
      return;
    }
    for (const RoutedPair& pair : pairs) {
      std::vector<topology::Route> routes =
          router.equal_routes(pair.src, pair.dst, kMostEqualRoutes);
      if (routes.size() > 1) {
        pair_of_[pair.route.index()] = routes_.size();
        routes_.push_back(std::move(routes));
      }
    }
  }

  /// By transfer the number of its choice, where it has one; none where nothing is gained.
  std::optional<std::vector<std::size_t>> run() {
    if (routes_.empty()) {
      return std::nullopt;
    }
    std::vector<RoutedItem> items = dealt();
    const double even = fullest_if_even(items);
    if (even > kWorthOther * fullest_) {
      return std::nullopt;
    }
    descend(items);
    double found = fullest();
    std::vector<std::size_t> choices = by_transfer(items);
    if (found > kNearlyEven * even && links_of_transfers() <= kMostRoutedLinks) {
      std::vector<RoutedItem> single = one_by_one();
      descend(single);
      if (fullest() < kWorthOther * found) {
        found = fullest();
        choices = by_transfer(single);
      }
    }
    return found <= kWorthOther * fullest_ ? std::optional(std::move(choices)) : std::nullopt;
  }

  /// Of a transfer that has a choice.
  const topology::Route& route(std::size_t transfer, std::size_t choice) const {
    return routes_[*pair_of(transfer)][choice];
  }
  std::optional<std::size_t> pair_of(std::size_t transfer) const {
    return pair_of_[graph_.transfers()[transfer].route.index()];
  }

 private:
  void find_bytes() {
    const std::vector<double> bytes = plan::bytes_per_element(graph_);
    for (const plan::Transfer& transfer : graph_.transfers()) {
      bytes_.push_back(static_cast<double>(graph_.range(transfer, kNominalElements).size()) *
                       bytes[transfer.codec]);
    }
    pair_of_.resize(graph_.routes().size());
  }

  /// Of all routes of all transfers that have a choice.
  std::size_t links_of_transfers() const {
    std::size_t links = 0;
    for (std::size_t i = 0; i < bytes_.size(); ++i) {
      if (const auto pair = pair_of(i)) {
        links += routes_[*pair].size() * routes_[*pair].front().size();
      }
    }
    return links;
  }

  void add(std::span<const LinkId> route, double bytes) {
    for (const LinkId link : route) {
      load_[link.index()] += bytes * seconds_[link.index()];
    }
  }

  double fullest() const { return *std::max_element(load_.begin(), load_.end()); }

  /// Whether a pair that crosses the link has another route past it: else it stays as full.
  bool is_avoidable(std::size_t link, const std::vector<RoutedPair>& pairs,
                    topology::Router& router) const {
    const auto crosses = [&](const topology::Route& route) {
      return std::ranges::find(route, LinkId(link)) != route.end();
    };
    return std::ranges::any_of(pairs, [&](const RoutedPair& pair) {
      return crosses(graph_.routes()[pair.route.index()]) &&
             !std::ranges::all_of(router.equal_routes(pair.src, pair.dst, kMostEqualRoutes),
                                  crosses);
    });
  }

  /// Whole pairs, each on the route that is dealt to it, those that send most first.
  std::vector<RoutedItem> dealt() {
    std::vector<RoutedItem> items;
    for (std::size_t p = 0; p < routes_.size(); ++p) {
      items.push_back({p, 0, 0});
    }
    for (std::size_t i = 0; i < bytes_.size(); ++i) {
      if (const auto pair = pair_of(i)) {
        items[*pair].bytes += bytes_[i];
        add(graph_.routes()[graph_.transfers()[i].route.index()], -bytes_[i]);
      }
    }
    for (const RoutedItem& item : items) {
      add(routes_[item.pair].front(), item.bytes);
    }
    std::ranges::stable_sort(
        items, [](const RoutedItem& a, const RoutedItem& b) { return a.bytes > b.bytes; });
    return items;
  }

  /// With every pair's bytes divided over its routes. Loads are then as they were again.
  double fullest_if_even(const std::vector<RoutedItem>& items) {
    const std::vector<double> before = load_;
    for (const RoutedItem& item : items) {
      const std::vector<topology::Route>& routes = routes_[item.pair];
      add(routes[item.choice], -item.bytes);
      for (const topology::Route& route : routes) {
        add(route, item.bytes / static_cast<double>(routes.size()));
      }
    }
    const double most = fullest();
    load_ = before;
    return most;
  }

  /// Each begins on the emptiest of its routes, given those before.
  std::vector<RoutedItem> one_by_one() {
    std::ranges::fill(load_, 0.0);
    std::vector<RoutedItem> items;
    for (std::size_t i = 0; i < bytes_.size(); ++i) {
      if (const auto pair = pair_of(i)) {
        items.push_back({*pair, bytes_[i], 0});
      } else {
        add(graph_.routes()[graph_.transfers()[i].route.index()], bytes_[i]);
      }
    }
    for (RoutedItem& item : items) {
      choose(item);
    }
    return items;
  }

  void descend(std::vector<RoutedItem>& items) {
    bool has_moved = true;
    for (int sweep = 0; sweep < kMostRouteSweeps && has_moved; ++sweep) {
      has_moved = false;
      for (RoutedItem& item : items) {
        const std::size_t before = item.choice;
        add(routes_[item.pair][before], -item.bytes);
        choose(item);
        has_moved = has_moved || item.choice != before;
      }
    }
  }

  static double steep(double share) {
    for (int i = 0; i < kPriceDoublings; ++i) {
      share *= share;
    }
    return share;
  }

  double price(const topology::Route& route, double bytes) const {
    double sum = 0;
    for (const LinkId link : route) {
      const double load = load_[link.index()];
      sum += steep((load + bytes * seconds_[link.index()]) / fullest_) - steep(load / fullest_);
    }
    return sum;
  }

  /// Gives it the cheapest of its routes, the one that it has where others cost as much.
  void choose(RoutedItem& item) {
    const std::vector<topology::Route>& routes = routes_[item.pair];
    double least = price(routes[item.choice], item.bytes);
    for (std::size_t i = 0; i < routes.size(); ++i) {
      const double cost = price(routes[i], item.bytes);
      if (cost < least * kCheaperRoute) {
        least = cost;
        item.choice = i;
      }
    }
    add(routes[item.choice], item.bytes);
  }

  /// Items are of pairs, or of the transfers that have a choice, in their order.
  std::vector<std::size_t> by_transfer(const std::vector<RoutedItem>& items) const {
    std::vector<std::size_t> of_pair(routes_.size());
    std::vector<std::size_t> choices(bytes_.size());
    for (const RoutedItem& item : items) {
      of_pair[item.pair] = item.choice;
    }
    const bool is_by_pair = items.size() == routes_.size();
    std::size_t next = 0;
    for (std::size_t i = 0; i < bytes_.size(); ++i) {
      if (const auto pair = pair_of(i)) {
        choices[i] = is_by_pair ? of_pair[*pair] : items[next++].choice;
      }
    }
    return choices;
  }

  const plan::TransferGraph& graph_;
  std::vector<double> seconds_;                       // by link: of a byte
  std::vector<double> load_;                          // by link: seconds
  std::vector<double> bytes_;                         // by transfer
  std::vector<std::vector<topology::Route>> routes_;  // by pair that has a choice
  std::vector<std::optional<std::size_t>> pair_of_;   // by route of the graph
  double fullest_ = 0;                                // load of a link before
};

}  // namespace

plan::TransferGraph with_balanced_routes(plan::TransferGraph graph,
                                         const std::vector<RoutedPair>& pairs,
                                         const topology::Topology& topology,
                                         topology::Router& router) {
  // What switches add or copy crosses a link once, however many transfers are of it.
  if (graph.transfers().empty() || !graph.groups().empty() || pairs.size() > kMostRoutedPairs) {
    return graph;
  }
  RouteBalance balance(graph, pairs, topology, router);
  const auto choices = balance.run();
  if (!choices) {
    return graph;
  }
  std::vector<plan::RatedRoute> routes = plan::rated_routes(graph);
  std::vector<std::uint32_t> route_of;
  std::map<topology::Route, std::uint32_t> numbers;
  for (std::size_t i = 0; i < choices->size(); ++i) {
    route_of.push_back(graph.transfers()[i].route.value());
    if (balance.pair_of(i)) {
      const auto [known, is_new] = numbers.emplace(balance.route(i, (*choices)[i]),
                                                   static_cast<std::uint32_t>(routes.size()));
      if (is_new) {
        routes.push_back({known->first, {}});
      }
      route_of.back() = known->second;
    }
  }
  return plan::with_transfers_over(graph, routes, route_of);
}

}  // namespace rackrail::planner
