// All-gather by greedy matching on the time-expanded network, and its reverse.
//
// At each moment at which a link becomes free or a chunk arrives, every idle path into a rank is
// matched with a chunk that the rank still lacks and the path's source holds; paths that deliver
// earliest go first, and of the chunks the one that fewest ranks hold (after Won et al., "TACOS:
// Topology-Aware Collective Algorithm Synthesizer", arXiv 2304.05301). A path is a direct link
// between ranks or a route through switches, which counts as one hop that occupies each of its
// links for the chunk's bytes over the link's rate. Between groups of near ranks a chunk is fetched
// only when no rank of the group has or awaits it: its neighbours then get it over faster links.
//
// Ties are broken around the near order of ranks and, in further attempts, by seeded hashes; the
// attempt that ends first is taken, so the same topology always gives the same schedule. The
// reduce-scatter is the all-gather backwards. A transfer also waits for what should have arrived at
// its sender before it starts: this keeps sends that share a link in the planned order without a
// clock. With W words of 64 paths, O(n² · c) moments at each of which O(W) words and the paths that
// became possible are looked at, each in O(links + n · c / 64) if it brings nothing.
#include <algorithm>
#include <bit>
#include <functional>
#include <map>
#include <numeric>
#include <optional>
#include <queue>
#include <span>
#include <tuple>
#include <utility>

#include "base/work.hpp"
#include "planner/schedules/builder.hpp"

namespace rackrail::planner {

namespace {

constexpr std::size_t kMostRanksMatched = 128;
constexpr std::uint64_t kAttempts = 4;
/// Of the buffer that chunks' times are planned for.
constexpr double kPlannedBytes = 64.0 * (1U << 20U);

/// A chunk on its way in the all-gather.
struct Send {
  std::uint32_t chunk = 0;
  std::uint32_t src = 0;
  std::uint32_t dst = 0;
  double start = 0;  // seconds
  double end = 0;
};

/// A route between two ranks that passes no other.
struct LinkWay {
  std::uint32_t src = 0;
  std::uint32_t dst = 0;
  bool crosses_groups = false;
  double time = 0;                                      // of a chunk, with latency
  std::vector<std::pair<std::uint32_t, double>> links;  // and for how long a chunk occupies each
};

/// Few chunks take less work, many divide evenly over the links of a rank.
std::uint32_t chunks_per_rank(std::size_t ranks) {
  constexpr std::size_t kFew = 16;
  constexpr std::size_t kSome = 32;
  if (ranks <= kFew) {
    return 4;
  }
  return ranks <= kSome ? 2 : 1;
}

std::uint64_t hash(std::uint64_t seed, std::uint64_t value) {  // splitmix64
  std::uint64_t x = seed * 0x9E3779B97F4A7C15U + value + 0x9E3779B97F4A7C15U;
  x = (x ^ (x >> 30U)) * 0xBF58476D1CE4E5B9U;
  x = (x ^ (x >> 27U)) * 0x94D049BB133111EBU;
  return x ^ (x >> 31U);
}

/// Of numbers below a fixed one.
class BitSet {
 public:
  explicit BitSet(std::size_t size = 0) : words_((size + kBits - 1) / kBits) {}
  void insert(std::size_t i) { words_[i / kBits] |= std::uint64_t{1} << (i % kBits); }
  void clear() { std::fill(words_.begin(), words_.end(), 0); }
  std::span<const std::uint64_t> words() const { return words_; }

  static constexpr std::size_t kBits = 64;
  /// Calls visit(number) for each number in the word `w` of a set.
  template <typename Visit>
  static void visit_word(std::size_t w, std::uint64_t word, Visit visit) {
    for (; word != 0; word &= word - 1) {
      visit(w * kBits + static_cast<std::size_t>(std::countr_zero(word)));
    }
  }

 private:
  std::vector<std::uint64_t> words_;
};

class Matching {
 public:
  Matching(const topology::Topology& topology, topology::Router& router, std::uint32_t chunks);

