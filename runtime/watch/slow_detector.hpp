// Which links or ranks of a running job have become slower than its plan assumes, from what its
// ranks measured in each step.
//
// Model. The first steps of an epoch do not count. Some steps after them are the reference
// (samples.hpp): for each pair of ranks the time per byte while the pair sends, for each rank the
// time per sample of computing. From then on, medians of the latest steps are compared with it. A
// figure has grown when it is larger by the factor `slow` and by more than noise explains: `sure`
// spreads of the reference, and up to twice that while the reference is short.
//
//   - A rank is slow when its time per sample has grown relative to that of the others, and that
//     matters in a step. A processor that stalls now and then delays messages, too. So where all
//     slow pairs are of one rank that computes for three times as long as before, the rank is slow,
//     though noise could explain as much, and its links are not.
//   - A pair is slow when its time per byte has grown against what computing has grown by for the
//     ranks in general (a machine on which somebody else computes slows everything), and that
//     matters in a step. Pairs of slow ranks say nothing.
//   - A strand of links (pair_network.hpp) is to blame when most of its pairs are slow and none is
//     well. Strands are taken until all slow pairs are explained, the one with most first. Where a
//     link of a strand is slow in both directions, as a bad cable is, its other links are not
//     blamed.
//   - Nothing is slow as long as steps take about as long as before, for what computing takes.
//
// The rate of a strand is the bytes of all its pairs by the longest time that one of them sends. It
// contains what protocols and pauses cost, and the scale of an emulated network: so it is divided
// by the share of their assumed rates that the busiest links reached in the reference, at least
// kLeastEfficiency. That is the link's rate in the terms of the cluster where pairs that share it
// send at the same time, and too high where they take turns.
//
// A cable that is slow one way is taken for slow the other way too, unless more than that gets
// through there.
//
// The way back. A strand with a rate below the cluster's is well again when its pairs are as much
// faster than in the reference. Its throughput is then its rate, or less than that where the pairs
// are limited by another link; so the planned rate is assumed. A strand that was blamed together
// with the right one is cleared when a pair alone gets far more through it than is assumed. Where
// all blamed strands are still used together, their throughput is their rate, and the earlier
// figure was too low. A rank is well again when its time per sample has shrunk relative to that of
// the ranks that were well all along: a faster machine as a whole does not change how slow the rank
// is.
//
// Another batch. A slow rank that a plan has given another batch may take longer for it than its
// factor says, or less (slow_ranks.hpp). Once the epoch has a reference that is a finding, too; a
// few times at most until something else is found.
//
// Noise. A finding must be the same `confirmations` steps in a row, on medians, and begins a new
// reference. With the default options a change is found in its 5th or 6th step.
//
// Pure logic without a clock; the same measurements give the same findings. O(pairs · route length)
// per reference, O(pairs + links) per step.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <vector>

#include "base/ids.hpp"
#include "base/units.hpp"
#include "runtime/coordinator/progress.hpp"
#include "runtime/watch/pair_network.hpp"
#include "runtime/watch/samples.hpp"
#include "runtime/watch/slow_ranks.hpp"
#include "topology/topology.hpp"

namespace rackrail::runtime {

struct DetectorOptions {
  std::size_t warmup = 2;  ///< steps after which the reference begins
  SampleLimits samples{};
  std::size_t confirmations = 3;  ///< steps in a row with the same finding
  double slow = 1.4;              ///< factor of time
  double sure = 3;                ///< spreads of the reference's logarithms
  double matters = 0.1;           ///< share of the reference's step time
  double rate_scale = 1;          ///< real rates by the cluster's: --scale of an emulated network
  /// As SlowRanks takes it.
  std::function<ComputeLine(Rank)> profile{};
};

struct LinkFinding {
  /// One of them or several: nothing that was measured tells them apart.
  std::vector<LinkId> links;
  Bandwidth rate;        ///< measured, in the terms of the cluster
  bool is_back = false;  ///< it is faster than was assumed
};

struct RankFinding {
  Rank rank;
  /// Its time per sample, by that of the job's beginning and by what the others' has grown by
  /// since; 1: well again.
  double factor = 1;
  /// It is known to be slow, and has another factor with these samples, by its profile's time for
  /// them. None: it has become slow, or well.
  std::optional<std::int64_t> samples{};
};

struct SlowFinding {
  std::uint32_t step = 0;  ///< after which it was found
  Duration step_before;    ///< median step times
  Duration step_now;
  std::vector<LinkFinding> links;
  std::vector<RankFinding> ranks;
};

class SlowDetector {
 public:
  /// Keeps a reference. The job has all ranks of the cluster until begin() says otherwise.
  SlowDetector(const topology::Topology& cluster, const DetectorOptions& options);

