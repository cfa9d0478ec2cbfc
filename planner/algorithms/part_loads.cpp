#include "planner/algorithms/part_loads.hpp"

#include <algorithm>
#include <utility>

#include "topology/linear_program.hpp"

namespace rackrail::planner {

namespace {

constexpr double kSame = 1e-9;       // relative, of sums of a few thousand terms
constexpr double kTolerance = 1e-7;  // of the solver

using Rates = PartLoads::Rates;

double time_of(const Rates& rates, const std::vector<double>& shares) {
  double longest = 0;
  for (const auto& [crossings, rate] : rates) {
    double bytes = 0;
    for (const auto& [part, moved] : crossings) {
      bytes += moved * shares[static_cast<std::size_t>(part)];
    }
    longest = std::max(longest, bytes / rate);
  }
  return longest;
}

/// A proof for symmetric clusters, without a solver. For any weights y of links that sum to 1,
/// every w takes at least min_p Σ_l y_l·c_lp/bandwidth_l; here y is the same for all links that are
/// busiest with equal shares.
bool is_optimum_equal(const Rates& rates, std::size_t n) {
  const std::vector<double> equal(n, 1 / static_cast<double>(n));
  const double longest = time_of(rates, equal);
  std::vector<double> by_part(n, 0);
  for (const auto& [crossings, rate] : rates) {
    if (time_of({{crossings, rate}}, equal) < longest * (1 - kSame)) {
      continue;
    }
    for (const auto& [part, moved] : crossings) {
      by_part[static_cast<std::size_t>(part)] += moved / rate;
    }
  }
  const auto [least, most] = std::ranges::minmax(by_part);
  return least >= most * (1 - kSame);
}

/// The program with T at most `longest`: what it minimises is T, or the largest share.
std::optional<std::vector<double>> solve(const Rates& rates, std::size_t n, double longest,
                                         bool is_time_fixed) {
  topology::LinearProgram program;
  const int most = program.add_variable(1, -1);  // in units of `longest`, or the largest share
  topology::LinearProgram::Terms sum;
  for (std::size_t s = 0; s < n; ++s) {
    const int share = program.add_variable(1, 0);
    sum.emplace_back(share, 1);
    if (is_time_fixed) {
      program.add_row({{most, 1}, {share, -1}}, 0);
    }
  }
  program.add_row(sum, 1, true);
  for (const auto& [crossings, rate] : rates) {
    // As Σ w = 1, what all parts have in common is a constant: few terms are left.
    const bool is_of_all = crossings.size() == n;
    double common = is_of_all ? crossings.front().second : 0;
    for (const auto& [part, moved] : crossings) {
      common = is_of_all ? std::min(common, moved) : 0;
    }
    const double unit = 1 / (rate * longest);
    topology::LinearProgram::Terms terms;
    for (const auto& [part, moved] : crossings) {
      if (moved - common > kSame * moved) {  // else a rounding error, which spoils the scaling
        terms.emplace_back(sum[static_cast<std::size_t>(part)].first, -(moved - common) * unit);
      }
    }
    if (is_time_fixed) {
      program.add_row(terms, common * unit - 1);
    } else {
      terms.emplace_back(most, 1);
      program.add_row(terms, common * unit);
    }
  }
  if (!program.maximise()) {
    return std::nullopt;
  }
  std::vector<double> shares;
  for (const auto& [share, one] : sum) {
    shares.push_back(std::max(0.0, program.value(share)));
  }
  return shares;
}

}  // namespace

PartLoads::PartLoads(const topology::Topology& topology)
    : topology_(topology), by_link_(topology.link_count()), moved_(topology.link_count()) {}

void PartLoads::cross(const topology::Route& route, double bytes) {
  for (const LinkId link : route) {
    if (moved_[link.index()] == 0) {
      touched_.push_back(link);
    }
    moved_[link.index()] += bytes;
  }
}

void PartLoads::end_part() {
  for (const LinkId link : touched_) {
    by_link_[link.index()].emplace_back(static_cast<int>(parts_),
                                        std::exchange(moved_[link.index()], 0));
  }
  touched_.clear();
  ++parts_;
}

PartLoads::Rates PartLoads::rates() const {
  Rates rates;
  for (std::size_t l = 0; l < by_link_.size(); ++l) {
    if (!by_link_[l].empty()) {
      const auto rate = static_cast<double>(topology_.link(LinkId(l)).bandwidth.bytes_per_second());
      const auto [known, is_new] = rates.emplace(by_link_[l], rate);
      known->second = std::min(known->second, rate);
    }
  }
  return rates;
}

double PartLoads::time(const std::vector<double>& shares) const { return time_of(rates(), shares); }

std::optional<std::vector<double>> PartLoads::best_shares() const {
  const Rates rates = this->rates();
  const std::vector<double> equal(parts_, 1 / static_cast<double>(parts_));
  if (is_optimum_equal(rates, parts_)) {
    return equal;
  }
  if (!topology::LinearProgram::is_available()) {
    return std::nullopt;
  }
  std::optional<std::vector<double>> shares = solve(rates, parts_, time_of(rates, equal), false);
  if (!shares) {
    return std::nullopt;
  }
  const double least = time_of(rates, *shares);
  if (auto even = solve(rates, parts_, least * (1 + kTolerance), true)) {
    shares = std::move(even);
  }
  return shares;
}

}  // namespace rackrail::planner
