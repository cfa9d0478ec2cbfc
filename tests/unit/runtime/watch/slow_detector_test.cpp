#include "runtime/watch/slow_detector.hpp"

#include <catch2/catch.hpp>
#include <cmath>
#include <random>
#include <set>
#include <string>

#include "tests/support/clusters.hpp"
#include "topology/queries.hpp"

namespace rackrail::runtime::slow_detector_test {
namespace {

constexpr double kBytes = 4e9;  // of a pair in a step: a second over an uplink

/// A job whose pairs share links evenly, all at the same time, at the rates that the links really
/// have; 5 % of them are lost to protocols.
class Job {
 public:
  explicit Job(std::vector<RankPair> given, double scale = 1,
               topology::Topology of = test::two_racks())
      : cluster(std::move(of)),
        pairs(std::move(given)),
        detector(cluster, DetectorOptions{.rate_scale = scale}),
        scale_(scale) {
    for (std::size_t link = 0; link < cluster.link_count(); ++link) {
      rates.push_back(static_cast<double>(cluster.link(LinkId(link)).bandwidth.bytes_per_second()));
    }
  }

  /// Real rate of a link, by the cluster's.
  void set_rate(const std::string& from, const std::string& to, double share) {
    const LinkId link = link_of(from, to);
    rates[link.index()] =
        share * static_cast<double>(cluster.link(link).bandwidth.bytes_per_second());
  }
  LinkId link_of(const std::string& from, const std::string& to) const {
    for (std::size_t link = 0; link < cluster.link_count(); ++link) {
      if (cluster.link_name(LinkId(link)) == from + "→" + to) {
        return LinkId(link);
      }
    }
    throw std::logic_error("no such link");
  }

  topology::Route links_of(const RankPair& pair) { return router_.route(pair.first, pair.second); }

  std::optional<SlowFinding> step() {
    ++steps;
    std::map<LinkId, int> users;
    for (const RankPair& pair : pairs) {
      for (const LinkId link : router_.route(pair.first, pair.second)) {
        ++users[link];
      }
    }
    std::vector<StepMeasurement> all(4);
    double longest = 0;
    for (std::size_t rank = 0; rank < all.size(); ++rank) {
      const double compute =
          (0.5 * compute_factor[rank] + fixed[rank] * 32 / static_cast<double>(samples[rank])) *
          everything * jittered();
      longest = std::max(longest, compute);
      all[rank] = {
          .rank = Rank(rank),
          .step = steps,
          .samples = samples[rank],
          .step_time = {},
          .compute_time = Duration::from_seconds(compute * static_cast<double>(samples[rank]) / 32),
          .received = {}};
    }
    double slowest = 0;
    for (const RankPair& pair : pairs) {
      double rate = 1e18;
      for (const LinkId link : router_.route(pair.first, pair.second)) {
        rate = std::min(rate, rates[link.index()] * scale_ / users[link]);
      }
      const double busy = kBytes / (0.95 * rate) * everything * jittered();
      slowest = std::max(slowest, busy);
      all[pair.second.index()].received.push_back(
          {pair.first, Bytes(static_cast<std::int64_t>(kBytes)), Duration::from_seconds(busy)});
    }
    std::optional<SlowFinding> found;
    for (StepMeasurement& one : all) {
      one.step_time = Duration::from_seconds(longest + slowest);
      CHECK_FALSE(found.has_value());  // only with the last rank
      found = detector.add(one);
    }
    return found;
  }
  /// Whether that many steps pass without a finding.
  bool is_quiet_for(int count) {
    for (int i = 0; i < count; ++i) {
      if (step()) {
        return false;
      }
    }
    return true;
  }
  /// Steps until something is found, and what; fails after ten.
  std::pair<int, SlowFinding> find() {
    for (int i = 1; i <= 10; ++i) {
      if (const std::optional<SlowFinding> found = step()) {
        return {i, *found};
      }
    }
    FAIL("nothing was found in ten steps");
    return {};
  }
  void restart() { detector.begin({Rank(0), Rank(1), Rank(2), Rank(3)}); }

  const topology::Topology cluster;
  std::vector<RankPair> pairs;
  std::vector<double> rates;  ///< real, by link, in the terms of the cluster
  std::vector<double> compute_factor{1, 1, 1, 1};
  std::vector<double> fixed{0, 0, 0, 0};  ///< seconds of a step, whatever the samples
  std::vector<std::int64_t> samples{32, 32, 32, 32};
  double everything = 1;  ///< what the whole machine is slower by
  double jitter = 0.02;   ///< standard deviation of the logarithm of each figure
  SlowDetector detector;
  std::uint32_t steps = 0;
  std::mt19937_64 random{1};

