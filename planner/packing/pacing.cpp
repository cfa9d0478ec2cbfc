#include "planner/packing/pacing.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <optional>
#include <queue>
#include <tuple>

#include "base/work.hpp"

namespace rackrail::planner {

namespace {

// Times between the due times of pieces that are tried, over what the busiest link takes for as
// much data, and pieces of each part, in the mean, that they are tried with.
constexpr double kPeriods[] = {0, 0.15, 0.3, 0.5, 1};
constexpr std::size_t kTrialPieces = 16;

// Parts that take turns begin as many of a piece's lengths after each other, which spreads any
// number of them evenly (the golden ratio).
constexpr double kBetweenParts = 0.6180339887498949;

/// A piece of a part: its share of the part's data, and when its turn is, as a share of the whole
/// time.
struct PacedPiece {
  double share = 0;
  double turn = 0;
};
using PacedPieces = std::vector<std::vector<PacedPiece>>;  // by part

PacedPieces pieces_of(const Cuts& cuts) {
  PacedPieces pieces;
  for (std::size_t part = 0; part < cuts.sizes.size(); ++part) {
    const std::vector<std::int64_t>& sizes = cuts.sizes[part];
    const double turns = kBetweenParts * static_cast<double>(part);
    const double phase = cuts.take_turns ? turns - std::floor(turns) : 0;
    const auto whole = std::accumulate(sizes.begin(), sizes.end(), 0.0);
    double before = 0;
    auto& of_part = pieces.emplace_back();
    for (const std::int64_t piece : sizes) {
      const auto size = static_cast<double>(piece);
      of_part.push_back({size / whole, (before + phase * size) / whole});
      before += size;
    }
  }
  return pieces;
}

/// The first so many of each part, as if all were alike.
PacedPieces for_trial(const PacedPieces& pieces) {
  std::size_t all = 0;
  for (const auto& of_part : pieces) {
    all += of_part.size();
  }
  const std::size_t wanted = std::min(all, kTrialPieces * pieces.size());
  PacedPieces trial;
  for (const auto& of_part : pieces) {
    const std::size_t count = std::max<std::size_t>(1, (of_part.size() * wanted + all / 2) / all);
    auto& some = trial.emplace_back();
    for (std::size_t i = 0; i < count; ++i) {
      some.push_back({1 / static_cast<double>(of_part.size()), of_part[i].turn});
    }
  }
  return trial;
}

/// Moves as an index: what follows each, how long it takes and how urgent it is.
class MoveIndex {
 public:
  /// `bytes` are those of a unit of weight in all pieces together. Chains are those of pieces of
  /// the mean size.
  MoveIndex(const std::vector<Move>& moves, const topology::Topology& topology, double bytes,
            const PacedPieces& pieces = {})
      : seconds(moves.size()),
        latency(moves.size()),
        addition(moves.size()),
        chain(moves.size()),
        followers(moves.size()),
        lane(moves.size()) {
    std::vector<double> load(topology.link_count());
    for (std::uint32_t m = 0; m < moves.size(); ++m) {
      for (const LinkId link : *moves[m].route) {
        const double taken = time_on(topology, link, moves[m].weight);
        seconds[m] = std::max(seconds[m], taken);
        load[link.index()] += taken;
      }
      if (bytes > 0) {
        latency[m] = moves[m].latency / bytes;
        addition[m] = moves[m].seconds_per_byte * static_cast<double>(moves[m].weight);
      }
      for (const std::uint32_t before : moves[m].predecessors) {
        followers[before].push_back(m);
      }
    }
    all_seconds = load.empty() ? 0 : *std::max_element(load.begin(), load.end());
    for (std::size_t m = moves.size(); m-- > 0;) {
      double longest = 0;
      for (const std::uint32_t next : followers[m]) {
        longest = std::max(longest, chain[next]);
      }
      const std::size_t count = pieces.empty() ? 1 : pieces[moves[m].part].size();
      chain[m] = (seconds[m] + addition[m]) / static_cast<double>(count) + latency[m] + longest;
    }
    join_lanes(moves);
  }

