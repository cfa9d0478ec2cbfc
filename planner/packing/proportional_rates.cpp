// Rates of routes by progressive filling: proportional_rates() of pacing.hpp.
#include <algorithm>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <vector>

#include "planner/packing/pacing.hpp"

namespace rackrail::planner {

namespace {

/// Rates of lanes by progressive filling: all rise in proportion to what the lanes carry; those on
/// a link that is full stay, the others go on.
class ProportionalRates {
 public:
  ProportionalRates(const std::vector<Move>& moves, const topology::Topology& topology)
      : room_(topology.link_count()),
        rising_(topology.link_count()),
        lanes_on_(topology.link_count()) {
    std::map<topology::Route, std::uint32_t> lanes;
    std::vector<const topology::Route*> routes;  // by lane
    for (const Move& move : moves) {
      const auto [known, is_new] =
          lanes.emplace(*move.route, static_cast<std::uint32_t>(load_.size()));
      if (is_new) {
        load_.push_back(0);
        routes.push_back(move.route);
      }
      lane_.push_back(known->second);
      load_[known->second] += static_cast<double>(move.weight);
    }
    rates_.assign(load_.size(), kOpen);
    for (std::size_t link = 0; link < room_.size(); ++link) {
      room_[link] = static_cast<double>(topology.link(LinkId(link)).bandwidth.bytes_per_second());
    }
    for (std::uint32_t lane = 0; lane < load_.size(); ++lane) {
      for (const LinkId link : *routes[lane]) {
        rising_[link.index()] += load_[lane];
        lanes_on_[link.index()].push_back(lane);
      }
    }
    while (const std::optional<std::size_t> full = next_full_link()) {
      const double level = room_[*full] / rising_[*full];
      for (const std::uint32_t lane : lanes_on_[*full]) {
        if (rates_[lane] == kOpen) {
          rates_[lane] = level * load_[lane];
          take_room(lane, *routes[lane]);
        }
      }
      rising_[*full] = 0;  // whatever rounding has left of it
    }
  }

  /// None has more than so many times what it needs to be done with the slowest.
  void limit(double times) {
    double slowest = std::numeric_limits<double>::infinity();
    for (std::size_t lane = 0; lane < load_.size(); ++lane) {
      slowest = std::min(slowest, rates_[lane] / load_[lane]);
    }
    for (std::size_t lane = 0; lane < load_.size(); ++lane) {
      rates_[lane] = std::min(rates_[lane], times * slowest * load_[lane]);
    }
  }

  double of_move(std::size_t move) const { return rates_[lane_[move]]; }

 private:
  static constexpr double kOpen = -1;

  /// Of the links with lanes that still rise, the one that is full first.
  std::optional<std::size_t> next_full_link() const {
    std::optional<std::size_t> first;
    double least = std::numeric_limits<double>::infinity();
    for (std::size_t link = 0; link < room_.size(); ++link) {
      if (rising_[link] > 0 && room_[link] / rising_[link] < least) {
        least = room_[link] / rising_[link];
        first = link;
      }
    }
    return first;
  }

  void take_room(std::uint32_t lane, const topology::Route& route) {
    for (const LinkId link : route) {
      room_[link.index()] = std::max(0.0, room_[link.index()] - rates_[lane]);
      rising_[link.index()] -= load_[lane];
    }
  }

  std::vector<std::uint32_t> lane_;  // by move: those of one route
  std::vector<double> load_;         // by lane: weight
  std::vector<double> rates_;        // by lane
  std::vector<double> room_;         // by link: bytes per second that nobody has yet
  std::vector<double> rising_;       // by link: the load of its lanes without a rate
  std::vector<std::vector<std::uint32_t>> lanes_on_;  // by link
};

}  // namespace

std::vector<Bandwidth> proportional_rates(const std::vector<Move>& moves,
                                          const topology::Topology& topology, double most) {
  ProportionalRates filled(moves, topology);
  if (most > 0) {
    filled.limit(most);
  }
  std::vector<Bandwidth> of_moves;
  of_moves.reserve(moves.size());
  for (std::size_t m = 0; m < moves.size(); ++m) {
    of_moves.emplace_back(std::max<std::int64_t>(1, static_cast<std::int64_t>(filled.of_move(m))));
  }
  return of_moves;
}

}  // namespace rackrail::planner
