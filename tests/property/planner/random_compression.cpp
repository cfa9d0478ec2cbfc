#include "random_compression.hpp"

#include <algorithm>
#include <cmath>

namespace rackrail::planner {

namespace {

double between(std::mt19937_64& random, double low, double high) {
  return std::uniform_real_distribution<double>(low, high)(random);
}

/// Spread evenly over orders of magnitude.
double about(std::mt19937_64& random, double middle, double factor) {
  return middle * std::pow(factor, between(random, -1, 1));
}

Duration ms(double milliseconds) { return Duration::from_seconds(milliseconds * 1e-3); }

}  // namespace

RandomCompression random_compression(std::mt19937_64& random, std::size_t buckets,
                                     std::size_t options) {
  RandomCompression made;
  TimelineProblem& problem = made.problem;
  const auto wires = static_cast<std::size_t>(between(random, 1, 3.999));
  problem.resources = wires + 1;  // the last one is the codec stream
  const bool shares_processor = between(random, 0, 1) < 0.3;
  const double gap = about(random, 1, 10);  // between two buckets, ms
  std::vector<double> wire_rate(wires);     // ms per unit of bytes
  for (double& rate : wire_rate) {
    rate = about(random, 1, 4);
  }
  const double codec_rate = about(random, 0.2, 5);
  double ready = between(random, 0, 5);
  for (std::size_t b = 0; b < buckets; ++b) {
    ready += between(random, 0, 1) < 0.15 ? gap * 5 : between(random, 0, 2) * gap;
    TimelineBucket bucket{ms(ready), {}};
    const double bytes = about(random, 1, 8);
    for (std::size_t o = 0; o < options; ++o) {
      TimelineOption option;
      const double codec = o == 0 ? 0 : bytes * codec_rate * between(random, 0.5, 1.5);
      double longest = codec;
      std::vector<double> busy;
      for (const double rate : wire_rate) {
        const double ratio = std::pow(0.5, static_cast<double>(o)) * between(random, 0.8, 1.25);
        // An option may leave a wire as it is: compression of another tier only.
        busy.push_back(bytes * rate * (between(random, 0, 1) < 0.3 ? 1 : ratio));
        longest = std::max(longest, busy.back());
      }
      busy.push_back(codec);
      const double alone = longest * between(random, 1, 1.6) + 0.05;
      option.alone = ms(alone);
      const bool together = between(random, 0, 1) < 0.3;  // a wire of many links
      const double lead = (alone - longest) * between(random, 0, 1);
      for (const double time : busy) {
        option.busy.push_back(ms(time));
        option.lead.push_back(ms(together ? lead : (alone - time) * between(random, 0, 1)));
      }
      option.delay = shares_processor ? ms(codec) : Duration();
      option.harm = bytes * static_cast<double>(o * o);
      bucket.options.push_back(std::move(option));
    }
    problem.buckets.push_back(std::move(bucket));
  }
  problem.compute_end = ms(ready + between(random, 0, 2) * gap);
  problem.optimizer = ms(between(random, 0, 1));
  for (std::uint32_t o = 0; o < options; ++o) {
    made.uniform.emplace_back(buckets, o);
  }
  return made;
}

void for_each_assignment(std::size_t buckets, std::size_t options,
                         const std::function<void(const Assignment&)>& try_one) {
  Assignment assignment(buckets, 0);
  while (true) {
    try_one(assignment);
    std::size_t b = 0;
    while (b < buckets && ++assignment[b] == options) {
      assignment[b++] = 0;
    }
    if (b == buckets) {
      return;
    }
  }
}

double step_by_definition(const TimelineProblem& problem, const Assignment& assignment) {
  std::vector<double> free(problem.resources, 0);
  double delayed = 0;
  double done = 0;
  for (std::size_t b = 0; b < assignment.size(); ++b) {
    const TimelineBucket& bucket = problem.buckets[b];
    const TimelineOption& option = bucket.options[assignment[b]];
    const double start = bucket.ready.seconds() + delayed;
    const double alone = option.alone.seconds();
    std::vector<double> begin(problem.resources, 0);
    done = std::max(done, start + alone);
    for (std::size_t q = 0; q < problem.resources; ++q) {
      const double lead = option.lead[q].seconds();
      begin[q] = start + lead;
      for (std::size_t p = 0; p < problem.resources; ++p) {
        if (option.busy[p] > Duration() && option.lead[p] <= option.lead[q]) {
          begin[q] = std::max(begin[q], free[p] + lead - option.lead[p].seconds());
        }
      }
    }
    for (std::size_t q = 0; q < problem.resources; ++q) {
      if (option.busy[q] > Duration()) {
        free[q] = begin[q] + option.busy[q].seconds();
        done = std::max(done, begin[q] + alone - option.lead[q].seconds());
      }
    }
    delayed += option.delay.seconds();
  }
  return std::max(done, problem.compute_end.seconds() + delayed) + problem.optimizer.seconds();
}

}  // namespace rackrail::planner
