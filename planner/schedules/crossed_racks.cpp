#include "planner/schedules/crossed_racks.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <numeric>
#include <utility>

#include "planner/forest/colours.hpp"
#include "planner/part_loads.hpp"
#include "planner/schedules/builder.hpp"
#include "planner/schedules/nested_groups.hpp"
#include "planner/schedules/timed_moves.hpp"
#include "topology/tiers.hpp"

namespace rackrail::planner {

namespace {

constexpr double kNarrowLine = 1.05;            // times what the widest line takes across racks
constexpr std::size_t kMostCrossedParts = 512;  // of the program
constexpr std::size_t kMostCrossedRanks = 512;
constexpr std::size_t kMostOwnersPerHost = 4;  // times the hosts of the largest rack
constexpr double kWorthCrossing = 1e-3;        // of a line's mean share
constexpr double kUnitsOfCrossed = 1U << 28U;
constexpr std::size_t kCrossedRounds[] = {24, 48, 96};
// By how many of 96 rounds moves are behind the first sums of theirs. Found by trying on one
// cluster (lost_cable_32 in tests/support/clusters.hpp): sums that are not there in their turn hold
// up the copies behind them.
constexpr double kRoundsOfTurns = 96;
constexpr double kTurnToWay = 7.5;
constexpr double kTurnAcrossRacks = 2;
constexpr double kTurnOfCopiesAcross = 8;
constexpr double kTurnOfCopiesByWay = 10;  // across, of what crosses on other lines
constexpr double kTurnFromWay = 11.5;
constexpr double kTurnOfCopiesInRack = 12.5;
constexpr double kTurnOfCopiesInHost = 20;
// The share of rounds that grow, and shrink; the first and the last one, over the largest.
constexpr double kGrowingRounds = 0.264;
constexpr double kShrinkingRounds = 0.495;
constexpr double kFirstCrossed = 0.125;
constexpr double kLastCrossed = 0.0307;

/// A line's share of the buffer that crosses between racks on a line.
struct CrossedPart {
  std::size_t line = 0;
  std::size_t way = 0;
  double share = 0;
};

/// Which host of each rack, and which rack, has the sum.
struct CrossedOwner {
  std::size_t host = 0;  ///< modulo the hosts of a rack
  std::size_t rack = 0;
};

class CrossedLines {
 public:
  CrossedLines(const topology::Topology& topology, topology::Router& router)
      : topology_(topology), router_(router) {}

  /// Whether there are narrow lines, and shares are found.
  bool find() {
    if (!find_racks()) {
      return false;
    }
    const std::vector<bool> narrow = narrow_lines();
    PartLoads loads(topology_);
    for (std::size_t line = 0; line < lines_; ++line) {
      for (std::size_t way = 0; way < lines_; ++way) {
        if (way == line || (narrow[line] && !narrow[way])) {
          parts_.push_back({line, way, 0});
        }
      }
    }
    if (parts_.size() == lines_ || parts_.size() > kMostCrossedParts) {
      return false;
    }
    for (const CrossedPart& part : parts_) {
      add_loads(part, loads);
    }
    const auto shares = loads.best_shares();
    if (!shares) {
      return false;
    }
    for (std::size_t part = 0; part < parts_.size(); ++part) {
      parts_[part].share = (*shares)[part];
    }
    std::erase_if(parts_, [&](const CrossedPart& part) {
      return part.share * static_cast<double>(lines_) < kWorthCrossing;
    });
    return std::ranges::any_of(parts_,
                               [](const CrossedPart& part) { return part.way != part.line; });
  }

  std::size_t lines() const { return lines_; }
  const std::vector<std::vector<topology::RankGroup>>& racks() const { return racks_; }
  /// Places of owners in a rack that are told apart.
  std::size_t owners() const { return owners_; }

  std::vector<CrossedPart> of_line(std::size_t line) const {
    std::vector<CrossedPart> all;
    std::ranges::copy_if(parts_, std::back_inserter(all),
                         [&](const CrossedPart& part) { return part.line == line; });
    return all;
  }

  const topology::RankGroup& owner(std::size_t rack, std::size_t host) const {
    return racks_[rack][host % racks_[rack].size()];
  }