 private:
  double jittered() { return std::exp(jitter * std::normal_distribution<>()(random)); }

  const double scale_;
  topology::Router router_{cluster};
};

RankPair pair(int source, int destination) { return {Rank(source), Rank(destination)}; }

std::vector<RankPair> hierarchical() {
  return {pair(0, 1), pair(1, 0), pair(2, 3), pair(3, 2),
          pair(0, 2), pair(2, 0), pair(1, 3), pair(3, 1)};
}
std::vector<RankPair> ring() { return {pair(0, 1), pair(1, 2), pair(2, 3), pair(3, 0)}; }

double rate_of(const LinkFinding& found) {
  return static_cast<double>(found.rate.bytes_per_second());
}

constexpr int kSteady = 20;
constexpr int kSoon = 6;

}  // namespace

TEST_CASE("a slow uplink is found, with its rate, and no other link") {
  // A real network, and an emulated one that runs at an eightieth of the cluster's rates.
  for (const double scale : {1.0, 0.0125}) {
    Job job(hierarchical(), scale);
    CHECK(job.is_quiet_for(kSteady));
    job.set_rate("rack0-tor", "core", 0.2);
    const auto [steps, found] = job.find();
    CHECK(steps <= kSoon);
    CHECK(found.step == kSteady + static_cast<std::uint32_t>(steps));
    CHECK(found.step_now > scaled(found.step_before, 2));
    CHECK(found.ranks.empty());
    REQUIRE(found.links.size() == 1);
    // With two racks nothing tells the way out of one from the way into the other.
    CHECK(std::set(found.links[0].links.begin(), found.links[0].links.end()) ==
          std::set{job.link_of("rack0-tor", "core"), job.link_of("core", "rack1-tor")});
    CHECK(rate_of(found.links[0]) == Approx(0.8e9).epsilon(0.1));
    CHECK_FALSE(found.links[0].is_back);
    CHECK(job.detector.rates().size() == 2);
    CHECK(job.is_quiet_for(3 * kSteady));  // it is known now
  }
}

TEST_CASE("a slow cable is found in both directions, a slow host's link apart from the uplinks") {
  Job job(hierarchical());
  CHECK(job.is_quiet_for(kSteady));
  SECTION("both directions of an uplink") {
    job.set_rate("rack1-tor", "core", 0.25);
    job.set_rate("core", "rack1-tor", 0.25);
    const auto [steps, found] = job.find();
    CHECK(steps <= kSoon);
    CHECK(found.links.size() == 2);
    for (const LinkFinding& one : found.links) {
      CHECK(rate_of(one) == Approx(1e9).epsilon(0.1));
    }
  }
  SECTION("one host's way out") {
    // It was not what limited anything: its rate comes from what gets through it.
    job.set_rate("rack0-host0", "rack0-tor", 0.1);
    const auto [steps, found] = job.find();
    CHECK(steps <= kSoon);
    REQUIRE(found.links.size() == 1);
    CHECK(found.links[0].links == std::vector{job.link_of("rack0-host0", "rack0-tor")});
    CHECK(rate_of(found.links[0]) == Approx(1e9).epsilon(0.1));
  }
}

TEST_CASE("noise is not taken for anything") {
  for (const auto& pairs : {hierarchical(), ring()}) {
    for (std::uint64_t seed = 0; seed < 20; ++seed) {
      CAPTURE(pairs.size(), seed);
      Job job(pairs);
      job.random.seed(seed);
      job.jitter = 0.25;
      CHECK(job.is_quiet_for(500));
      // Others use the whole machine for a while.
      for (const double slower : {3.0, 1.0, 1.5, 1.0, 10.0, 1.0}) {
        job.everything = slower;
        CHECK(job.is_quiet_for(50));
      }
    }
  }
}

TEST_CASE("what is slow is found in noise too") {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    CAPTURE(seed);
    Job job(hierarchical());
    job.random.seed(seed);
    job.jitter = 0.25;
    CHECK(job.is_quiet_for(100));
    job.set_rate("rack0-tor", "core", 0.2);
    const SlowFinding found = job.find().second;
    REQUIRE(found.links.size() == 1);
    CHECK(found.links[0].links.size() == 2);
    CHECK(rate_of(found.links[0]) == Approx(0.8e9).epsilon(0.35));
  }
}