  /// An epoch of the job began, with these ranks of the cluster. What is measured from now on is
  /// compared with a new reference. Earlier findings stay known.
  void begin(std::vector<Rank> ranks);
  /// What one rank measured; the answer comes with the last rank of a step. Measurements of ranks
  /// that are not in the epoch are left out.
  std::optional<SlowFinding> add(const StepMeasurement& measurement);

  /// Rates other than the cluster's, and what is known of ranks that are slow.
  const std::map<LinkId, Bandwidth>& rates() const { return rates_; }
  const BatchFactors& factors() const { return slow_ranks_.factors(); }

 private:
  struct Pair {
    Samples bytes;
    Samples time;  ///< seconds per byte
  };
  struct Device {
    Samples compute;  ///< seconds per sample
    std::int64_t samples = 0;
  };
  enum class Health : std::uint8_t { kUnclear, kSlow, kWell, kFaster };
  /// What the latest steps say; equal when they say the same.
  struct Suspicion {
    std::vector<std::size_t> slow;     ///< strands
    std::vector<std::size_t> faster;   ///< strands
    std::vector<std::size_t> cleared;  ///< strands
    std::vector<Rank> slow_ranks;
    std::vector<Rank> faster_ranks;
    bool operator==(const Suspicion&) const = default;
    bool is_empty() const { return *this == Suspicion{}; }
  };

  void restart();
  void count(const std::map<Rank, StepMeasurement>& step);
  void learn_network();
  Suspicion suspect() const;
  void suspect_ranks(Suspicion& suspicion, double common) const;
  void suspect_halting_rank(Suspicion& suspicion, double common) const;
  std::map<RankPair, Health> pair_health(const Suspicion& suspicion, double common) const;
  void suspect_strands(Suspicion& suspicion, const std::map<RankPair, Health>& health) const;
  SlowFinding finding_after(std::uint32_t step) const;
  SlowFinding conclude(std::uint32_t step);
  void conclude_ranks(SlowFinding& finding);
  std::optional<SlowFinding> refine(std::uint32_t step);
  std::map<Rank, ComputedStep> computed_now() const;

  static double growth(const Samples& samples);
  double threshold(const Samples& samples) const;
  double common_growth() const;
  double growth_against(const Device& device, double common) const;
  bool does_matter(const Device& device, double common) const;
  double growth_of_the_well(const std::vector<Rank>& besides = {}) const;
  bool is_slower(double common) const;
  Bandwidth planned(LinkId link) const { return cluster_.link(link).bandwidth; }
  Bandwidth assumed(LinkId link) const;
  Bandwidth least_assumed(const Strand& strand) const;
  Bandwidth most_planned(const Strand& strand) const;
  bool is_degraded(const Strand& strand) const;
  bool is_limited_elsewhere(const Strand& strand) const;
  static double seconds(const Pair& pair, bool before);
  double strand_rate(const Strand& strand, bool before) const;
  double efficiency() const;
  Bandwidth slow_rate(const Strand& strand) const;
  Bandwidth faster_rate(const Strand& strand) const;
  bool has_all_blamed(const Strand& strand) const;
  std::vector<LinkId> blamed(const Strand& strand) const;
  bool is_slow(LinkId link) const;
  std::optional<LinkId> opposite(LinkId link) const;
  bool is_faster_than(LinkId link, Bandwidth rate) const;
  void complete_cables(std::vector<LinkFinding>& slow) const;

  const topology::Topology& cluster_;
  const DetectorOptions options_;
  std::vector<Rank> ranks_;
  std::map<LinkId, Bandwidth> rates_;
  std::map<LinkId, std::vector<LinkId>> blamed_with_;  ///< of links once found slow, themselves too
  SlowRanks slow_ranks_;
  bool is_new_batch_ = false;  ///< of this epoch, and not compared with its reference yet
  std::size_t refined_ = 0;    ///< times in a row

  std::map<std::uint32_t, std::map<Rank, StepMeasurement>> incomplete_;  ///< by step
  std::size_t steps_ = 0;                                                ///< since the restart
  Samples step_time_;                                                    ///< seconds
  std::map<RankPair, Pair> pairs_;
  std::map<Rank, Device> devices_;
  std::vector<Strand> strands_;  ///< once there is a reference
  Suspicion suspicion_;
  std::size_t confirmed_ = 0;  ///< steps in a row with that suspicion
};

}  // namespace rackrail::runtime