  std::uint32_t chunk_count() const { return chunks_; }
  /// The all-gather in the order of starts.
  std::vector<Send> run(std::uint64_t attempt);

 private:
  struct Event {
    double time = 0;
    std::uint32_t send = 0;  // that arrives, or
    std::uint32_t link = 0;  // that becomes free
    bool arrives = false;
    bool operator>(const Event& other) const { return time > other.time; }
  };

  bool match(const LinkWay& way, double now);
  std::optional<std::uint32_t> chunk_for(const LinkWay& way) const;
  void start(std::uint64_t attempt);
  void look_at_all_ways();
  void match_possible(double now);

  std::uint32_t ranks_;
  std::uint32_t chunks_;
  std::vector<std::uint32_t> group_of_;
  std::vector<std::uint32_t> position_;  // in near order
  std::vector<LinkWay> ways_;
  std::vector<std::vector<std::uint32_t>> ways_over_;  // by link
  std::vector<std::vector<std::uint32_t>> ways_from_;  // by rank

  // Of one run.
  std::uint64_t attempt_ = 0;
  bool spares_slow_ways_ = true;
  std::vector<std::uint32_t> order_;   // ways, those that go first first
  std::vector<std::uint32_t> place_;   // of each way in order_
  BitSet possible_;                    // places of ways that something has changed for
  std::vector<BitSet> holds_;          // by rank: chunks that are there
  std::vector<BitSet> awaits_;         // or on their way
  std::vector<BitSet> near_;           // by group: what one of its ranks holds or awaits
  std::vector<std::uint32_t> copies_;  // by chunk: ranks that hold or await it
  std::vector<double> free_at_;        // by link
  std::vector<Send> sends_;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
};

Matching::Matching(const topology::Topology& topology, topology::Router& router,
                   std::uint32_t chunks)
    : ranks_(static_cast<std::uint32_t>(topology.rank_count())),
      chunks_(ranks_ * chunks),
      group_of_(ranks_),
      position_(ranks_),
      ways_over_(topology.link_count()),
      ways_from_(ranks_) {
  const auto groups = tier_groups(topology);
  for (std::uint32_t g = 0; g < groups.size(); ++g) {
    for (const Rank rank : groups[g].ranks) {
      group_of_[rank.index()] = g;
    }
  }
  const std::vector<Rank> order = near_order(topology);
  for (std::uint32_t i = 0; i < ranks_; ++i) {
    position_[order[i].index()] = i;
  }
  const double bytes = kPlannedBytes / chunks_;
  for (std::uint32_t src = 0; src < ranks_; ++src) {
    for (std::uint32_t dst = 0; dst < ranks_; ++dst) {
      if (src == dst) {
        continue;
      }
      const topology::Route& route = router.route(Rank(src), Rank(dst));
      if (std::any_of(route.begin() + 1, route.end(), [&](LinkId link) {
            return topology.rank_of(topology.link(link).from).has_value();
          })) {
        continue;
      }
      const auto index = static_cast<std::uint32_t>(ways_.size());
      LinkWay& way = ways_.emplace_back();
      way.src = src;
      way.dst = dst;
      way.crosses_groups = group_of_[src] != group_of_[dst];
      for (const LinkId link : route) {
        const double busy =
            bytes / static_cast<double>(topology.link(link).bandwidth.bytes_per_second());
        way.links.emplace_back(link.value(), busy);
        way.time = std::max(way.time, busy);
        ways_over_[link.index()].push_back(index);
      }
      way.time += topology::route_latency(topology, route).seconds();
      ways_from_[src].push_back(index);
    }
  }
}

/// The chunk that fewest ranks hold or await of those that the way can bring.
std::optional<std::uint32_t> Matching::chunk_for(const LinkWay& way) const {
  std::optional<std::uint32_t> best;
  std::pair<std::uint32_t, std::uint64_t> least;
  const auto held = holds_[way.src].words();
  const auto awaited = awaits_[way.dst].words();
  const auto near = near_[group_of_[way.dst]].words();
  const bool spares = way.crosses_groups && spares_slow_ways_;
  for (std::size_t w = 0; w < held.size(); ++w) {
    const std::uint64_t wanted = held[w] & ~awaited[w] & ~(spares ? near[w] : 0);
    BitSet::visit_word(w, wanted, [&](std::size_t chunk) {
      if (best.has_value() && copies_[chunk] > least.first) {
        return;
      }
      const std::uint64_t tie = hash(attempt_, (std::uint64_t{way.dst} << 32U) | chunk);
      const std::pair cost(copies_[chunk], tie);
      if (!best.has_value() || cost < least) {
        best = static_cast<std::uint32_t>(chunk);
        least = cost;
      }
    });
  }
  return best;
}

bool Matching::match(const LinkWay& way, double now) {
  if (std::any_of(way.links.begin(), way.links.end(),
                  [&](const auto& link) { return free_at_[link.first] > now; })) {
    return false;
  }
  const auto chunk = chunk_for(way);
  if (!chunk.has_value()) {
    return false;
  }
  awaits_[way.dst].insert(*chunk);
  near_[group_of_[way.dst]].insert(*chunk);
  ++copies_[*chunk];
  for (const auto& [link, busy] : way.links) {
    free_at_[link] = now + busy;
    events_.push({free_at_[link], 0, link, false});
  }
  events_.push({now + way.time, static_cast<std::uint32_t>(sends_.size()), 0, true});
  sends_.push_back({*chunk, way.src, way.dst, now, now + way.time});
  return true;
}

void Matching::look_at_all_ways() {
  for (std::size_t place = 0; place < ways_.size(); ++place) {
    possible_.insert(place);
  }
}

void Matching::match_possible(double now) {
  const auto words = possible_.words();
  for (std::size_t w = 0; w < words.size(); ++w) {
    BitSet::visit_word(w, words[w], [&](std::size_t place) { match(ways_[order_[place]], now); });
  }
  possible_.clear();
}

void Matching::start(std::uint64_t attempt) {
  attempt_ = attempt;
  spares_slow_ways_ = true;
  std::vector<std::uint64_t> priority(ways_.size());
  for (std::uint32_t w = 0; w < ways_.size(); ++w) {
    const std::uint64_t apart =
        (position_[ways_[w].dst] + ranks_ - position_[ways_[w].src]) % ranks_;
    priority[w] = attempt == 0 ? apart : hash(attempt, w);
  }
  order_.resize(ways_.size());
  std::iota(order_.begin(), order_.end(), 0U);
  const auto key = [&](std::uint32_t way) {
    return std::tuple(ways_[way].time, priority[way], way);
  };
  std::sort(order_.begin(), order_.end(),
            [&](std::uint32_t a, std::uint32_t b) { return key(a) < key(b); });
  place_.resize(ways_.size());
  for (std::uint32_t place = 0; place < order_.size(); ++place) {
    place_[order_[place]] = place;
  }
  possible_ = BitSet(ways_.size());
  holds_.assign(ranks_, BitSet(chunks_));
  near_.assign(ranks_, BitSet(chunks_));  // there are no more groups than ranks
  copies_.assign(chunks_, 1);
  for (std::uint32_t chunk = 0; chunk < chunks_; ++chunk) {
    holds_[chunk % ranks_].insert(chunk);
    near_[group_of_[chunk % ranks_]].insert(chunk);
  }
  awaits_ = holds_;
  free_at_.assign(ways_over_.size(), 0.0);
  sends_.clear();
}

std::vector<Send> Matching::run(std::uint64_t attempt) {
  start(attempt);
  double now = 0;
  look_at_all_ways();
  match_possible(now);
  const std::size_t wanted = std::size_t{chunks_} * (ranks_ - 1);
  while (sends_.size() < wanted || !events_.empty()) {
    Work::step();
    if (events_.empty()) {  // only slow ways are left for some chunk
      spares_slow_ways_ = false;
      look_at_all_ways();
    } else {
      now = events_.top().time;
      // Times that differ by rounding only are one moment.
      constexpr double kSameMoment = 1e-12;
      const double until = now + kSameMoment;
      while (!events_.empty() && events_.top().time <= until) {
        const Event event = events_.top();
        events_.pop();
        now = event.time;
        if (event.arrives) {
          holds_[sends_[event.send].dst].insert(sends_[event.send].chunk);
        }
        for (const std::uint32_t way :
             event.arrives ? ways_from_[sends_[event.send].dst] : ways_over_[event.link]) {
          possible_.insert(place_[way]);
        }
      }
    }
    match_possible(now);
  }
  return sends_;
}

/// Backwards: what arrived last is sent first.
std::vector<Send> reversed(const std::vector<Send>& sends) {
  double last = 0;
  for (const Send& send : sends) {
    last = std::max(last, send.end);
  }
  std::vector<Send> backwards;
  for (auto send = sends.rbegin(); send != sends.rend(); ++send) {
    backwards.push_back({send->chunk, send->dst, send->src, last - send->end, last - send->start});
  }
  return backwards;
}

/// Adds the sends as transfers. `arrived` is, by chunk and rank, what a transfer of the chunk from
/// the rank must wait for; it grows.
void add_sends(GraphBuilder& builder, const std::vector<Send>& sends, bool reduces,
               std::uint32_t ranks, std::vector<std::vector<TransferId>>& arrived) {
  std::vector<std::multimap<double, TransferId>> arrivals(ranks);
  for (const Send& send : sends) {
    constexpr double kSameMoment = 1e-12;
    auto& known = arrivals[send.src];
    std::vector<TransferId> after = arrived[std::size_t{send.chunk} * ranks + send.src];
    const auto next = known.upper_bound(send.start + kSameMoment);
    if (next != known.begin()) {
      const TransferId pace = std::prev(next)->second;
      if (std::find(after.begin(), after.end(), pace) == after.end()) {
        after.push_back(pace);
      }
    }
    const Rank src(send.src);
    const Rank dst(send.dst);
    const TransferId id = reduces ? builder.reduce(src, dst, {send.chunk, 1}, after)
                                  : builder.copy(src, dst, {send.chunk, 1}, after);
    auto& at_target = arrived[std::size_t{send.chunk} * ranks + send.dst];
    if (!reduces) {
      at_target.clear();
    }
    at_target.push_back(id);
    arrivals[send.dst].emplace(send.end, id);
  }
}

class GreedyMatching final : public ScheduleFamily {
 public:
  std::string_view name() const override { return "greedy-matching"; }