  /// Chains of all parts count as if they were as long as the longest: else the parts with long
  /// ones would run ahead of their turns.
  void level_chains(const std::vector<Move>& moves) {
    std::vector<double> longest;  // by part
    for (std::size_t m = 0; m < moves.size(); ++m) {
      longest.resize(std::max<std::size_t>(longest.size(), moves[m].part + 1));
      longest[moves[m].part] = std::max(longest[moves[m].part], chain[m]);
    }
    const double all = longest.empty() ? 0 : *std::max_element(longest.begin(), longest.end());
    for (std::size_t m = 0; m < moves.size(); ++m) {
      chain[m] *= longest[moves[m].part] > 0 ? all / longest[moves[m].part] : 1;
    }
  }

  static double time_on(const topology::Topology& topology, LinkId link, std::int64_t weight) {
    return static_cast<double>(weight) /
           static_cast<double>(topology.link(link).bandwidth.bytes_per_second());
  }

  // Times are in seconds over the bytes of a unit of weight.
  std::vector<double> seconds;  ///< of each move, all of it, on its narrowest link
  // From its end until what waits for it may begin: these two.
  std::vector<double> latency;
  std::vector<double> addition;
  std::vector<double> chain;  ///< of each move and the longest chain behind it
  std::vector<std::vector<std::uint32_t>> followers;
  std::vector<std::uint32_t> lane;                  ///< of each move: those of one route
  std::vector<const topology::Route*> lane_routes;  ///< by lane
  double all_seconds = 0;                           ///< of the busiest link

 private:
  void join_lanes(const std::vector<Move>& moves) {
    std::vector<std::uint32_t> by_route(moves.size());
    for (std::uint32_t m = 0; m < moves.size(); ++m) {
      by_route[m] = m;
    }
    std::stable_sort(by_route.begin(), by_route.end(), [&](std::uint32_t a, std::uint32_t b) {
      return *moves[a].route < *moves[b].route;
    });
    for (const std::uint32_t m : by_route) {
      if (lane_routes.empty() || *lane_routes.back() != *moves[m].route) {
        lane_routes.push_back(moves[m].route);
      }
      lane[m] = static_cast<std::uint32_t>(lane_routes.size() - 1);
    }
  }
};

constexpr std::uint64_t kWorkPerEvent = 4;  // of a ListSchedule

/// Goes through time as a simulator would: every lane that has something ready sends, one move
/// after the other, and lanes that meet on a link have equal parts of it.
class ListSchedule {
 public:
  /// The last pieces would be due at `period`. `rates` (bytes per second) are those of the lanes,
  /// none where links are shared evenly.
  ListSchedule(const std::vector<Move>& moves, const MoveIndex& index, const PacedPieces& pieces,
               const std::vector<double>& rates, const topology::Topology& topology, double period,
               std::uint32_t slices = 1)
      : moves_(moves),
        index_(index),
        topology_(topology),
        pieces_(pieces),
        rates_(rates),
        period_(period),
        slices_(slices),
        lanes_(index.lane_routes.size()),
        sending_(topology.link_count()) {
    for (std::uint32_t m = 0; m < moves.size(); ++m) {
      const auto count = static_cast<std::uint32_t>(pieces[moves[m].part].size());
      first_.push_back(missing_.size());
      missing_.resize(missing_.size() + count,
                      static_cast<std::uint32_t>(moves[m].predecessors.size()));
      if (moves[m].predecessors.empty()) {
        for (std::uint32_t piece = 0; piece < count; ++piece) {
          wait({m, piece});
        }
      }
    }
    turns_.reserve(missing_.size());
    for (std::uint32_t lane = 0; lane < lanes_.size(); ++lane) {
      wake(lane);
    }
    while (!ends_.empty() || !arrivals_.empty()) {
      Work::step(kWorkPerEvent);
      if (ends_.empty() || (!arrivals_.empty() && arrivals_.top().time <= ends_.top().time)) {
        const Arrival arrival = arrivals_.top();
        arrivals_.pop();
        now_ = arrival.time;
        arrive(arrival.turn, arrival.is_whole);
        continue;
      }
      const End end = ends_.top();
      ends_.pop();
      if (end.version == lanes_[end.lane].version) {
        now_ = end.time;
        finish(end.lane);
      }
    }
  }

  double makespan() const { return now_; }
  std::vector<Turn> take() { return std::move(turns_); }