 private:
  /// Hosts by rack; false where they are not as they should be.
  bool find_racks() {
    const auto hosts = tier_groups(topology_);
    const auto levels = topology::nested_groups(topology_);
    lines_ = hosts.front().ranks.size();
    if (levels.size() < 3 || lines_ < 2 ||
        std::ranges::any_of(hosts, [&](const auto& host) { return host.ranks.size() != lines_; })) {
      return false;
    }
    std::vector<std::size_t> rack_of(topology_.rank_count());
    const auto& racks = levels[levels.size() - 2];
    for (std::size_t r = 0; r < racks.size(); ++r) {
      for (const Rank rank : racks[r].ranks) {
        rack_of[rank.index()] = r;
      }
    }
    racks_.resize(racks.size());
    for (const topology::RankGroup& host : hosts) {
      const std::size_t rack = rack_of[host.ranks.front().index()];
      if (std::ranges::any_of(host.ranks,
                              [&](Rank rank) { return rack_of[rank.index()] != rack; })) {
        return false;
      }
      racks_[rack].push_back(host);
    }
    std::size_t largest = 0;
    for (const auto& rack : racks_) {
      largest = std::max(largest, rack.size());
    }
    owners_ = 1;
    for (const auto& rack : racks_) {
      owners_ = std::min(std::lcm(owners_, rack.size()), kMostOwnersPerHost * largest);
    }
    return largest > 1;
  }

  template <typename Visit>
  void for_owners(const Visit& visit) const {
    for (std::size_t host = 0; host < owners_; ++host) {
      for (std::size_t rack = 0; rack < racks_.size(); ++rack) {
        visit(CrossedOwner{host, rack});
      }
    }
  }

  /// By line, whether it takes longer across racks than others when all have the same to send.
  std::vector<bool> narrow_lines() const {
    std::vector<double> load(topology_.link_count());
    const auto cross = [&](std::size_t line, const auto& visit) {
      for_owners([&](const CrossedOwner& owned) {
        for (std::size_t rack = 0; rack < racks_.size(); ++rack) {
          if (rack != owned.rack) {
            const Rank one = owner(rack, owned.host).ranks[line];
            const Rank other = owner(owned.rack, owned.host).ranks[line];
            std::ranges::for_each(router_.spread(one, other), visit);
            std::ranges::for_each(router_.spread(other, one), visit);
          }
        }
      });
    };
    for (std::size_t line = 0; line < lines_; ++line) {
      cross(line, [&](const topology::LinkShare& part) { load[part.link.index()] += part.share; });
    }
    std::vector<double> longest(lines_);
    for (std::size_t line = 0; line < lines_; ++line) {
      cross(line, [&](const topology::LinkShare& part) {
        const Bandwidth rate = topology_.link(part.link).bandwidth;
        longest[line] = std::max(
            longest[line], load[part.link.index()] / static_cast<double>(rate.bytes_per_second()));
      });
    }
    const double least = *std::ranges::min_element(longest);
    std::vector<bool> narrow;
    for (const double of_line : longest) {
      narrow.push_back(of_line > kNarrowLine * least);
    }
    return narrow;
  }

  void add_loads(const CrossedPart& part, PartLoads& loads) const {
    const double bytes = 1 / static_cast<double>(owners_ * racks_.size());
    const auto exchange = [&](Rank one, Rank other) {
      for (const auto& [from, to] : {std::pair(one, other), std::pair(other, one)}) {
        for (const topology::LinkShare& spread : router_.spread(from, to)) {
          loads.cross({spread.link}, bytes * spread.share);
        }
      }
    };
    for_owners([&](const CrossedOwner& owned) {
      for (std::size_t rack = 0; rack < racks_.size(); ++rack) {
        const auto& at = owner(rack, owned.host).ranks;
        for (const topology::RankGroup& host : racks_[rack]) {
          for (const Rank rank : host.ranks) {
            const bool is_way = rank == at[part.way] && part.way != part.line;
            if (rank != host.ranks[part.line] && !is_way) {
              exchange(rank, host.ranks[part.line]);
            }
          }
          if (host.ranks.front() != at.front()) {
            exchange(host.ranks[part.line], at[part.line]);
          }
        }
        if (part.way != part.line) {
          exchange(at[part.line], at[part.way]);
        }
        if (rack != owned.rack) {
          exchange(at[part.way], owner(owned.rack, owned.host).ranks[part.way]);
        }
      }
    });
    loads.end_part();
  }

