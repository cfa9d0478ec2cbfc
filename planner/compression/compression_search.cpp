#include "planner/compression/compression_search.hpp"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <optional>
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

/// Pairs of buckets that are not farther apart than a window.
bool improve_two(const Timeline& timeline, Walk& walk) {
  constexpr std::size_t kWindow = 8;
  bool improved = false;
  for (std::size_t a = 0; a < timeline.bucket_count(); ++a) {
    const std::size_t end = std::min(timeline.bucket_count(), a + kWindow + 1);
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
void improve(const Timeline& timeline, Walk& walk) {
  constexpr int kMostSweeps = 20;
  for (int sweep = 0; sweep < kMostSweeps; ++sweep) {
    if (!improve_one(timeline, walk) && !improve_two(timeline, walk)) {
      return;
    }
  }
}

}  // namespace

CompressionChoice search_compression(const Timeline& timeline, std::vector<Assignment> starts) {
  Assignment& fastest_alone = starts.emplace_back();
  for (std::size_t b = 0; b < timeline.bucket_count(); ++b) {
    std::uint32_t fastest = 0;
    for (std::uint32_t o = 1; o < timeline.option_count(b); ++o) {
      fastest = timeline.alone(b, o) < timeline.alone(b, fastest) ? o : fastest;
    }
    fastest_alone.push_back(fastest);
  }
  std::optional<CompressionChoice> best;
  const auto offer = [&](const Assignment& assignment) {
    const Duration step = timeline.step(assignment);
    if (!best || step < best->step) {
      best = {assignment, step};
    }
  };
  for (const Assignment& start : starts) {
    offer(start);
  }
  for (const Assignment& start : starts) {
    Walk walk(timeline, start);
    improve(timeline, walk);
    offer(walk.assignment());
  }
  return *std::move(best);
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
