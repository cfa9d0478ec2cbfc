#include "planner/compression/compression_timeline.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "base/error.hpp"

namespace rackrail::planner {

namespace {

using Time = Timeline::Time;

// Far below every time, and still far from overflow when a step is added.
constexpr Time kNever = std::numeric_limits<Time>::min() / 4;

[[noreturn]] void reject(std::size_t bucket, const char* what) {
  throw PlanError(fmt::format("compression: bucket {} {}", bucket, what));
}

void check(const TimelineProblem& problem) {
  const Duration zero;
  const auto is_negative = [&](Duration time) { return time < zero; };
  for (std::size_t b = 0; b < problem.buckets.size(); ++b) {
    const TimelineBucket& bucket = problem.buckets[b];
    if (bucket.options.empty()) {
      reject(b, "has no option");
    }
    if (bucket.ready < (b == 0 ? zero : problem.buckets[b - 1].ready)) {
      reject(b, "is ready before the one before it");
    }
    for (const TimelineOption& option : bucket.options) {
      if (option.busy.size() != problem.resources || option.lead.size() != problem.resources) {
        reject(b, "has an option for another number of resources");
      }
      if (is_negative(option.alone) || is_negative(option.delay) ||
          std::any_of(option.busy.begin(), option.busy.end(), is_negative) ||
          std::any_of(option.lead.begin(), option.lead.end(), is_negative)) {
        reject(b, "has an option with a negative time");
      }
    }
  }
}

/// A resource adds nothing when another one is used from the same moment on and at least as long by
/// every option: then it is never free later. Of equal ones the first stays.
std::vector<std::size_t> needed_resources(const TimelineProblem& problem) {
  const auto covers = [&](std::size_t a, std::size_t b) {
    bool is_equal = true;
    for (const TimelineBucket& bucket : problem.buckets) {
      for (const TimelineOption& option : bucket.options) {
        if (option.busy[a] < option.busy[b] || option.lead[a] != option.lead[b]) {
          return false;
        }
        is_equal = is_equal && option.busy[a] == option.busy[b];
      }
    }
    return !is_equal || a < b;
  };
  std::vector<std::size_t> needed;
  for (std::size_t b = 0; b < problem.resources; ++b) {
    bool is_covered = false;
    for (std::size_t a = 0; a < problem.resources && !is_covered; ++a) {
      is_covered = a != b && covers(a, b);
    }
    if (!is_covered) {
      needed.push_back(b);
    }
  }
  return needed;
}

}  // namespace

Timeline::Timeline(const TimelineProblem& problem) {
  check(problem);
  const std::vector<std::size_t> needed = needed_resources(problem);
  resources_ = needed.size();
  compute_end_ = problem.compute_end.picoseconds();
  optimizer_ = problem.optimizer.picoseconds();
  first_.push_back(0);
  first_use_.push_back(0);
  for (const TimelineBucket& bucket : problem.buckets) {
    ready_.push_back(bucket.ready.picoseconds());
    for (const TimelineOption& option : bucket.options) {
      jobs_.push_back({option.alone.picoseconds(), option.delay.picoseconds()});
      harm_.push_back(option.harm);
      for (std::uint32_t q = 0; q < needed.size(); ++q) {
        const Time busy = option.busy[needed[q]].picoseconds();
        if (busy > 0) {
          uses_.push_back({q, option.lead[needed[q]].picoseconds(), busy});
        }
      }
      std::stable_sort(uses_.begin() + static_cast<std::ptrdiff_t>(first_use_.back()), uses_.end(),
                       [](const Use& a, const Use& b) { return a.lead < b.lead; });
      first_use_.push_back(uses_.size());
    }
    first_.push_back(jobs_.size());
  }
}

double Timeline::harm(const Assignment& assignment) const {
  double sum = 0;
  for (std::size_t b = 0; b < assignment.size(); ++b) {
    sum += harm(b, assignment[b]);
  }
  return sum;
}

Duration Timeline::step(const Assignment& assignment) const {
  if (assignment.size() != bucket_count()) {
    throw PlanError(
        fmt::format("compression: {} choices for {} buckets", assignment.size(), bucket_count()));
  }
  std::vector<Time> state(width());
  std::vector<Time> tail(width());
  start(state);
  for (std::size_t b = 0; b < assignment.size(); ++b) {
    advance(state, b, assignment[b], state);
  }
  end(tail);
  return Duration(join(state, tail));
}

void Timeline::start(State state) const { std::fill(state.begin(), state.end(), 0); }

void Timeline::advance(ConstState before, std::size_t bucket, std::uint32_t option,
                       State after) const {
  const std::size_t number = first_[bucket] + option;
  const Job& job = jobs_[number];
  const std::span<const Use> uses = this->uses(number);
  if (after.data() != before.data()) {
    std::copy(before.begin(), before.end(), after.begin());
  }
  // When the collective would have started to be where it is, if nothing had held it up.
  Time start = ready_[bucket] + before[resources_];
  for (std::size_t i = 0; i < uses.size();) {
    const std::size_t first = i;
    for (; i < uses.size() && uses[i].lead == uses[first].lead; ++i) {
      start = std::max(start, before[uses[i].resource] - uses[i].lead);
    }
    for (std::size_t k = first; k < i; ++k) {
      after[uses[k].resource] = start + uses[k].lead + uses[k].busy;
    }
  }
  after[resources_] += job.delay;
  after[resources_ + 1] = std::max(after[resources_ + 1], start + job.alone);
}

void Timeline::end(State tail) const {
  std::fill(tail.begin(), tail.end(), kNever);
  tail[resources_] = compute_end_ + optimizer_;
  tail[resources_ + 1] = optimizer_;
}

void Timeline::retreat(ConstState after, std::size_t bucket, std::uint32_t option,
                       State before) const {
  const std::size_t number = first_[bucket] + option;
  const Job& job = jobs_[number];
  const std::span<const Use> uses = this->uses(number);
  if (before.data() != after.data()) {
    std::copy(after.begin(), after.end(), before.begin());
  }
  // What follows the start of the collective.
  Time rest = after[resources_ + 1] + job.alone;
  for (std::size_t i = uses.size(); i > 0;) {
    const std::size_t last = i;
    for (; i > 0 && uses[i - 1].lead == uses[last - 1].lead; --i) {
      rest = std::max(rest, after[uses[i - 1].resource] + uses[i - 1].lead + uses[i - 1].busy);
    }
    for (std::size_t k = i; k < last; ++k) {
      before[uses[k].resource] = rest - uses[k].lead;
    }
  }
  before[resources_] = std::max(after[resources_] + job.delay, ready_[bucket] + rest);
}

Timeline::Time Timeline::join(ConstState state, ConstState tail) {
  Time step = kNever;
  for (std::size_t i = 0; i < state.size(); ++i) {
    step = std::max(step, state[i] + tail[i]);
  }
  return step;
}

}  // namespace rackrail::planner
