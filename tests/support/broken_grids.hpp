// Grids and tori that have lost cables or have slow ones.
#pragma once

#include <optional>
#include <vector>

#include "tests/support/clusters.hpp"
#include "topology/remove.hpp"
#include "topology/topology.hpp"

namespace rackrail::test {

/// A cable by the first of its two links.
struct BrokenCable {
  unsigned first_link;
  std::optional<Bandwidth> rate = std::nullopt;  ///< none: it is lost
};

inline topology::Topology broken_grid(int rows, int columns, bool wrap,
                                      const std::vector<BrokenCable>& broken) {
  topology::Topology whole = grid(rows, columns, wrap);
  std::vector<LinkId> lost;
  for (const BrokenCable& cable : broken) {
    for (const LinkId link : {LinkId(cable.first_link), LinkId(cable.first_link + 1)}) {
      if (cable.rate) {
        whole.set_link_rate(link, *cable.rate, whole.link(link).latency);
      } else {
        lost.push_back(link);
      }
    }
  }
  return topology::without(whole, {}, lost);
}

}  // namespace rackrail::test