 private:
  struct Waiting {
    double due;
    double planned;  // the piece's turn
    Turn turn;
    bool operator<(const Waiting& other) const {  // the least urgent first, for std::priority_queue
      return std::tie(due, planned, turn.piece, turn.move) >
             std::tie(other.due, other.planned, other.turn.piece, other.turn.move);
    }
  };
  struct Lane {
    std::priority_queue<Waiting> waiting;
    bool is_sending = false;
    Turn turn;        // that it sends
    double left = 0;  // of its weight, at `since`
    double rate = 0;
    double since = 0;
    std::uint32_t version = 0;  // of its end, which moves when the rate changes
  };
  struct End {
    double time;
    std::uint32_t lane;
    std::uint32_t version;
    bool operator<(const End& other) const {
      return std::tie(time, lane, version) > std::tie(other.time, other.lane, other.version);
    }
  };
  struct Arrival {
    double time;
    Turn turn;
    bool is_whole;  // else its first slice
    bool operator<(const Arrival& other) const {
      return std::tie(time, turn.piece, turn.move) >
             std::tie(other.time, other.turn.piece, other.turn.move);
    }
  };

  std::size_t place(Turn turn) const { return first_[turn.move] + turn.piece; }
  const PacedPiece& piece_of(Turn turn) const {
    return pieces_[moves_[turn.move].part][turn.piece];
  }

  void wait(Turn turn) {
    const double planned = piece_of(turn).turn;
    lanes_[index_.lane[turn.move]].waiting.push(
        {period_ * planned - index_.chain[turn.move], planned, turn});
  }

  /// A lane that has something begins to send.
  void wake(std::uint32_t lane) {
    if (lanes_[lane].is_sending || lanes_[lane].waiting.empty()) {
      return;
    }
    lanes_[lane].is_sending = true;
    begin_next(lane);
    if (!rates_.empty()) {
      lanes_[lane].rate = rates_[lane];
      expect_end(lane);
      expect_first_slice(lane);
      return;
    }
    for (const LinkId link : *index_.lane_routes[lane]) {
      sending_[link.index()].push_back(lane);
    }
    share_anew(lane);
    expect_first_slice(lane);
  }

  void begin_next(std::uint32_t lane) {
    Lane& l = lanes_[lane];
    l.turn = l.waiting.top().turn;
    l.waiting.pop();
    l.left = static_cast<double>(moves_[l.turn.move].weight) * piece_of(l.turn).share;
    l.since = now_;
    turns_.push_back(l.turn);
  }

  void finish(std::uint32_t lane) {
    const Turn done = lanes_[lane].turn;
    const double delay =
        index_.latency[done.move] + index_.addition[done.move] * piece_of(done).share;
    if (delay > 0) {
      arrivals_.push({now_ + delay, done, true});
    } else {
      arrive(done, true);
    }
    if (!lanes_[lane].waiting.empty()) {
      begin_next(lane);
      expect_end(lane);
      expect_first_slice(lane);
      return;
    }
    lanes_[lane].is_sending = false;
    ++lanes_[lane].version;
    if (!rates_.empty()) {
      return;
    }
    for (const LinkId link : *index_.lane_routes[lane]) {
      auto& others = sending_[link.index()];
      others.erase(std::find(others.begin(), others.end(), lane));
    }
    share_anew(lane);
  }

  /// What waits for the move, or for its first slice, may begin.
  void arrive(Turn done, bool is_whole) {
    for (const std::uint32_t next : index_.followers[done.move]) {
      if (is_sliced_on(done.move, next) == is_whole) {
        continue;
      }
      const Turn follower{next, done.piece};
      if (--missing_[place(follower)] == 0) {
        wait(follower);
        wake(index_.lane[next]);
      }
    }
  }

  /// Whether slices of what a move brings go on before all of it is there.
  bool is_sliced_on(std::uint32_t move, std::uint32_t next) const {
    return slices_ > 1 && moves_[move].chunk == moves_[next].chunk;
  }