  std::optional<std::string> refusal(const topology::Topology& topology,
                                     const TierCodecs& codecs) const override {
    if (topology.rank_count() < 2) {
      return "one rank alone has nothing to exchange";
    }
    if (topology.rank_count() > kMostRanksMatched) {
      return "it is made for at most 128 ranks";
    }
    return refuse_lossy_hops(codecs);
  }

  plan::TransferGraph all_reduce(const ScheduleRequest& request) const override {
    const auto ranks = static_cast<std::uint32_t>(request.topology.rank_count());
    Matching matching(request.topology, request.router, chunks_per_rank(ranks));
    std::vector<Send> gather;
    double best = 0;
    for (std::uint64_t attempt = 0; attempt < kAttempts; ++attempt) {
      std::vector<Send> sends = matching.run(attempt);
      double end = 0;
      for (const Send& send : sends) {
        end = std::max(end, send.end);
      }
      if (gather.empty() || end < best) {
        best = end;
        gather = std::move(sends);
      }
    }
    GraphBuilder builder("greedy-matching", request,
                         std::vector<std::uint32_t>(matching.chunk_count(), 1));
    std::vector<std::vector<TransferId>> arrived(std::size_t{matching.chunk_count()} * ranks);
    add_sends(builder, reversed(gather), true, ranks, arrived);
    add_sends(builder, gather, false, ranks, arrived);
    return builder.take();
  }
};

}  // namespace

std::unique_ptr<ScheduleFamily> make_greedy_matching() {
  return std::make_unique<GreedyMatching>();
}

}  // namespace rackrail::planner