TEST_CASE("one bad step is not taken for anything, and neither is what does not matter") {
  Job job(hierarchical());
  CHECK(job.is_quiet_for(kSteady));
  for (int i = 0; i < 20; ++i) {
    job.set_rate("rack0-tor", "core", i % 5 == 0 ? 0.01 : 1);
    CHECK(job.is_quiet_for(1));
  }
  job.set_rate("rack0-tor", "core", 1);
  // Pairs that share a host's link need half a second; the step takes two and a half.
  job.set_rate("rack0-tor", "rack0-host0", 0.95);
  CHECK(job.is_quiet_for(kSteady));
}

TEST_CASE("a rank that computes slowly is found, and that it is well again") {
  Job job(hierarchical());
  CHECK(job.is_quiet_for(kSteady));
  job.compute_factor[2] = 3;
  const auto [steps, found] = job.find();
  CHECK(steps <= kSoon);
  CHECK(found.links.empty());
  REQUIRE(found.ranks.size() == 1);
  CHECK(found.ranks[0].rank == Rank(2));
  CHECK(found.ranks[0].factor == Approx(3).epsilon(0.1));
  CHECK(job.detector.factors().size() == 1);
  // It gets fewer samples in the next epoch, and then it recovers.
  job.samples = {38, 38, 14, 38};
  job.restart();
  CHECK(job.is_quiet_for(kSteady));
  job.compute_factor[2] = 1;
  const SlowFinding well = job.find().second;
  REQUIRE(well.ranks.size() == 1);
  CHECK(well.ranks[0].factor == 1);
  CHECK(job.detector.factors().empty());
}

TEST_CASE("a rank that stands still now and then is slow, not its links, whatever the noise") {
  // Its messages wait as its computation does; the noise of its computation alone is as large.
  Job job(hierarchical());
  REQUIRE(job.is_quiet_for(4));
  std::mt19937_64 noise(3);
  for (int i = 0; i < 16; ++i) {
    job.compute_factor.assign(4, std::exp(0.6 * std::normal_distribution<>()(noise)));
    REQUIRE_FALSE(job.step());
  }
  const bool is_computing_slow = GENERATE(true, false);
  job.compute_factor = {1, 1, is_computing_slow ? 6.0 : 1.0, 1};
  job.set_rate("rack1-host0", "rack1-tor", 0.1);
  job.set_rate("rack1-tor", "rack1-host0", 0.1);
  const SlowFinding found = job.find().second;
  if (is_computing_slow) {
    CHECK(found.links.empty());
    REQUIRE(found.ranks.size() == 1);
    CHECK(found.ranks[0].rank == Rank(2));
  } else {
    CHECK(found.ranks.empty());
    CHECK(found.links.size() == 2);
  }
}

TEST_CASE("a slow rank is as slow as it is against the others, on a machine that is slow itself") {
  Job job(hierarchical());
  CHECK(job.is_quiet_for(kSteady));
  job.compute_factor[2] = 3;
  job.everything = 1.8;
  const SlowFinding found = job.find().second;
  REQUIRE(found.ranks.size() == 1);
  CHECK(found.ranks[0].factor == Approx(3).epsilon(0.1));

  // With the machine well again, it is as slow against the others as before.
  CHECK(job.is_quiet_for(kSteady));
  job.everything = 1;
  CHECK(job.is_quiet_for(kSteady));
  CHECK(job.detector.factors().at(Rank(2)).back().factor == Approx(3).epsilon(0.1));
  // And well once it is itself, even where the machine becomes slow again meanwhile.
  job.compute_factor[2] = 1;
  job.everything = 1.2;
  const auto [after, well] = job.find();
  REQUIRE(well.ranks.size() == 1);
  CHECK(well.ranks[0].factor == 1);
  CHECK(job.detector.factors().empty());
}

TEST_CASE("a slow rank is as slow as it is against the others, whom it leaves its core") {
  Job job(hierarchical());
  CHECK(job.is_quiet_for(kSteady));
  job.compute_factor = {0.6, 0.6, 3, 0.6};
  const SlowFinding found = job.find().second;
  REQUIRE(found.ranks.size() == 1);
  CHECK(found.ranks[0].rank == Rank(2));
  CHECK(found.ranks[0].factor == Approx(5).epsilon(0.1));
}

