#include "planner/packing/link_prices.hpp"

#include <algorithm>
#include <cmath>
#include <map>

namespace rackrail::planner {

namespace {

constexpr double kLargestExponent = 300;  // far from what a double holds
// Times what a link costs that is as full as may be: what a tree saves by an arc away from its
// root.
constexpr double kDetour = 1;
constexpr double kKeptFree = 0.01;  // of a link, by trees that need it only to be shallower
constexpr double kUnknown = -1;     // no price is negative

/// eˣ by basic operations only, so that every machine has the same trees: libraries differ in the
/// last bit, and by the processor.
double portable_exp(double x) {
  constexpr double kLog2 = 0.693147180559945309417;
  constexpr int kMostTerms = 13;  // of |remainder| ≤ log 2 / 2: the next is below the last bit
  const double halvings = std::floor(x / kLog2 + 0.5);
  const double remainder = x - halvings * kLog2;
  double sum = 1;
  for (int term = kMostTerms; term > 0; --term) {
    sum = 1 + remainder / term * sum;
  }
  return std::ldexp(sum, static_cast<int>(halvings));
}

}  // namespace

LinkPrices::LinkPrices(const topology::Topology& topology, const SettledOptions& options)
    : most_share_(1 / options.good_enough),
      trees_(topology.link_count()),
      rate_of_(topology.link_count()),
      price_(topology.link_count()) {
  std::map<std::int64_t, std::uint32_t> numbers;  // by bandwidth
  for (std::size_t l = 0; l < rate_of_.size(); ++l) {
    const std::int64_t rate = topology.link(LinkId(l)).bandwidth.bytes_per_second();
    const auto [known, is_new] = numbers.emplace(rate, of_one_.size());
    if (is_new) {
      of_one_.push_back(options.bound /
                        (static_cast<double>(rate) * static_cast<double>(options.pairs)));
    }
    rate_of_[l] = known->second;
  }
  set_steepness(kFirstSteepness);
}

void LinkPrices::set_steepness(double steepness) {
  steepness_ = steepness;
  full_ = std::max(1.0, fullest());
  known_prices_.assign(of_one_.size(), {});
  for (std::size_t l = 0; l < price_.size(); ++l) {
    reprice(l);
  }
  if (price_.empty()) {
    return;
  }
  std::vector<double> of_one;
  for (const std::uint32_t rate : rate_of_) {
    of_one.push_back(of_one_[rate]);
  }
  const auto middle = of_one.begin() + static_cast<std::ptrdiff_t>(of_one.size() / 2);
  std::nth_element(of_one.begin(), middle, of_one.end());
  detour_ = kDetour * price_at(most_share_, *middle);
}

void LinkPrices::add(const topology::Route& route, std::int32_t count) {
  for (const LinkId link : route) {
    trees_[link.index()] += count;
    reprice(link.index());
  }
}

double LinkPrices::fullest() const {
  double most = 0;
  for (std::size_t l = 0; l < trees_.size(); ++l) {
    most = std::max(most, trees_[l] * of_one(LinkId(l)));
  }
  return most;
}

bool LinkPrices::has_room(const topology::Route& route) const {
  return std::all_of(route.begin(), route.end(), [this](LinkId link) {
    return (trees_[link.index()] + 1) * of_one(link) <= most_share_ - kKeptFree;
  });
}

/// What one more tree adds, over exp(steepness · what the fullest link had).
double LinkPrices::price_at(double share, double of_one) const {
  return portable_exp(
             std::clamp(steepness_ * (share - full_), -kLargestExponent, kLargestExponent)) *
         (portable_exp(std::min(steepness_ * of_one, kLargestExponent)) - 1);
}

void LinkPrices::reprice(std::size_t link) {
  const auto trees = static_cast<std::size_t>(trees_[link]);
  std::vector<double>& known = known_prices_[rate_of_[link]];
  if (known.size() <= trees) {
    known.resize(trees + 1, kUnknown);
  }
  if (known[trees] < 0) {
    const double of_one = of_one_[rate_of_[link]];
    known[trees] = price_at(trees_[link] * of_one, of_one);
  }
  price_[link] = known[trees];
}

}  // namespace rackrail::planner
