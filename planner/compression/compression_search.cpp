#include "planner/compression/compression_search.hpp"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <utility>

namespace rackrail::planner {

namespace {

using Time = Timeline::Time;
using State = Timeline::State;
using ConstState = Timeline::ConstState;

/// A choice, the states before each of its buckets, and the tails from each of them on.
class Walk {
 public:
  Walk(const Timeline& timeline, Assignment assignment)
      : timeline_(timeline),
        assignment_(std::move(assignment)),
        states_((timeline.bucket_count() + 1) * timeline.width()),
        tails_(states_.size()),
        scratch_(timeline.width()) {
    timeline_.start(state(0));
    timeline_.end(tail(timeline_.bucket_count()));
    recompute(0, timeline_.bucket_count());
  }

  const Assignment& assignment() const { return assignment_; }
  Time step() const { return Timeline::join(state(0), tail(0)); }

  Time step_with(std::size_t bucket, std::uint32_t option) {
    timeline_.advance(state(bucket), bucket, option, scratch_);
    return Timeline::join(scratch_, tail(bucket + 1));
  }

  /// With two buckets changed; `first` < `second`.
  Time step_with(std::size_t first, std::uint32_t first_option, std::size_t second,
                 std::uint32_t second_option) {
    timeline_.advance(state(first), first, first_option, scratch_);
    for (std::size_t b = first + 1; b < second; ++b) {
      timeline_.advance(scratch_, b, assignment_[b], scratch_);
    }
    timeline_.advance(scratch_, second, second_option, scratch_);
    return Timeline::join(scratch_, tail(second + 1));
  }

  void set(std::size_t bucket, std::uint32_t option) {
    assignment_[bucket] = option;
    recompute(bucket, bucket + 1);
  }

 private:
  State state(std::size_t bucket) {
    return State(states_).subspan(bucket * timeline_.width(), timeline_.width());
  }
  ConstState state(std::size_t bucket) const {
    return ConstState(states_).subspan(bucket * timeline_.width(), timeline_.width());
  }
  State tail(std::size_t bucket) {
    return State(tails_).subspan(bucket * timeline_.width(), timeline_.width());
  }
  ConstState tail(std::size_t bucket) const {
    return ConstState(tails_).subspan(bucket * timeline_.width(), timeline_.width());
  }

  /// After a change of the buckets [first, end).
  void recompute(std::size_t first, std::size_t end) {
    for (std::size_t b = first; b < timeline_.bucket_count(); ++b) {
      timeline_.advance(state(b), b, assignment_[b], state(b + 1));
    }
    for (std::size_t b = end; b-- > 0;) {
      timeline_.retreat(tail(b + 1), b, assignment_[b], tail(b));
    }
  }

  const Timeline& timeline_;
  Assignment assignment_;
  std::vector<Time> states_;
  std::vector<Time> tails_;
  std::vector<Time> scratch_;
};

/// Partial choices for the buckets so far, each a state and the way to it.
class Labels {
 public:
  Labels(const Timeline& timeline, std::size_t limit)
      : timeline_(timeline), limit_(limit), least_(timeline.least_tails()) {}

  Time bound() const {
    std::vector<Time> start(timeline_.width());
    timeline_.start(start);
    return Timeline::join(start, ConstState(least_).first(timeline_.width()));
  }
  bool is_exact() const { return is_exact_; }