TEST_CASE("what a slow rank takes for its new batch is found once, and that it is well again") {
  Job job(hierarchical());
  CHECK(job.is_quiet_for(kSteady));
  job.compute_factor[2] = 2;
  job.fixed[2] = 1;  // as much as 32 samples: 4 times as long in all
  CHECK(job.find().second.ranks.at(0).factor == Approx(4).epsilon(0.1));
  job.samples = {39, 39, 11, 39};
  job.restart();
  const auto [steps, found] = job.find();
  CHECK(steps == 8);  // the reference
  CHECK(found.links.empty());
  REQUIRE(found.ranks.size() == 1);
  CHECK(found.ranks[0].rank == Rank(2));
  CHECK(found.ranks[0].samples == 11);
  CHECK(found.ranks[0].factor == Approx(2 + 2 * 32. / 11).epsilon(0.1));
  CHECK(job.detector.factors().at(Rank(2)).size() == 2);
  job.samples = {41, 41, 5, 41};
  job.restart();
  CHECK(job.is_quiet_for(kSteady));  // as the line through both says
  job.compute_factor[2] = 1;
  job.fixed[2] = 0;
  const SlowFinding well = job.find().second;
  REQUIRE(well.ranks.size() == 1);
  CHECK(well.ranks[0].factor == 1);
  CHECK(job.detector.factors().empty());
}

TEST_CASE("new batches of a slow rank are a finding a few times only") {
  Job job(hierarchical());
  CHECK(job.is_quiet_for(kSteady));
  job.compute_factor[2] = 4;
  job.find();
  int found = 0;
  for (int epoch = 0; epoch < 6; ++epoch) {
    job.samples[2] = epoch % 2 == 0 ? 8 : 16;
    job.compute_factor[2] *= 2;  // never as was assumed
    job.restart();
    found += job.is_quiet_for(8) ? 0 : 1;
  }
  CHECK(found == 3);
}

TEST_CASE("a link that has its rate again is found") {
  Job job(hierarchical());
  CHECK(job.is_quiet_for(kSteady));
  job.set_rate("rack0-tor", "core", 0.2);
  job.find();
  job.restart();
  CHECK(job.is_quiet_for(kSteady));
  job.set_rate("rack0-tor", "core", 1);
  const auto [steps, found] = job.find();
  CHECK(steps <= kSoon);
  REQUIRE(found.links.size() == 1);
  CHECK(found.links[0].is_back);
  CHECK(rate_of(found.links[0]) == Approx(4e9).epsilon(0.1));
  CHECK(job.detector.rates().empty());
  CHECK(job.is_quiet_for(kSteady));
}

TEST_CASE("what is slow in both directions is the cable") {
  Job job(ring());
  CHECK(job.is_quiet_for(kSteady));
  job.set_rate("rack0-tor", "core", 0.1);
  job.set_rate("core", "rack0-tor", 0.1);
  const SlowFinding found = job.find().second;
  REQUIRE(found.links.size() == 2);
  std::set<LinkId> blamed;
  for (const LinkFinding& one : found.links) {
    blamed.insert(one.links.begin(), one.links.end());
  }
  CHECK(blamed == std::set{job.link_of("rack0-tor", "core"), job.link_of("core", "rack1-tor"),
                           job.link_of("rack1-tor", "core"), job.link_of("core", "rack0-tor")});
}

TEST_CASE("a cable is slow both ways, unless more gets through one way") {
  // Nobody sends to host 0.
  Job job({pair(0, 1), pair(2, 3), pair(0, 2), pair(1, 3)});
  CHECK(job.is_quiet_for(kSteady));
  job.set_rate("rack0-host0", "rack0-tor", 0.1);
  const SlowFinding found = job.find().second;
  REQUIRE(found.links.size() == 2);
  CHECK(found.links[0].links == std::vector{job.link_of("rack0-host0", "rack0-tor")});
  CHECK(found.links[1].links == std::vector{job.link_of("rack0-tor", "rack0-host0")});
  CHECK(found.links[0].rate == found.links[1].rate);
  CHECK(job.detector.rates().size() == 2);
}

