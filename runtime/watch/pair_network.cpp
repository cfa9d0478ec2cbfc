#include "runtime/watch/pair_network.hpp"

#include <algorithm>
#include <map>

#include "topology/queries.hpp"

namespace rackrail::runtime {

std::vector<Strand> strands_of(const topology::Topology& cluster,
                               const std::vector<RankPair>& pairs) {
  topology::Router router(cluster);
  std::map<LinkId, std::vector<RankPair>> users;
  for (const RankPair& pair : pairs) {
    for (const LinkId link : router.route(pair.first, pair.second)) {
      users[link].push_back(pair);
    }
  }
  std::map<std::vector<RankPair>, std::size_t> strand_of;
  std::vector<Strand> strands;
  for (auto& [link, used_by] : users) {
    std::ranges::sort(used_by);
    const auto [it, is_new] = strand_of.emplace(used_by, strands.size());
    if (is_new) {
      strands.push_back({{}, used_by});
    }
    strands[it->second].links.push_back(link);
  }
  return strands;
}

}  // namespace rackrail::runtime
