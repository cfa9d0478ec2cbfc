#include "planner/algorithms/bypass_trees.hpp"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <numeric>
#include <optional>
#include <queue>
#include <tuple>
#include <utility>

namespace rackrail::planner {

namespace {

constexpr double kSameRate = 0.02;  // of the higher one: no hops are made for less
// Of the sender's rate on the line, what a hop past others has at least without a rate: of two
// flows from one member each gets half, so one that needs less would hold up the other. And with
// one: what has less would be under way for long.
constexpr double kWorthPassing = 0.45;
constexpr double kWorthPassingRated = 0.1;
constexpr double kSmallPiece = 0.5;  // of the others
// Of the time of all trees over the number of groups.
constexpr double kHopTime = 0.006;   // from a member to the next group's
constexpr double kChangeTime = 0.1;  // to another member of the group

/// Of a line, between members that are neighbours among those of some rate or more.
struct BypassLink {
  std::size_t from = 0;
  std::size_t to = 0;
  std::size_t line = 0;
  double rate = 0;          ///< bytes per second
  bool is_limited = false;  ///< to that: evenly shared links would give it more
};

void add_rate(std::vector<BypassLink>& links, const BypassLink& link) {
  for (BypassLink& known : links) {
    if (std::tie(known.from, known.to, known.line) == std::tie(link.from, link.to, link.line)) {
      known.rate += link.rate;
      return;
    }
  }
  links.push_back(link);
}

std::vector<BypassLink> bypass_links(const LineRates& rates, PassingHops hops) {
  const double least = hops == PassingHops::kRated ? kWorthPassingRated : kWorthPassing;
  std::vector<BypassLink> all;
  for (std::size_t line = 0; line < rates.size(); ++line) {
    std::vector<double> of_groups;
    of_groups.reserve(rates[line].size());
    for (const Bandwidth rate : rates[line]) {
      of_groups.push_back(static_cast<double>(rate.bytes_per_second()));
    }
    std::vector<double> levels = of_groups;
    std::ranges::sort(levels);
    std::vector<BypassLink> links;
    double below = 0;
    for (const double level : levels) {
      if (level - below <= kSameRate * level) {
        continue;
      }
      std::vector<std::size_t> groups;
      for (std::size_t group = 0; group < of_groups.size(); ++group) {
        if (of_groups[group] >= level) {
          groups.push_back(group);
        }
      }
      for (std::size_t i = 0; i < groups.size() && groups.size() > 1; ++i) {
        add_rate(links, {groups[i], groups[(i + 1) % groups.size()], line, level - below});
      }
      below = level;
    }
    for (BypassLink& link : links) {
      const bool passes_by = link.to != (link.from + 1) % of_groups.size();
      link.is_limited = passes_by && link.rate < kWorthPassing * of_groups[link.from];
      if (!passes_by || link.rate >= least * of_groups[link.from]) {
        all.push_back(link);
      }
    }
  }
  return all;
}

/// In bytes per second.
std::vector<double> rates_of_groups(const std::vector<BypassLink>& links, std::size_t groups) {
  std::vector<double> rates(groups);
  for (const BypassLink& link : links) {
    rates[link.from] += link.rate;
  }
  return rates;
}

/// T in seconds with Σ max(0, 1 − C_i·T) = 1, of rates in bytes per second. Precondition: they are
/// positive.
double time_of_sums(std::vector<double> rates) {
  std::ranges::sort(rates);
  assert(rates.front() > 0);
  double sum = 0;
  double time = 0;
  for (std::size_t i = 0; i < rates.size(); ++i) {
    sum += rates[i];
    if (i == 0 || 1 - rates[i] * time > 0) {
      time = static_cast<double>(i) / sum;
    } else {
      break;
    }
  }
  return time;
}

class BypassSums {
 public:
  BypassSums(const LineRates& rates, std::vector<BypassTree> pieces, PassingHops hops)
      : links_(bypass_links(rates, hops)),
        k_(rates.front().size()),
        seconds_(time_of_sums(rates_of_groups(links_, k_))),
        hop_time_(kHopTime / static_cast<double>(k_)),
        change_time_(kChangeTime / static_cast<double>(k_)),
        trees_(std::move(pieces)),
        is_busy_(links_.size()),
        of_group_(k_),
        waiting_(k_),
        leaving_(k_) {
    for (std::size_t link = 0; link < links_.size(); ++link) {
      of_group_[links_[link].from].push_back(link);
    }
    for (const BypassLink& link : links_) {
      Leaving& leaving = leaving_[link.from];
      leaving.rate += link.rate;
      if (const std::size_t length = distance(link.from, link.to); length > 1) {
        leaving.long_rate += link.rate;
        leaving.long_way = leaving.long_way == 0 ? length : std::min(leaving.long_way, length);
      }
    }
    for (const BypassTree& tree : trees_) {
      for (std::size_t group = 0; group < k_; ++group) {
        count_leaving(group, tree, tree.share);
      }
    }
    children_.assign(trees_.size(), std::vector<std::uint32_t>(k_, 1));
  }

