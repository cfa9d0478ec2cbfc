#include "planner/groups/line_rates.hpp"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <map>

#include "planner/groups/rank_groups.hpp"

namespace rackrail::planner {

namespace {

bool passes_rank(const topology::Topology& topology, const topology::Route& way) {
  return std::any_of(way.begin() + 1, way.end(), [&](LinkId link) {
    return topology.rank_of(topology.link(link).from).has_value();
  });
}

/// Of each line from one group to another.
std::vector<Bandwidth> rates_between(const topology::Topology& topology, topology::Router& router,
                                     const topology::RankGroup& from, const topology::RankGroup& to,
                                     std::size_t lines, LinesOverRanks over_ranks) {
  std::vector<topology::Route> ways;
  std::map<LinkId, std::int64_t> users;
  for (std::size_t line = 0; line < lines; ++line) {
    ways.push_back(router.route(member_on_line(from, line), member_on_line(to, line)));
    if (over_ranks == LinesOverRanks::kLeftOut && passes_rank(topology, ways.back())) {
      ways.back().clear();
    }
    for (const LinkId link : ways.back()) {
      ++users[link];
    }
  }
  std::vector<Bandwidth> rates;
  for (const topology::Route& way : ways) {
    Bandwidth rate(way.empty() ? 0 : std::numeric_limits<std::int64_t>::max());
    for (const LinkId link : way) {
      const std::int64_t bandwidth = topology.link(link).bandwidth.bytes_per_second();
      rate = std::min(rate, Bandwidth(bandwidth / users[link]));
    }
    rates.push_back(rate);
  }
  return rates;
}

}  // namespace

LineRates line_rates(const topology::Topology& topology, topology::Router& router,
                     std::span<const topology::RankGroup> groups, std::size_t lines,
                     LinesOverRanks over_ranks) {
  LineRates out(lines, std::vector<Bandwidth>(groups.size()));
  LineRates in = out;
  for (std::size_t from = 0; from < groups.size(); ++from) {
    for (std::size_t to = 0; to < groups.size(); ++to) {
      if (from == to) {
        continue;
      }
      const std::vector<Bandwidth> rates =
          rates_between(topology, router, groups[from], groups[to], lines, over_ranks);
      for (std::size_t line = 0; line < lines; ++line) {
        out[line][from] = std::max(out[line][from], rates[line]);
        in[line][to] = std::max(in[line][to], rates[line]);
      }
    }
  }
  for (std::size_t line = 0; line < lines; ++line) {
    for (std::size_t group = 0; group < groups.size(); ++group) {
      out[line][group] = std::min(out[line][group], in[line][group]);
    }
  }
  return out;
}

}  // namespace rackrail::planner
