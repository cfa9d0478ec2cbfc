// How a buffer is best divided into parts that load the links of a cluster differently.
//
// Of part p, a byte moves c_lp bytes over link l: the shares of the ranks that serve as parameter
// servers, of the owners of chunks in a hierarchical exchange. With all parts under way at the same
// time (slices) the exchange takes
//   T = max_l Σ_p c_lp·w_p / bandwidth_l.
// The least T over all w ≥ 0 with Σ w = 1 is a linear program.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "topology/queries.hpp"
#include "topology/topology.hpp"

namespace rackrail::planner {

class PartLoads {
 public:
  /// What each part moves over a link; parts ascending.
  using Crossings = std::vector<std::pair<int, double>>;
  /// Links by what they carry: of those that carry the same, the narrowest, in bytes per second.
  using Rates = std::map<Crossings, double>;

  explicit PartLoads(const topology::Topology& topology);

  /// A byte of the part that is being described moves so many bytes over each link of the route.
  void cross(const topology::Route& route, double bytes = 1);
  /// What follows is the next part.
  void end_part();
  std::size_t parts() const { return parts_; }

  /// T in seconds for a byte of the buffer. `shares` has an entry for each part and sums to 1.
  double time(const std::vector<double>& shares) const;
  /// Shares of the least T, all equal where that is an optimum; else, of several optima, one whose
  /// largest share is the smallest. None where the program is not solved, or in a build without a
  /// solver where equal shares are no optimum.
  std::optional<std::vector<double>> best_shares() const;

 private:
  Rates rates() const;

  const topology::Topology& topology_;
  std::size_t parts_ = 0;
  std::vector<Crossings> by_link_;
  std::vector<double> moved_;  ///< by link, of the part being described
  std::vector<LinkId> touched_;
};

}  // namespace rackrail::planner