  /// A choice below `best`, if labels lead to one; with is_exact(), none means that there is none.
  std::vector<Assignment> run(Time best) {
    const std::size_t width = timeline_.width();
    std::vector<Time> states(width);
    timeline_.start(states);
    std::size_t count = 1;
    for (std::size_t b = 0; b < timeline_.bucket_count() && count > 0; ++b) {
      grow(states, count, b, best);
      prune();
      count = kept_.size();
      states.resize(count * width);
      std::vector<Step> steps;
      for (std::size_t i = 0; i < count; ++i) {
        const Grown& label = grown_[kept_[i]];
        const auto from = grown_states_.begin() + static_cast<std::ptrdiff_t>(kept_[i] * width);
        std::copy_n(from, width, states.begin() + static_cast<std::ptrdiff_t>(i * width));
        steps.push_back(label.step);
      }
      history_.push_back(std::move(steps));
    }
    if (count == 0) {
      return {};
    }
    Assignment assignment(timeline_.bucket_count());
    std::uint32_t at = 0;  // the label with the best bound, which is its step now
    for (std::size_t b = assignment.size(); b-- > 0;) {
      assignment[b] = history_[b][at].option;
      at = history_[b][at].parent;
    }
    return {std::move(assignment)};
  }

 private:
  struct Step {
    std::uint32_t parent = 0;
    std::uint32_t option = 0;
  };
  struct Grown {
    Time bound = 0;
    Step step;
  };

  void grow(const std::vector<Time>& states, std::size_t count, std::size_t bucket, Time best) {
    const std::size_t width = timeline_.width();
    const ConstState least = ConstState(least_).subspan((bucket + 1) * width, width);
    grown_.clear();
    grown_states_.clear();
    std::vector<Time> next(width);
    for (std::uint32_t i = 0; i < count; ++i) {
      const ConstState state = ConstState(states).subspan(i * width, width);
      for (std::uint32_t o = 0; o < timeline_.option_count(bucket); ++o) {
        timeline_.advance(state, bucket, o, next);
        const Time bound = Timeline::join(next, least);
        if (bound < best) {
          grown_.push_back({bound, {i, o}});
          grown_states_.insert(grown_states_.end(), next.begin(), next.end());
        }
      }
    }
  }

  void prune() {
    const std::size_t width = timeline_.width();
    const auto state = [&](std::uint32_t i) {
      return ConstState(grown_states_).subspan(i * width, width);
    };
    std::vector<std::uint32_t> order(grown_.size());
    std::iota(order.begin(), order.end(), 0U);
    // Of labels with one bound those that leave most room: the sum of the state decides.
    std::vector<Time> sums(grown_.size());
    for (const std::uint32_t i : order) {
      for (const Time time : state(i)) {
        sums[i] += time / static_cast<Time>(width);
      }
    }
    std::stable_sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) {
      return std::pair(grown_[a].bound, sums[a]) < std::pair(grown_[b].bound, sums[b]);
    });
    kept_.clear();
    for (const std::uint32_t i : order) {
      const bool is_dominated = std::any_of(kept_.begin(), kept_.end(), [&](std::uint32_t k) {
        return std::equal(state(k).begin(), state(k).end(), state(i).begin(),
                          [](Time a, Time b) { return a <= b; });
      });
      if (is_dominated) {
        continue;
      }
      if (kept_.size() == limit_) {
        is_exact_ = false;
        return;
      }
      kept_.push_back(i);
    }
  }

  const Timeline& timeline_;
  std::size_t limit_;
  std::vector<Time> least_;
  std::vector<std::vector<Step>> history_;  ///< by bucket
  std::vector<Grown> grown_;
  std::vector<Time> grown_states_;
  std::vector<std::uint32_t> kept_;
  bool is_exact_ = true;
};

constexpr int kSweeps = 20;

bool improve_one(const Timeline& timeline, Walk& walk) {
  bool improved = false;
  for (std::size_t b = 0; b < timeline.bucket_count(); ++b) {
    Time best = walk.step();
    std::uint32_t better = walk.assignment()[b];
    for (std::uint32_t o = 0; o < timeline.option_count(b); ++o) {
      const Time step = walk.step_with(b, o);
      if (step < best) {
        best = step;
        better = o;
      }
    }
    if (better != walk.assignment()[b]) {
      walk.set(b, better);
      improved = true;
    }
  }
  return improved;
}