TEST_CASE("a link that others keep from its rate is taken for what was planned") {
  // Hosts and the uplink have 10 each, and half of what rank 0 sends stays in its rack.
  Job job({pair(0, 1), pair(1, 0), pair(2, 3), pair(3, 2), pair(0, 2), pair(2, 0)}, 1,
          test::clos({2, 2}, 1));
  CHECK(job.is_quiet_for(kSteady));
  const RankPair across = pair(0, 2);
  const LinkId uplink = job.links_of(across)[1];
  job.rates[uplink.index()] = 1e9;
  const SlowFinding slow = job.find().second;
  REQUIRE(slow.links.size() == 1);
  CHECK(slow.links[0].links.front() == uplink);
  CHECK(rate_of(slow.links[0]) == Approx(1e9).epsilon(0.1));
  job.restart();
  CHECK(job.is_quiet_for(kSteady));
  job.rates[uplink.index()] = 10e9;
  const SlowFinding found = job.find().second;
  REQUIRE(found.links.size() == 1);
  CHECK(found.links[0].is_back);
  CHECK(rate_of(found.links[0]) == Approx(10e9));
  CHECK(job.detector.rates().empty());
}

TEST_CASE("links that were blamed with the slow one are cleared once others use them") {
  Job job(ring());
  CHECK(job.is_quiet_for(kSteady));
  job.set_rate("rack0-tor", "core", 0.1);
  const SlowFinding found = job.find().second;
  REQUIRE(found.links.size() == 1);
  CHECK(found.links[0].links.size() == 4);  // all that rank 1 uses to reach rank 2
  job.pairs = hierarchical();
  job.restart();
  const int settled = 8;  // steps without a reference
  CHECK(job.is_quiet_for(settled - 1));
  const SlowFinding cleared = job.find().second;
  CHECK(cleared.links.size() == 2);
  CHECK(job.detector.rates().size() == 2);
  CHECK(job.detector.rates().contains(job.link_of("rack0-tor", "core")));
  CHECK(job.detector.rates().contains(job.link_of("core", "rack1-tor")));
}

TEST_CASE("a slow link whose rate was taken for too low is not taken for well") {
  Job job(ring());
  CHECK(job.is_quiet_for(kSteady));
  job.set_rate("rack0-tor", "core", 0.1);
  const SlowFinding slow = job.find().second;
  REQUIRE(slow.links.size() == 1);
  // As where the first steps after the change were longer than those that follow.
  job.set_rate("rack0-tor", "core", 0.2);
  job.restart();
  const int settled = 8;  // steps without a reference
  CHECK(job.is_quiet_for(settled - 1));
  const SlowFinding found = job.find().second;
  REQUIRE(found.links.size() == 1);
  CHECK(found.links[0].links == slow.links[0].links);
  CHECK(found.links[0].is_back);
  const LinkId uplink = job.link_of("rack0-tor", "core");
  CHECK(rate_of(found.links[0]) == Approx(job.rates[uplink.index()]).epsilon(0.1));
  CHECK(job.detector.rates().size() == slow.links[0].links.size());
}

TEST_CASE("a link that is still slow is not taken for well once those blamed with it are") {
  Job job(ring());
  CHECK(job.is_quiet_for(kSteady));
  job.set_rate("rack0-tor", "core", 0.1);
  CHECK(job.find().second.links.size() == 1);
  job.pairs = hierarchical();
  job.restart();
  const int settled = 8;  // steps without a reference
  CHECK(job.is_quiet_for(settled - 1));
  CHECK(job.find().second.links.size() == 2);  // the links of hosts
  job.set_rate("rack0-tor", "core", 0.5);
  job.restart();
  CHECK(job.is_quiet_for(settled - 1));
  const SlowFinding found = job.find().second;
  REQUIRE(found.links.size() == 1);
  const LinkId uplink = job.link_of("rack0-tor", "core");
  CHECK(rate_of(found.links[0]) == Approx(job.rates[uplink.index()]).epsilon(0.1));
  CHECK(job.detector.rates().contains(uplink));
}

TEST_CASE("only whole steps of the epoch's ranks count") {
  Job job(hierarchical());
  StepMeasurement one{.rank = Rank(0),
                      .step = 1,
                      .samples = 32,
                      .step_time = 1_s,
                      .compute_time = 1_s,
                      .received = {}};
  job.detector.begin({Rank(0), Rank(3)});
  for (std::uint32_t step = 1; step < 500; ++step) {
    one.step = step;
    one.rank = Rank(1);
    CHECK_FALSE(job.detector.add(one));
    one.rank = Rank(0);
    CHECK_FALSE(job.detector.add(one));
  }
}

}  // namespace rackrail::runtime::slow_detector_test