  const topology::Topology& topology_;
  topology::Router& router_;
  std::vector<std::vector<topology::RankGroup>> racks_;  ///< their hosts
  std::size_t lines_ = 0;
  std::size_t owners_ = 1;
  std::vector<CrossedPart> parts_;
};

/// Over the largest.
std::vector<double> sizes_of_crossed(std::size_t rounds) {
  const double growing = kGrowingRounds * static_cast<double>(rounds);
  const double shrinking = kShrinkingRounds * static_cast<double>(rounds);
  std::vector<double> sizes;
  for (std::size_t i = 0; i < rounds; ++i) {
    const double up = std::max(0.0, 1 - static_cast<double>(i) / growing);
    const double down = std::max(0.0, 1 - static_cast<double>(rounds - 1 - i) / shrinking);
    sizes.push_back(std::pow(kFirstCrossed, up) * std::pow(kLastCrossed, down));
  }
  return sizes;
}

/// One all-reduce being made. A round has a chunk for each line, owner in a rack and rack.
class CrossedRounds {
 public:
  CrossedRounds(const CrossedLines& lines, const ScheduleRequest& request, std::size_t rounds)
      : lines_(lines),
        request_(request),
        later_(static_cast<double>(rounds) / kRoundsOfTurns),
        moves_(request.topology.rank_count(), kUnitsOfCrossed) {
    const std::vector<double> sizes = sizes_of_crossed(rounds);
    const double whole = std::accumulate(sizes.begin(), sizes.end(), 0.0);
    for (std::size_t line = 0; line < lines_.lines(); ++line) {
      parts_.push_back(lines_.of_line(line));
      lack_.emplace_back(parts_.back().size());
    }
    for (std::size_t round = 0; round < rounds; ++round) {
      begin(sizes[round] / whole);
      sum(static_cast<double>(round));
      copy(static_cast<double>(round));
    }
  }

  plan::TransferGraph make() const { return moves_.graph("hierarchical", request_); }

 private:
  double turn(double of_rounds) const { return later_ * of_rounds; }
  std::uint32_t chunk(std::size_t line, std::size_t host = 0, std::size_t rack = 0) const {
    return static_cast<std::uint32_t>((line * lines_.owners() + host) * lines_.racks().size() +
                                      rack);
  }
  GraphBuilder::Range of_owner(std::size_t line, std::size_t host) const {
    return {chunk(line, host), static_cast<std::uint32_t>(lines_.racks().size())};
  }

  /// The way that lacks most of its share takes the next chunk of a line.
  void begin(double share_of_round) {
    std::vector<double> shares;
    ways_.clear();
    const std::size_t owners = lines_.owners() * lines_.racks().size();
    for (std::size_t line = 0; line < lines_.lines(); ++line) {
      double share = 0;
      for (const CrossedPart& part : parts_[line]) {
        share += part.share;
      }
      share *= share_of_round / static_cast<double>(owners);
      for (std::size_t i = 0; i < owners; ++i) {
        for (std::size_t p = 0; p < parts_[line].size(); ++p) {
          lack_[line][p] += parts_[line][p].share * share_of_round / static_cast<double>(owners);
        }
        const auto most = std::ranges::max_element(lack_[line]);
        ways_.push_back(
            most == lack_[line].end()
                ? line
                : parts_[line][static_cast<std::size_t>(most - lack_[line].begin())].way);
        if (most != lack_[line].end()) {
          *most -= share;
        }
        shares.push_back(share);
      }
    }
    moves_.begin_chunks(shares);
  }

  template <typename Visit>
  void for_chunks(const Visit& visit) const {
    for (std::size_t line = 0; line < lines_.lines(); ++line) {
      for (std::size_t host = 0; host < lines_.owners(); ++host) {
        for (std::size_t rack = 0; rack < lines_.racks().size(); ++rack) {
          visit(line, CrossedOwner{host, rack}, GraphBuilder::Range{chunk(line, host, rack), 1});
        }
      }
    }
  }

  void sum(double round) {
    for_inside([&](Rank member, Rank hub, GraphBuilder::Range range) {
      moves_.reduce(member, hub, round, range);
    });
    for_other_hosts([&](Rank from, Rank owner, GraphBuilder::Range range) {
      moves_.reduce(from, owner, round, range);
    });
    for_chunks([&](std::size_t line, const CrossedOwner& owned, GraphBuilder::Range range) {
      const std::size_t way = ways_[range.begin];
      for (std::size_t rack = 0; rack < lines_.racks().size(); ++rack) {
        const auto& at = lines_.owner(rack, owned.host).ranks;
        if (way != line) {
          moves_.reduce(at[line], at[way], round + turn(kTurnToWay), range);
        }
      }
      for (std::size_t rack = 0; rack < lines_.racks().size(); ++rack) {
        if (rack != owned.rack) {
          moves_.reduce(lines_.owner(rack, owned.host).ranks[way],
                        lines_.owner(owned.rack, owned.host).ranks[way],
                        round + turn(kTurnAcrossRacks), range);
        }
      }
    });
  }