  std::vector<BypassTree> run() {
    for (std::size_t piece = 0; piece < trees_.size(); ++piece) {
      waiting_[(trees_[piece].root + 1) % k_].push_back({piece, std::nullopt, 0});
    }
    for (std::size_t group = 0; group < k_; ++group) {
      look_again(group, 0);
    }
    while (!events_.empty()) {
      const Event event = events_.top();
      events_.pop();
      if (event.free) {
        is_busy_[*event.free] = false;
      } else if (event.piece) {
        arrive(*event.piece, event.group, event.line, event.time);
      }
      dispatch(event.group, event.time);
    }
    return std::move(trees_);
  }

 private:
  struct Waiting {
    std::size_t piece = 0;
    std::optional<std::size_t> line;  ///< that it came by
    double since = 0;
  };
  /// What a group still has to send, and may send past the next group.
  struct Leaving {
    std::size_t long_way = 0;  ///< groups, at least; 0: there is none
    double rate = 0;           ///< bytes per second
    double long_rate = 0;
    double all = 0;  ///< of the buffer
    double by_long_way = 0;
  };
  struct Event {
    double time = 0;
    std::size_t number = 0;
    std::size_t group = 0;
    std::optional<std::size_t> free;   ///< link
    std::optional<std::size_t> piece;  ///< that arrived
    std::size_t line = 0;

    bool operator<(const Event& other) const {  // the first one is on top
      return std::tie(time, number) > std::tie(other.time, other.number);
    }
  };

  std::size_t distance(std::size_t from, std::size_t to) const { return (to + k_ - from) % k_; }

  void count_leaving(std::size_t group, const BypassTree& tree, double share) {
    Leaving& leaving = leaving_[group];
    if (const std::size_t left = distance(group, tree.root); left > 0) {
      leaving.all += share;
      leaving.by_long_way += leaving.long_way > 0 && left >= leaving.long_way ? share : 0;
    }
  }

  /// Whether links to the next group leave what may pass it by to those that do.
  bool keeps_for_long_way(std::size_t group) const {
    const Leaving& leaving = leaving_[group];
    return leaving.long_way > 0 &&
           leaving.by_long_way * leaving.rate <= leaving.all * leaving.long_rate;
  }

  void look_again(std::size_t group, double time) {
    events_.push({time, next_event_++, group, std::nullopt, std::nullopt, 0});
  }

  void arrive(std::size_t piece, std::size_t group, std::size_t line, double time) {
    if (--children_[piece][group] > 0) {
      return;
    }
    if (group == trees_[piece].root) {
      trees_[piece].end = time;
      return;
    }
    waiting_[group].push_back({piece, line, time});
    look_again(group, time + change_time_);
  }

  void dispatch(std::size_t group, double time) {
    for (const std::size_t link : of_group_[group]) {
      if (!is_busy_[link]) {
        if (const auto place = choose(links_[link], time)) {
          const Waiting chosen = waiting_[group][*place];
          waiting_[group].erase(waiting_[group].begin() + static_cast<std::ptrdiff_t>(*place));
          send(chosen.piece, link, time);
        }
      }
    }
  }

