// What links carry of trees while these settle (settled_pairs.hpp), and what one more costs there:
// a price that grows so steeply with a link's load that the sum of all is nearly the fullest link
// (multiplicative weights: Garg and Könemann, "Faster and simpler algorithms for multicommodity
// flow and other fractional packing problems", 1998).
#pragma once

#include <cstdint>
#include <vector>

#include "planner/packing/settled_pairs.hpp"
#include "topology/topology.hpp"

namespace rackrail::planner {

/// Links of one rate with as many trees cost the same, which is found once for each steepness:
/// trees come and go by the thousand.
class LinkPrices {
 public:
  static constexpr double kFirstSteepness = 16;

  LinkPrices(const topology::Topology& topology, const SettledOptions& options);

  void set_steepness(double steepness);
  void add(const topology::Route& route, std::int32_t count);
  double fullest() const;
  bool has_room(const topology::Route& route) const;

  const std::vector<double>& prices() const { return price_; }
  double detour() const { return detour_; }
  double of_one(LinkId link) const { return of_one_[rate_of_[link.index()]]; }

 private:
  double price_at(double share, double of_one) const;
  void reprice(std::size_t link);

  double most_share_;
  double steepness_ = 0;
  double full_ = 1;    ///< share of the fullest link, when the steepness was set
  double detour_ = 0;  ///< added to arcs that do not lead away from a root
  // By link.
  std::vector<std::int32_t> trees_;  ///< over it
  std::vector<std::uint32_t> rate_of_;
  std::vector<double> price_;
  // By rate.
  std::vector<double> of_one_;                     ///< what one tree takes of a link, at the bound
  std::vector<std::vector<double>> known_prices_;  ///< by trees over a link, at this steepness
};

}  // namespace rackrail::planner