  void copy(double round) {
    for_chunks([&](std::size_t line, const CrossedOwner& owned, GraphBuilder::Range range) {
      const std::size_t way = ways_[range.begin];
      for (std::size_t rack = 0; rack < lines_.racks().size(); ++rack) {
        if (rack != owned.rack) {
          moves_.copy(lines_.owner(owned.rack, owned.host).ranks[way],
                      lines_.owner(rack, owned.host).ranks[way],
                      round + turn(way == line ? kTurnOfCopiesAcross : kTurnOfCopiesByWay), range);
        }
      }
      for (std::size_t rack = 0; rack < lines_.racks().size(); ++rack) {
        const auto& at = lines_.owner(rack, owned.host).ranks;
        if (way != line) {
          moves_.copy(at[way], at[line], round + turn(kTurnFromWay), range);
        }
      }
    });
    for_other_hosts([&](Rank to, Rank owner, GraphBuilder::Range range) {
      moves_.copy(owner, to, round + turn(kTurnOfCopiesInRack), range);
    });
    for_inside([&](Rank member, Rank hub, GraphBuilder::Range range) {
      moves_.copy(hub, member, round + turn(kTurnOfCopiesInHost), range);
    });
  }

  /// Members of hosts and those of a line, with chunks of it that go straight from one to the
  /// other: not those that cross by the member.
  template <typename Visit>
  void for_inside(const Visit& visit) const {
    for (std::size_t offset = 1; offset < lines_.lines(); ++offset) {
      for (std::size_t line = 0; line < lines_.lines(); ++line) {
        const std::size_t member = (line + offset) % lines_.lines();
        for (std::size_t rack = 0; rack < lines_.racks().size(); ++rack) {
          for (const topology::RankGroup& host : lines_.racks()[rack]) {
            for (const GraphBuilder::Range& range : straight(line, member, rack, host)) {
              visit(host.ranks[member], host.ranks[line], range);
            }
          }
        }
      }
    }
  }

  /// Neighbours of the line's chunks that do not cross by a member of the host.
  std::vector<GraphBuilder::Range> straight(std::size_t line, std::size_t member, std::size_t rack,
                                            const topology::RankGroup& host) const {
    std::vector<GraphBuilder::Range> ranges;
    for (std::size_t owner = 0; owner < lines_.owners(); ++owner) {
      const bool is_owner = lines_.owner(rack, owner).ranks.front() == host.ranks.front();
      for (std::size_t root = 0; root < lines_.racks().size(); ++root) {
        const std::uint32_t number = chunk(line, owner, root);
        if (is_owner && ways_[number] == member) {
          continue;
        }
        if (!ranges.empty() && ranges.back().begin + ranges.back().count == number) {
          ++ranges.back().count;
        } else {
          ranges.push_back({number, 1});
        }
      }
    }
    return ranges;
  }

  /// Pairs of a host that does not own chunks of a line, and the one of its rack that does.
  template <typename Visit>
  void for_other_hosts(const Visit& visit) const {
    for (std::size_t line = 0; line < lines_.lines(); ++line) {
      for (std::size_t host = 0; host < lines_.owners(); ++host) {
        for (std::size_t rack = 0; rack < lines_.racks().size(); ++rack) {
          const Rank owner = lines_.owner(rack, host).ranks[line];
          for (const topology::RankGroup& other : lines_.racks()[rack]) {
            if (other.ranks[line] != owner) {
              visit(other.ranks[line], owner, of_owner(line, host));
            }
          }
        }
      }
    }
  }

  const CrossedLines& lines_;
  const ScheduleRequest& request_;
  double later_;                                 ///< rounds for each of kRoundsOfTurns
  TimedMoves moves_;                             ///< by round
  std::vector<std::vector<CrossedPart>> parts_;  ///< by line
  std::vector<std::vector<double>> lack_;        ///< by line and part
  std::vector<std::size_t> ways_;                ///< by chunk of the round
};

}  // namespace

std::vector<CollectiveForm> crossed_rack_forms(const ScheduleRequest& request) {
  std::vector<CollectiveForm> forms;
  const topology::Topology& topology = request.topology;
  if (!request.is_of_one_size || request.codecs.inside.is_lossy() ||
      request.codecs.across.is_lossy() || topology.rank_count() > kMostCrossedRanks ||
      tier_groups(topology).size() < 3 || !are_ranks_unlike(topology)) {
    return forms;
  }
  CrossedLines lines(topology, request.router);
  if (!lines.find()) {
    return forms;
  }
  for (const std::size_t rounds : kCrossedRounds) {
    if (rounds > request.most_rounds) {
      break;
    }
    plan::TransferGraph graph =
        with_mechanism(CrossedRounds(lines, request, rounds).make(),
                       "exchange that crosses racks on other rails, " + in_rounds_text(rounds));
    if (graph.transfers().size() > request.most_transfers) {
      break;
    }
    forms.emplace_back(std::move(graph), topology);
  }
  return forms;
}

}  // namespace rackrail::planner