  /// Precondition: the lane's rate is known.
  void expect_first_slice(std::uint32_t lane) {
    if (slices_ > 1) {
      const Lane& l = lanes_[lane];
      const double of_slice =
          l.left / l.rate + index_.addition[l.turn.move] * piece_of(l.turn).share;
      arrivals_.push({now_ + of_slice / slices_ + index_.latency[l.turn.move], l.turn, false});
    }
  }

  /// New rates for all that meet this lane, after it came or went.
  void share_anew(std::uint32_t lane) {
    for (const LinkId link : *index_.lane_routes[lane]) {
      Work::step(sending_[link.index()].size());
      for (const std::uint32_t other : sending_[link.index()]) {
        Lane& l = lanes_[other];
        const double rate = rate_of(other);
        if (rate != l.rate || other == lane) {
          l.left -= l.rate * (now_ - l.since);
          l.since = now_;
          l.rate = rate;
          expect_end(other);
        }
      }
    }
  }

  double rate_of(std::uint32_t lane) const {
    double rate = std::numeric_limits<double>::infinity();
    for (const LinkId link : *index_.lane_routes[lane]) {
      rate = std::min(rate, static_cast<double>(topology_.link(link).bandwidth.bytes_per_second()) /
                                static_cast<double>(sending_[link.index()].size()));
    }
    return rate;
  }

  void expect_end(std::uint32_t lane) {
    Lane& l = lanes_[lane];
    ends_.push({l.since + std::max(0.0, l.left) / l.rate, lane, ++l.version});
  }

  const std::vector<Move>& moves_;
  const MoveIndex& index_;
  const topology::Topology& topology_;
  const PacedPieces& pieces_;
  const std::vector<double>& rates_;
  double period_;
  std::uint32_t slices_;  // of each piece of a move
  double now_ = 0;
  std::vector<Lane> lanes_;
  std::vector<std::vector<std::uint32_t>> sending_;  // lanes, by link
  std::vector<std::size_t> first_;                   // turn of each move
  std::vector<std::uint32_t> missing_;               // predecessors of each turn
  std::priority_queue<End> ends_;
  std::priority_queue<Arrival> arrivals_;
  std::vector<Turn> turns_;
};

}  // namespace

std::vector<Turn> in_stages(const std::vector<Move>& moves, std::size_t rounds) {
  std::vector<std::vector<std::uint32_t>> by_stage;
  std::vector<std::size_t> stage(moves.size());
  for (std::uint32_t m = 0; m < moves.size(); ++m) {
    for (const std::uint32_t before : moves[m].predecessors) {
      stage[m] = std::max(stage[m], stage[before] + 1);
    }
    by_stage.resize(std::max(by_stage.size(), stage[m] + 1));
    by_stage[stage[m]].push_back(m);
  }
  std::vector<Turn> turns;
  for (std::size_t step = 0; step + 1 < by_stage.size() + rounds; ++step) {
    for (std::size_t round = 0; round < rounds && round <= step; ++round) {
      if (step - round < by_stage.size()) {
        for (const std::uint32_t m : by_stage[step - round]) {
          turns.push_back({m, static_cast<std::uint32_t>(round)});
        }
      }
    }
  }
  return turns;
}

std::vector<Turn> paced(const std::vector<Move>& moves, const Cuts& cuts,
                        const topology::Topology& topology, double bytes,
                        const std::vector<Bandwidth>& rates) {
  const PacedPieces pieces = pieces_of(cuts);
  MoveIndex index(moves, topology, bytes, pieces);
  if (cuts.take_turns) {
    index.level_chains(moves);
  }
  std::vector<double> lane_rates(rates.empty() ? 0 : index.lane_routes.size());
  for (std::size_t m = 0; m < rates.size(); ++m) {
    lane_rates[index.lane[m]] = static_cast<double>(rates[m].bytes_per_second());
  }
  const PacedPieces trial = for_trial(pieces);
  double shortest = std::numeric_limits<double>::infinity();
  double best = 0;
  for (const double share : kPeriods) {
    const double period = share * index.all_seconds;
    const double time =
        ListSchedule(moves, index, trial, lane_rates, topology, period, cuts.slices).makespan();
    if (time < shortest) {
      shortest = time;
      best = period;
    }
  }
  return ListSchedule(moves, index, pieces, lane_rates, topology, best, cuts.slices).take();
}

}  // namespace rackrail::planner
