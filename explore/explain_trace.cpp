#include "explore/explain_trace.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <tuple>

#include "base/parse_units.hpp"
#include "base/text.hpp"

namespace rackrail::explore {
namespace {

using plan::Span;

constexpr double kBoundShare = 0.1;  // of the step that is exposed, from which on it matters
constexpr double kLeastGain = 0.01;
constexpr std::int64_t kSmallMessage = 64 * 1024;  // what latency dominates on any network
constexpr double kSmallShare = 1.0 / 16;           // of the largest message

/// Sorted and disjoint.
std::vector<Span> merged(std::vector<Span> spans) {
  std::ranges::sort(spans, {}, &Span::start);
  std::vector<Span> result;
  for (const Span& one : spans) {
    if (!result.empty() && one.start <= result.back().end) {
      result.back().end = std::max(result.back().end, one.end);
    } else {
      result.push_back(one);
    }
  }
  return result;
}

double length_of(const std::vector<Span>& disjoint) {
  double sum = 0;
  for (const Span& one : disjoint) {
    sum += one.length();
  }
  return sum;
}

/// How much of `span` none of these covers.
double uncovered(const Span& span, const std::vector<Span>& disjoint) {
  double left = span.length();
  auto one = std::ranges::upper_bound(disjoint, span.start, {}, &Span::end);
  for (; one != disjoint.end() && one->start < span.end; ++one) {
    left -= std::min(one->end, span.end) - std::max(one->start, span.start);
  }
  return std::max(left, 0.0);
}

struct Communication {
  plan::TracedCollective what;
  double exposed = 0;
  double transfer = 0, latency = 0, waiting = 0;  ///< they add up to its time
  double bus_bytes = 0;

  double exposed_share() const { return what.span.length() > 0 ? exposed / what.span.length() : 0; }
};

/// The sums of a trace, in microseconds.
class Analysis {
 public:
  explicit Analysis(const plan::Trace& trace) : trace_(trace) {
    const Span steps = trace.all_steps();
    double first = steps.end;
    double last = steps.start;
    const auto widen = [&](const Span& span) {
      first = std::min(first, span.start);
      last = std::max(last, span.end);
    };
    std::vector<Span> work;
    for (const plan::TracedKernel& one : trace.kernels) {
      if (!steps.contains(one.launch)) {
        continue;
      }
      widen(one.span);
      if (one.collective) {
        add(*one.collective, one.span);
      } else {
        work.push_back(one.span);
      }
    }
    for (const Span& one : trace.cpu_work) {
      if (steps.contains(one.start)) {
        work.push_back(one);
      }
    }
    for (const plan::TracedCollective& one : trace.cpu_collectives) {
      if (steps.contains(one.span.start)) {
        widen(one.span);
        add(one, one.span);
      }
    }
    const double single = trace.steps.size() == 1 ? last - steps.start : last - first;
    wall_ = std::max(steps.length(), single);
    compute_ = merged(std::move(work));
    measure_exposed();
    split_times();
  }

  double per_step(double time) const { return time / static_cast<double>(trace_.steps.size()); }
  double busy() const { return length_of(compute_) + exposed_; }
  double wall() const { return std::max(wall_, busy()); }
  double compute() const { return length_of(compute_); }
  double communication() const { return communication_; }
  double exposed() const { return exposed_; }
  const std::vector<Communication>& all() const { return all_; }

 private:
  void add(const plan::TracedCollective& what, const Span& span) {
    Communication one;
    one.what = what;
    one.what.span = span;
    if (one.what.group_size == 0) {
      one.what.group_size = trace_.world_size;
    }
    const std::int64_t ranks = one.what.group_size;
    one.bus_bytes = static_cast<double>(one.what.bytes) *
                    (ranks > 1 ? plan::bus_factor(one.what.kind, ranks) : 1.0);
    all_.push_back(std::move(one));
  }

  void measure_exposed() {
    std::vector<Span> spans;
    double sum = 0;
    for (Communication& one : all_) {
      one.exposed = uncovered(one.what.span, compute_);
      sum += one.exposed;
      spans.push_back(one.what.span);
    }
    const std::vector<Span> disjoint = merged(std::move(spans));
    communication_ = length_of(disjoint);
    for (const Span& one : disjoint) {
      exposed_ += uncovered(one, compute_);
    }
    // Collectives at the same time share what is exposed of both.
    const double scale = sum > 0 ? exposed_ / sum : 0;
    for (Communication& one : all_) {
      one.exposed *= scale;
    }
  }