bool improve_two(const Timeline& timeline, Walk& walk, std::size_t window) {
  bool improved = false;
  for (std::size_t a = 0; a < timeline.bucket_count(); ++a) {
    const std::size_t end = std::min(timeline.bucket_count(), a + window + 1);
    for (std::size_t b = a + 1; b < end; ++b) {
      const Time before = walk.step();
      bool found = false;
      for (std::uint32_t i = 0; i < timeline.option_count(a) && !found; ++i) {
        for (std::uint32_t j = 0; j < timeline.option_count(b) && !found; ++j) {
          found = walk.step_with(a, i, b, j) < before;
          if (found) {
            walk.set(a, i);
            walk.set(b, j);
          }
        }
      }
      improved = improved || found;
    }
  }
  return improved;
}

/// Local moves until none helps.
void improve(const Timeline& timeline, Walk& walk, std::size_t window) {
  for (int sweep = 0; sweep < kSweeps; ++sweep) {
    if (!improve_one(timeline, walk) && !improve_two(timeline, walk, window)) {
      return;
    }
  }
}

}  // namespace

CompressionChoice search_compression(const Timeline& timeline,
                                     const std::vector<Assignment>& starts,
                                     const CompressionLimits& limits) {
  std::vector<Assignment> known = starts;
  Assignment& fastest_alone = known.emplace_back();
  for (std::size_t b = 0; b < timeline.bucket_count(); ++b) {
    std::uint32_t fastest = 0;
    for (std::uint32_t o = 1; o < timeline.option_count(b); ++o) {
      fastest = timeline.alone(b, o) < timeline.alone(b, fastest) ? o : fastest;
    }
    fastest_alone.push_back(fastest);
  }
  CompressionChoice choice;
  bool is_first = true;
  const auto offer = [&](const Assignment& assignment) {
    const Duration step = timeline.step(assignment);
    if (is_first || step < choice.step) {
      choice.fastest = assignment;
      choice.step = step;
      is_first = false;
    }
  };
  for (const Assignment& assignment : known) {
    offer(assignment);
  }
  Labels labels(timeline, limits.labels);
  choice.bound = Duration(labels.bound());
  for (const Assignment& assignment : labels.run(choice.step.picoseconds())) {
    offer(assignment);
    known.push_back(assignment);
  }
  choice.is_exact = labels.is_exact() || choice.step == choice.bound;
  for (std::size_t i = 0; i < known.size() && !choice.is_exact; ++i) {
    Walk walk(timeline, known[i]);
    improve(timeline, walk, limits.pair_window);
    offer(walk.assignment());
    choice.is_exact = choice.step == choice.bound;
  }
  return choice;
}

std::vector<LighterOption> lighten(const Timeline& timeline, const Assignment& assignment,
                                   Duration limit) {
  Walk walk(timeline, assignment);
  std::vector<LighterOption> changes;
  std::vector<std::size_t> buckets(timeline.bucket_count());
  std::iota(buckets.begin(), buckets.end(), std::size_t{0});
  std::stable_sort(buckets.begin(), buckets.end(), [&](std::size_t a, std::size_t b) {
    return timeline.harm(a, assignment[a]) > timeline.harm(b, assignment[b]);
  });
  // A lighter option can free a resource for others, so once more until nothing changes.
  for (std::size_t before = SIZE_MAX; before != changes.size();) {
    before = changes.size();
    for (const std::size_t b : buckets) {
      std::uint32_t lightest = walk.assignment()[b];
      for (std::uint32_t o = 0; o < timeline.option_count(b); ++o) {
        if (timeline.harm(b, o) < timeline.harm(b, lightest) &&
            walk.step_with(b, o) <= limit.picoseconds()) {
          lightest = o;
        }
      }
      if (lightest != walk.assignment()[b]) {
        walk.set(b, lightest);
        changes.push_back({b, lightest});
      }
    }
  }
  return changes;
}

}  // namespace rackrail::planner