  /// Place among what waits at the link's group.
  std::optional<std::size_t> choose(const BypassLink& link, double time) const {
    std::optional<std::size_t> best;
    std::tuple<bool, bool, std::size_t, std::size_t> best_rank;
    const std::vector<Waiting>& all = waiting_[link.from];
    const std::size_t length = distance(link.from, link.to);
    const bool keeps = length == 1 && keeps_for_long_way(link.from);
    for (std::size_t place = 0; place < all.size(); ++place) {
      const Waiting& one = all[place];
      const std::size_t left = distance(link.from, trees_[one.piece].root);
      const bool changes = one.line && *one.line != link.line;
      if (length > left || (changes && one.since + change_time_ > time)) {
        continue;
      }
      const bool is_kept = keeps && left >= leaving_[link.from].long_way;
      const std::tuple rank(is_kept, changes, k_ - left, trees_[one.piece].number);
      if (!best || rank < best_rank) {
        best = place;
        best_rank = rank;
      }
    }
    return best;
  }

  void send(std::size_t piece, std::size_t number, double time) {
    const BypassLink& link = links_[number];
    BypassTree& tree = trees_[piece];
    count_leaving(link.from, tree, -tree.share);
    is_busy_[number] = true;
    const double end = time + tree.share / link.rate / seconds_;
    const Bandwidth most(link.is_limited ? std::llround(link.rate) : 0);
    tree.arcs.push_back({link.from, link.to, link.line, most, time, end + hop_time_});
    events_.push({end, next_event_++, link.from, number, std::nullopt, 0});
    events_.push({end + hop_time_, next_event_++, link.to, std::nullopt, piece, link.line});
    if (const std::size_t next = (link.from + 1) % k_; next != link.to) {
      ++children_[piece][link.to];
      // What others sent past those before it may be on its way to it still.
      if (--children_[piece][next] == 0) {
        waiting_[next].push_back({piece, std::nullopt, time});
        look_again(next, time);
      }
    }
  }

  std::vector<BypassLink> links_;
  std::size_t k_;
  double seconds_;  ///< of all, for a byte of the buffer
  // As all times of events, shares of it.
  double hop_time_;
  double change_time_;
  std::vector<BypassTree> trees_;
  std::vector<bool> is_busy_;
  std::vector<std::vector<std::size_t>> of_group_;    ///< links
  std::vector<std::vector<Waiting>> waiting_;         ///< by group
  std::vector<Leaving> leaving_;                      ///< by group
  std::vector<std::vector<std::uint32_t>> children_;  ///< that have not arrived
  std::priority_queue<Event> events_;
  std::size_t next_event_ = 0;
};

}  // namespace

std::optional<double> seconds_of_sums(const LineRates& rates, PassingHops hops) {
  const std::size_t k = rates.front().size();
  const std::vector<BypassLink> links = bypass_links(rates, hops);
  std::vector<bool> reaches_next(k);
  for (const BypassLink& link : links) {
    if (link.to == (link.from + 1) % k) {
      reaches_next[link.from] = true;
    }
  }
  if (std::ranges::count(reaches_next, false) > 0) {
    return std::nullopt;
  }
  return time_of_sums(rates_of_groups(links, k));
}

std::vector<double> shares_of_roots(const LineRates& rates, PassingHops hops) {
  std::vector<double> shares = rates_of_groups(bypass_links(rates, hops), rates.front().size());
  const double time = time_of_sums(shares);
  for (double& share : shares) {
    share = std::max(0.0, 1 - share * time);
  }
  return shares;
}

std::vector<BypassTree> bypass_pieces(const LineRates& rates, std::size_t pieces,
                                      PassingHops hops) {
  const std::vector<double> shares = shares_of_roots(rates, hops);
  const double of_all = static_cast<double>(shares.size() * rates.size() * pieces);
  std::vector<BypassTree> trees;
  for (std::size_t root = 0; root < shares.size(); ++root) {
    std::vector<double> sizes(static_cast<std::size_t>(std::llround(shares[root] * of_all)), 1);
    std::fill_n(sizes.begin(), std::min(sizes.size(), rates.size()), kSmallPiece);
    const double whole = std::accumulate(sizes.begin(), sizes.end(), 0.0);
    for (std::size_t number = 0; number < sizes.size(); ++number) {
      trees.push_back({root, number, shares[root] * sizes[number] / whole, {}, 0});
    }
  }
  return trees;
}

std::vector<BypassTree> bypass_trees(const LineRates& rates, std::vector<BypassTree> pieces,
                                     PassingHops hops) {
  return BypassSums(rates, std::move(pieces), hops).run();
}

}  // namespace rackrail::planner