  void split_times() {
    double largest = 0;
    for (const Communication& one : all_) {
      largest = std::max(largest, one.bus_bytes);
    }
    const auto is_small = [largest](const Communication& one) {
      return one.what.bytes <= kSmallMessage || one.bus_bytes < kSmallShare * largest;
    };
    double rate = 0;  // bytes per microsecond
    for (const Communication& one : all_) {
      if (!is_small(one) && one.what.span.length() > 0) {
        rate = std::max(rate, one.bus_bytes / one.what.span.length());
      }
    }
    const auto transfer = [rate](const Communication& one) {
      return rate > 0 ? one.bus_bytes / rate : 0;
    };
    double least = std::numeric_limits<double>::infinity();
    for (const Communication& one : all_) {
      if (is_small(one)) {
        least = std::min(least, std::max(one.what.span.length() - transfer(one), 0.0));
      }
    }
    least = std::isfinite(least) ? least : 0;
    for (Communication& one : all_) {
      const double time = one.what.span.length();
      one.transfer = std::min(transfer(one), time);
      one.latency = std::min(least, time - one.transfer);
      one.waiting = time - one.transfer - one.latency;
    }
  }

  const plan::Trace& trace_;
  double wall_ = 0, communication_ = 0, exposed_ = 0;
  std::vector<Span> compute_;
  std::vector<Communication> all_;
};

Duration duration_of(double microseconds) {
  return Duration(std::llround(std::max(microseconds, 0.0) * 1e6));
}

std::optional<Bandwidth> rate_of(double bytes, double microseconds) {
  if (!(bytes > 0) || !(microseconds > 0)) {
    return std::nullopt;
  }
  return Bandwidth(std::llround(std::min(bytes / microseconds * 1e6, 1e18)));
}

/// Collectives that are alike, together.
std::vector<TracedCollectives> grouped(const Analysis& analysis) {
  struct Sum {
    double count = 0, time = 0, exposed = 0, bus_bytes = 0;
    double shortest = std::numeric_limits<double>::infinity();
  };
  using Key = std::tuple<plan::CollectiveKind, std::int64_t, std::string, std::int64_t>;
  std::map<Key, Sum> sums;
  for (const Communication& one : analysis.all()) {
    Sum& sum = sums[{one.what.kind, one.what.bytes, one.what.dtype, one.what.group_size}];
    const double time = one.what.span.length();
    sum.count += 1;
    sum.time += time;
    sum.exposed += one.exposed;
    sum.bus_bytes += one.bus_bytes;
    sum.shortest = std::min(sum.shortest, time);
  }
  std::vector<TracedCollectives> result;
  for (const auto& [key, sum] : sums) {
    const auto& [kind, bytes, dtype, ranks] = key;
    const double all_bytes = static_cast<double>(bytes) * sum.count;
    result.push_back(
        {.kind = kind,
         .bytes = bytes,
         .dtype = dtype,
         .ranks = ranks,
         .per_step = analysis.per_step(sum.count),
         .time = duration_of(sum.time / sum.count),
         .shortest = duration_of(sum.shortest),
         .exposed = duration_of(analysis.per_step(sum.exposed)),
         .algorithm_bandwidth = rate_of(all_bytes, sum.time),
         .bus_bandwidth = ranks > 1 ? rate_of(sum.bus_bytes, sum.time) : std::nullopt});
  }
  std::ranges::stable_sort(result, std::greater(), &TracedCollectives::exposed);
  return result;
}

/// A change and the microseconds of all steps that it saves.
struct Saving {
  std::string what;
  double time = 0;
};

bool carries_gradients(const Communication& one) {
  const bool sums = one.what.kind == plan::CollectiveKind::kAllReduce ||
                    one.what.kind == plan::CollectiveKind::kReduceScatter;
  return sums && plan::width_of_type(one.what.dtype) == 4;
}

std::vector<Saving> savings(const Analysis& analysis) {
  Saving faster{"links twice as fast", 0};
  Saving narrower{"gradients of 16 instead of 32 bits", 0};
  Saving together{"no rank that others wait for", 0};
  Saving fewer{"one large collective instead of many (larger buckets)", 0};
  const double count = analysis.per_step(static_cast<double>(analysis.all().size()));
  for (const Communication& one : analysis.all()) {
    const double half = std::min(one.exposed, one.transfer / 2);
    faster.time += half;
    narrower.time += carries_gradients(one) ? half : 0;
    together.time += one.waiting * one.exposed_share();
    fewer.time += count > 1 ? one.latency * one.exposed_share() * (1 - 1 / count) : 0;
  }
  const double hidden =
      analysis.exposed() - std::max(analysis.communication() - analysis.compute(), 0.0);
  return {{"communication that costs nothing", analysis.exposed()},
          {"communication beside compute as far as it fits (overlap)", hidden},
          faster,
          narrower,
          together,
          fewer,
          {"a GPU that never waits for the CPU (CUDA graphs, compiled or larger operators)",
           analysis.wall() - analysis.busy()}};
}

void add_gains(const Analysis& analysis, TraceExplanation& explanation) {
  for (const Saving& one : savings(analysis)) {
    const double share = one.time / analysis.wall();
    if (share >= kLeastGain) {
      explanation.gains.push_back(
          {one.what, duration_of(analysis.per_step(analysis.wall() - one.time)), share});
    }
  }
  std::ranges::stable_sort(explanation.gains, std::greater(), &TraceGain::gain);
}

void judge(TraceExplanation& all) {
  if (all.exposed > Duration()) {
    all.cause = all.waiting >= all.transfer && all.waiting >= all.latency
                    ? CommunicationCause::kWaiting
                : all.transfer >= all.latency ? CommunicationCause::kBandwidth
                                              : CommunicationCause::kLatency;
  }
  const bool is_idle = all.idle > all.exposed && all.share(all.idle) >= kBoundShare;
  if (is_idle && all.idle > all.compute) {
    all.bound = TraceBound::kLaunches;
  } else if (all.share(all.exposed) >= kBoundShare) {
    all.bound = TraceBound::kCommunication;
  } else {
    all.bound = is_idle ? TraceBound::kLaunches : TraceBound::kCompute;
  }
}

std::string verdict_of(const TraceExplanation& all) {
  const auto percent = [&all](Duration time) {
    return fmt::format("{:.0f} %", 100 * all.share(time));
  };
  std::string cause;
  if (all.cause) {
    constexpr std::array kCauses{"by the bandwidth of the network",
                                 "by the latency of many small collectives",
                                 "by waiting for other ranks or for shared links"};
    cause = kCauses.at(static_cast<std::size_t>(*all.cause));
  }
  const std::string exposed =
      all.exposed > Duration() ? fmt::format("exposed communication is {} of the step, mostly {}",
                                             percent(all.exposed), cause)
                               : "no communication is exposed";
  switch (all.bound) {
    case TraceBound::kCommunication:
      return fmt::format(
          "Communication-bound: for {} of the step the GPU only communicates, held up mostly {}.",
          percent(all.exposed), cause);
    case TraceBound::kLaunches:
      return fmt::format(
          "Bound by the CPU, which launches work too late: the GPU is idle for {} of the step; {}.",
          percent(all.idle), exposed);
    case TraceBound::kCompute:
      break;
  }
  return fmt::format("Not communication-bound: the GPU computes for {} of the step; {}.",
                     percent(all.compute), exposed);
}

}  // namespace

std::string_view name_of(TraceBound bound) {
  constexpr std::array<std::string_view, 3> kNames{"compute", "communication", "launches"};
  return kNames.at(static_cast<std::size_t>(bound));
}

std::string_view name_of(CommunicationCause cause) {
  constexpr std::array<std::string_view, 3> kNames{"bandwidth", "latency", "waiting"};
  return kNames.at(static_cast<std::size_t>(cause));
}

TraceExplanation explain_trace(const plan::Trace& trace) {
  const Analysis analysis(trace);
  const auto each = [&](double time) { return duration_of(analysis.per_step(time)); };
  TraceExplanation all;
  all.notes = trace.notes;
  all.steps = std::ssize(trace.steps);
  all.step_time = std::max(each(analysis.wall()), 1_ps);
  all.compute = each(analysis.compute());
  all.communication = each(analysis.communication());
  all.exposed = each(analysis.exposed());
  all.idle = each(analysis.wall() - analysis.busy());
  double transfer = 0;
  double latency = 0;
  double waiting = 0;
  std::size_t unsized = 0;
  for (const Communication& one : analysis.all()) {
    transfer += one.transfer * one.exposed_share();
    latency += one.latency * one.exposed_share();
    waiting += one.waiting * one.exposed_share();
    unsized += one.what.bytes == 0 ? 1 : 0;
  }
  all.transfer = each(transfer);
  all.latency = each(latency);
  all.waiting = each(waiting);
  all.collectives = grouped(analysis);
  if (trace.kernels.empty()) {
    all.notes.push_back("no GPU in this trace: operators of the CPU count as compute");
  }
  if (unsized > 0) {
    all.notes.push_back(
        fmt::format("the sizes of {} of {} are not in the trace and count as small; "
                    "record_shapes=True has them",
                    unsized, counted(std::ssize(analysis.all()), "collective")));
  }
  judge(all);
  all.verdict = verdict_of(all);
  add_gains(analysis, all);
  return all;
}

}  // namespace rackrail::explore
