#include "runtime/watch/slow_detector.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <iterator>
#include <set>
#include <utility>

namespace rackrail::runtime {
namespace {

// A link may reach less of its rate than this only where something else limits the step.
constexpr double kLeastEfficiency = 0.7;
// Of a pair per step, for its rate to mean anything, and for it to disprove an assumed rate.
constexpr double kEnoughBytes = 16 << 10U;
constexpr double kManyBytes = 256 << 10U;
constexpr double kDisproved = 1.6;
// A rate that comes this near to the planned one is it.
constexpr double kAsPlanned = 0.75;
// A link that reaches this share of what the busiest reach limits those who use it.
constexpr double kAboutFull = 0.8;
// Rates whose ratio is above this are alike.
constexpr double kAlike = 0.85;
// A rank whose time per sample comes this near to the first one is well.
constexpr double kWellAgain = 1.15;
// A rank that computes so much longer is not well, however noisy its reference was.
constexpr double kHalting = 3;
// The fewer steps a reference has, against this, the less is believed.
constexpr double kDoubtfulSteps = 6;
// Seconds, where no time was measured.
constexpr double kShortest = 1e-15;
constexpr std::size_t kMostIncomplete = 64;
// Findings in a row about the batches of ranks that are known to be slow.
constexpr std::size_t kMostRefined = 3;

}  // namespace

SlowDetector::SlowDetector(const topology::Topology& cluster, const DetectorOptions& options)
    : cluster_(cluster), options_(options), slow_ranks_(options.profile) {
  for (std::size_t rank = 0; rank < cluster.rank_count(); ++rank) {
    ranks_.emplace_back(rank);
  }
}

void SlowDetector::begin(std::vector<Rank> ranks) {
  ranks_ = std::move(ranks);
  std::ranges::sort(ranks_);
  incomplete_.clear();
  is_new_batch_ = true;
  restart();
}

void SlowDetector::restart() {
  steps_ = 0;
  step_time_ = {};
  pairs_.clear();
  devices_.clear();
  strands_.clear();
  suspicion_ = {};
  confirmed_ = 0;
}

std::optional<SlowFinding> SlowDetector::add(const StepMeasurement& measurement) {
  if (!std::ranges::binary_search(ranks_, measurement.rank)) {
    return std::nullopt;
  }
  const std::uint32_t number = measurement.step;
  incomplete_[number].insert_or_assign(measurement.rank, measurement);
  if (incomplete_[number].size() < ranks_.size()) {
    if (incomplete_.size() > kMostIncomplete) {
      incomplete_.erase(incomplete_.begin());
    }
    return std::nullopt;
  }
  const std::map<Rank, StepMeasurement> step = std::move(incomplete_[number]);
  incomplete_.erase(incomplete_.begin(), incomplete_.upper_bound(number));
  if (++steps_ <= options_.warmup) {
    return std::nullopt;
  }
  count(step);
  if (step_time_.reference_size() < options_.samples.reference) {
    return std::nullopt;
  }
  if (strands_.empty()) {
    learn_network();
  }
  if (is_new_batch_) {
    is_new_batch_ = false;
    if (auto finding = refine(number)) {
      return finding;
    }
  }
  Suspicion suspicion = suspect();
  confirmed_ = suspicion == suspicion_ ? confirmed_ + 1 : 1;
  suspicion_ = std::move(suspicion);
  if (suspicion_.is_empty() || confirmed_ < options_.confirmations) {
    return std::nullopt;
  }
  return conclude(number);
}

void SlowDetector::count(const std::map<Rank, StepMeasurement>& step) {
  const auto put = [this](Samples& samples, double value) {
    samples.add(std::max(value, kShortest), options_.samples, suspicion_.is_empty());
  };
  Duration longest;
  for (const auto& [rank, measured] : step) {
    longest = std::max(longest, measured.step_time);
    Device& device = devices_[rank];
    device.samples = measured.samples;
    put(device.compute, measured.compute_time.seconds() / static_cast<double>(device.samples));
    for (const PairTraffic& traffic : measured.received) {
      if (static_cast<double>(traffic.bytes.count()) >= kEnoughBytes) {
        Pair& pair = pairs_[{traffic.source, rank}];
        const auto bytes = static_cast<double>(traffic.bytes.count());
        put(pair.bytes, bytes);
        put(pair.time, std::max(traffic.busy.seconds(), kShortest) / bytes);
      }
    }
  }
  put(step_time_, longest.seconds());
}

/// Pairs that send in most steps, and what they use.
void SlowDetector::learn_network() {
  std::erase_if(pairs_, [this](const auto& entry) {
    return entry.second.bytes.reference_size() < options_.samples.reference ||
           !std::ranges::binary_search(ranks_, entry.first.first);
  });
  std::vector<RankPair> pairs;
  for (const auto& [pair, samples] : pairs_) {
    pairs.push_back(pair);
  }
  strands_ = strands_of(cluster_, pairs);
}

// ---- what the latest steps say ----

SlowDetector::Suspicion SlowDetector::suspect() const {
  Suspicion suspicion;
  const double common = common_growth();
  suspect_ranks(suspicion, common);
  if (suspicion.slow_ranks.empty()) {
    suspect_halting_rank(suspicion, common);
  }
  suspect_strands(suspicion, pair_health(suspicion, common));
  return suspicion;
}

double SlowDetector::growth(const Samples& samples) { return samples.now() / samples.before(); }

/// The least growth that is more than noise. The spread of few values is often too small.
double SlowDetector::threshold(const Samples& samples) const {
  const double sure =
      options_.sure * (1 + kDoubtfulSteps / static_cast<double>(samples.reference_size()));
  return std::max(options_.slow, std::exp(sure * samples.spread()));
}

/// What computing has become slower by for the ranks in general; at least 1.
double SlowDetector::common_growth() const {
  std::vector<double> growths;
  for (const auto& [rank, device] : devices_) {
    growths.push_back(growth(device.compute));
  }
  return std::max(1.0, lower_median(std::move(growths)));
}

/// The same of the ranks that have no factor, without some; below 1 where they have become faster,
/// as those do whose cores a slow one leaves to them: that makes none of the slow ones well. Where
/// none is left, that of all.
double SlowDetector::growth_of_the_well(const std::vector<Rank>& besides) const {
  std::vector<double> growths;
  for (const auto& [rank, device] : devices_) {
    if (!slow_ranks_.is_slow(rank) && std::ranges::find(besides, rank) == besides.end()) {
      growths.push_back(growth(device.compute));
    }
  }
  return growths.empty() ? common_growth() : lower_median(std::move(growths));
}

/// Whether steps take longer than the ranks' common slowness explains.
bool SlowDetector::is_slower(double common) const {
  return step_time_.now() / common >= (1 + options_.matters) * step_time_.before();
}

void SlowDetector::suspect_ranks(Suspicion& suspicion, double common) const {
  const double of_the_well = growth_of_the_well();
  for (const auto& [rank, device] : devices_) {
    const double least = threshold(device.compute);
    if (growth_against(device, common) >= least && is_slower(common) &&
        does_matter(device, common)) {
      suspicion.slow_ranks.push_back(rank);
    } else if (slow_ranks_.is_slow(rank) && growth(device.compute) / of_the_well * least <= 1) {
      suspicion.faster_ranks.push_back(rank);
    }
  }
}

/// By how much longer it computes than others do.
double SlowDetector::growth_against(const Device& device, double common) const {
  return growth(device.compute) / std::min(common, growth_of_the_well());
}

bool SlowDetector::does_matter(const Device& device, double common) const {
  const double longer = (device.compute.now() / common - device.compute.before()) *
                        static_cast<double>(device.samples);
  return longer >= options_.matters * step_time_.before();
}

/// Of one that computes for longer than before, though noise might explain it, while all that is
/// slow on the network is its own.
void SlowDetector::suspect_halting_rank(Suspicion& suspicion, double common) const {
  std::vector<RankPair> slow;
  for (const auto& [pair, health] : pair_health(suspicion, common)) {
    if (health == Health::kSlow) {
      slow.push_back(pair);
    }
  }
  for (const auto& [rank, device] : devices_) {
    const bool is_of_all = std::ranges::all_of(
        slow, [&](const RankPair& pair) { return pair.first == rank || pair.second == rank; });
    if (!slow.empty() && is_of_all && growth_against(device, common) >= kHalting &&
        does_matter(device, common)) {
      suspicion.slow_ranks.push_back(rank);
      return;
    }
  }
}

std::map<RankPair, SlowDetector::Health> SlowDetector::pair_health(const Suspicion& suspicion,
                                                                   double common) const {
  const auto is_of_slow_rank = [&](Rank rank) {
    return std::ranges::find(suspicion.slow_ranks, rank) != suspicion.slow_ranks.end();
  };
  std::map<RankPair, Health> result;
  for (const auto& [ranks, pair] : pairs_) {
    const double grown = growth(pair.time) / common;
    const double least = threshold(pair.time);
    const double longer = (pair.time.now() / common - pair.time.before()) * pair.bytes.now();
    Health& health = result[ranks];
    if (is_of_slow_rank(ranks.first) || is_of_slow_rank(ranks.second)) {
      health = Health::kUnclear;
    } else if (grown >= least) {
      const bool does_matter = longer >= options_.matters * step_time_.before();
      health = does_matter && is_slower(common) ? Health::kSlow : Health::kUnclear;
    } else if (grown * least <= 1) {
      health = Health::kFaster;
    } else {
      health = grown <= (1 + options_.slow) / 2 ? Health::kWell : Health::kUnclear;
    }
  }
  return result;
}

void SlowDetector::suspect_strands(Suspicion& suspicion,
                                   const std::map<RankPair, Health>& health) const {
  const auto number_of = [&](const Strand& strand, Health wanted) {
    return static_cast<std::size_t>(std::ranges::count_if(
        strand.pairs, [&](const RankPair& pair) { return health.at(pair) == wanted; }));
  };
  std::set<RankPair> open;  // slow pairs that nothing explains yet
  for (const auto& [pair, state] : health) {
    if (state == Health::kSlow) {
      open.insert(pair);
    }
  }
  while (!open.empty()) {
    std::size_t best = strands_.size();
    std::size_t most = 0;
    for (std::size_t s = 0; s < strands_.size(); ++s) {
      const Strand& strand = strands_[s];
      const bool may_be = 2 * number_of(strand, Health::kSlow) > strand.pairs.size() &&
                          number_of(strand, Health::kWell) == 0 &&
                          number_of(strand, Health::kFaster) == 0;
      const auto explains = static_cast<std::size_t>(std::ranges::count_if(
          strand.pairs, [&](const RankPair& pair) { return open.contains(pair); }));
      if (may_be && explains > most) {
        best = s;
        most = explains;
      }
    }
    if (most == 0) {
      break;
    }
    suspicion.slow.push_back(best);
    for (const RankPair& pair : strands_[best].pairs) {
      open.erase(pair);
    }
  }
  std::ranges::sort(suspicion.slow);

  const double reached = efficiency();
  for (std::size_t s = 0; s < strands_.size(); ++s) {
    const Strand& strand = strands_[s];
    if (!is_degraded(strand)) {
      continue;
    }
    const double wanted = static_cast<double>(least_assumed(strand).bytes_per_second()) * reached;
    const bool is_disproved = std::ranges::any_of(strand.pairs, [&](const RankPair& ranks) {
      const Pair& pair = pairs_.at(ranks);
      return pair.bytes.now() >= kManyBytes && 1 / pair.time.now() >= kDisproved * wanted;
    });
    if (number_of(strand, Health::kFaster) != 0 && number_of(strand, Health::kSlow) == 0 &&
        strand_rate(strand, /*before=*/false) >= options_.slow * wanted) {
      suspicion.faster.push_back(s);
    } else if (is_disproved) {
      suspicion.cleared.push_back(s);
    }
  }
}

// ---- rates ----

Bandwidth SlowDetector::assumed(LinkId link) const {
  const auto it = rates_.find(link);
  return it != rates_.end() ? it->second : planned(link);
}

Bandwidth SlowDetector::least_assumed(const Strand& strand) const {
  Bandwidth least = assumed(strand.links.front());
  for (const LinkId link : strand.links) {
    least = std::min(least, assumed(link));
  }
  return least;
}

Bandwidth SlowDetector::most_planned(const Strand& strand) const {
  Bandwidth most;
  for (const LinkId link : strand.links) {
    most = std::max(most, planned(link));
  }
  return most;
}

bool SlowDetector::is_degraded(const Strand& strand) const {
  return std::ranges::any_of(strand.links, [this](LinkId link) { return rates_.contains(link); });
}

double SlowDetector::seconds(const Pair& pair, bool before) {
  return before ? pair.bytes.before() * pair.time.before() : pair.bytes.now() * pair.time.now();
}

/// Bytes per second that its pairs get through it, as measured.
double SlowDetector::strand_rate(const Strand& strand, bool before) const {
  double bytes = 0;
  double longest = kShortest;
  for (const RankPair& ranks : strand.pairs) {
    const Pair& pair = pairs_.at(ranks);
    bytes += before ? pair.bytes.before() : pair.bytes.now();
    longest = std::max(longest, seconds(pair, before));
  }
  return bytes / longest;
}

/// Measured rate by assumed rate, of links that are used as far as they can be.
double SlowDetector::efficiency() const {
  double largest = 0;
  for (const Strand& strand : strands_) {
    largest = std::max(largest, strand_rate(strand, /*before=*/true) /
                                    static_cast<double>(least_assumed(strand).bytes_per_second()));
  }
  return std::clamp(largest / options_.rate_scale, kLeastEfficiency, 1.0) * options_.rate_scale;
}

/// Whether a pair of the strand also uses another one that is about full, so that the strand may
/// have more than its pairs get through it.
bool SlowDetector::is_limited_elsewhere(const Strand& strand) const {
  const double reached = efficiency();
  return std::ranges::any_of(strands_, [&](const Strand& other) {
    const bool is_shared = std::ranges::any_of(strand.pairs, [&](const RankPair& pair) {
      return std::ranges::binary_search(other.pairs, pair);
    });
    const double full = static_cast<double>(least_assumed(other).bytes_per_second()) * reached;
    return is_shared && !is_degraded(other) &&
           strand_rate(other, /*before=*/false) >= kAboutFull * full;
  });
}

/// What a slow strand has: by what gets through it, and by how much longer its pairs take.
Bandwidth SlowDetector::slow_rate(const Strand& strand) const {
  std::vector<double> growths;
  for (const RankPair& ranks : strand.pairs) {
    growths.push_back(growth(pairs_.at(ranks).time));
  }
  const double by_growth = static_cast<double>(least_assumed(strand).bytes_per_second()) /
                           std::max(1.0, lower_median(std::move(growths)));
  const double by_bytes = strand_rate(strand, /*before=*/false) / efficiency();
  return Bandwidth(
      std::max<std::int64_t>(1, static_cast<std::int64_t>(std::min(by_growth, by_bytes))));
}

/// What a strand has that more gets through than was assumed: at least what one pair gets, however
/// long another takes that is held up elsewhere.
Bandwidth SlowDetector::faster_rate(const Strand& strand) const {
  const Bandwidth most = most_planned(strand);
  if (is_limited_elsewhere(strand)) {
    return most;
  }
  double rate = strand_rate(strand, /*before=*/false);
  for (const RankPair& ranks : strand.pairs) {
    const Pair& pair = pairs_.at(ranks);
    if (pair.bytes.now() >= kManyBytes) {
      rate = std::max(rate, 1 / pair.time.now());
    }
  }
  return std::min(most, Bandwidth(static_cast<std::int64_t>(rate / efficiency())));
}

/// Whether nothing that is still assumed to be slow was blamed together with its links: then none
/// of them is found out.
bool SlowDetector::has_all_blamed(const Strand& strand) const {
  return std::ranges::all_of(strand.links, [&](LinkId link) {
    const auto together = blamed_with_.find(link);
    return together == blamed_with_.end() ||
           std::ranges::all_of(together->second, [&](LinkId other) {
             return !rates_.contains(other) || std::ranges::binary_search(strand.links, other);
           });
  });
}

// ---- findings ----

bool SlowDetector::is_slow(LinkId link) const {
  return std::ranges::any_of(suspicion_.slow, [&](std::size_t s) {
    return std::ranges::binary_search(strands_[s].links, link);
  });
}

std::optional<LinkId> SlowDetector::opposite(LinkId link) const {
  const topology::Link& there = cluster_.link(link);
  for (const LinkId back : cluster_.links_out_of(there.to)) {
    if (cluster_.link(back).to == there.from) {
      return back;
    }
  }
  return std::nullopt;
}

std::vector<LinkId> SlowDetector::blamed(const Strand& strand) const {
  std::vector<LinkId> both_ways;
  std::ranges::copy_if(strand.links, std::back_inserter(both_ways), [this](LinkId link) {
    const std::optional<LinkId> back = opposite(link);
    return back && is_slow(*back);
  });
  return both_ways.empty() ? strand.links : both_ways;
}

/// Whether more than `rate` gets through the link by far.
bool SlowDetector::is_faster_than(LinkId link, Bandwidth rate) const {
  const double full = static_cast<double>(rate.bytes_per_second()) * efficiency();
  return std::ranges::any_of(strands_, [&](const Strand& strand) {
    return std::ranges::binary_search(strand.links, link) &&
           strand_rate(strand, /*before=*/false) >= options_.slow * full;
  });
}

/// Makes whole cables of slow links: what is slow one way is taken for slow the other way too,
/// unless more gets through there; and where both were measured alike, they are alike.
void SlowDetector::complete_cables(std::vector<LinkFinding>& slow) const {
  const std::vector<LinkFinding> measured = slow;
  for (std::size_t i = 0; i < measured.size(); ++i) {
    LinkFinding other{.links = {}, .rate = measured[i].rate, .is_back = false};
    for (const LinkId link : measured[i].links) {
      const std::optional<LinkId> back = opposite(link);
      if (!back) {
        continue;
      }
      const auto found = std::ranges::find_if(measured, [&](const LinkFinding& one) {
        return std::ranges::find(one.links, *back) != one.links.end();
      });
      if (found == measured.end()) {
        if (!is_faster_than(*back, other.rate) && assumed(*back) > other.rate) {
          other.links.push_back(*back);
        }
      } else if (found->rate > slow[i].rate && scaled(found->rate, kAlike) <= slow[i].rate) {
        slow[i].rate = found->rate;
      }
    }
    if (!other.links.empty()) {
      std::ranges::sort(other.links);
      slow.push_back(std::move(other));
    }
  }
}

SlowFinding SlowDetector::finding_after(std::uint32_t step) const {
  return {.step = step,
          .step_before = Duration::from_seconds(step_time_.before()),
          .step_now = Duration::from_seconds(step_time_.now()),
          .links = {},
          .ranks = {}};
}

std::map<Rank, ComputedStep> SlowDetector::computed_now() const {
  std::map<Rank, ComputedStep> steps;
  for (const auto& [rank, device] : devices_) {
    steps[rank] = {device.samples, device.compute.now() * static_cast<double>(device.samples)};
  }
  return steps;
}

/// What ranks that are known to be slow take for a batch that is new to them.
std::optional<SlowFinding> SlowDetector::refine(std::uint32_t step) {
  if (refined_ >= kMostRefined) {
    return std::nullopt;
  }
  SlowFinding finding = finding_after(step);
  for (const Rank rank : slow_ranks_.refine(computed_now())) {
    const std::int64_t samples = devices_.at(rank).samples;
    finding.ranks.push_back({rank, slow_ranks_.factor(rank, samples), samples});
  }
  if (finding.ranks.empty()) {
    return std::nullopt;
  }
  ++refined_;
  return finding;
}

SlowFinding SlowDetector::conclude(std::uint32_t step) {
  SlowFinding finding = finding_after(step);
  // All are worked out before any rate is changed.
  for (const std::size_t s : suspicion_.slow) {
    finding.links.push_back({blamed(strands_[s]), slow_rate(strands_[s]), false});
  }
  complete_cables(finding.links);
  for (const std::size_t s : suspicion_.faster) {
    finding.links.push_back({strands_[s].links, faster_rate(strands_[s]), true});
  }
  for (const std::size_t s : suspicion_.cleared) {
    const Strand& strand = strands_[s];
    finding.links.push_back(
        {strand.links, has_all_blamed(strand) ? faster_rate(strand) : most_planned(strand), true});
  }
  for (LinkFinding& found : finding.links) {
    for (const LinkId link : found.links) {
      const bool is_as_planned = found.is_back && found.rate >= scaled(planned(link), kAsPlanned);
      if (is_as_planned || found.rate >= planned(link)) {
        rates_.erase(link);
        blamed_with_.erase(link);
      } else {
        rates_[link] = found.is_back ? found.rate : std::min(found.rate, assumed(link));
      }
      if (!found.is_back && rates_.contains(link)) {
        blamed_with_[link] = found.links;
      }
    }
  }
  conclude_ranks(finding);
  refined_ = 0;
  restart();
  return finding;
}

void SlowDetector::conclude_ranks(SlowFinding& finding) {
  // What has changed all of them says nothing of one. Both before any factor is changed.
  const double of_the_others = growth_of_the_well(suspicion_.slow_ranks);
  const double of_the_well = growth_of_the_well();
  const auto factor = [&](Rank rank, double others) {
    const Device& device = devices_.at(rank);
    return slow_ranks_.factor(rank, device.samples) * growth(device.compute) / others;
  };
  for (const Rank rank : suspicion_.slow_ranks) {
    finding.ranks.push_back({rank, factor(rank, of_the_others)});
  }
  for (const Rank rank : suspicion_.faster_ranks) {
    const double now = factor(rank, of_the_well);
    finding.ranks.push_back({rank, now <= kWellAgain ? 1.0 : now});
  }
  std::map<Rank, double> factors;
  for (const RankFinding& found : finding.ranks) {
    factors[found.rank] = found.factor;
  }
  slow_ranks_.set(factors, computed_now());
}

}  // namespace rackrail::runtime
