#include "planner/candidates.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <iterator>
#include <span>
#include <tuple>
#include <utility>

#include "base/error.hpp"
#include "plan/reduced_error.hpp"
#include "planner/codecs_to_try.hpp"
#include "planner/collective_forms.hpp"
#include "planner/recode.hpp"

namespace rackrail::planner {

namespace {

// Slices that are tried, in elements: up to 4 MiB of FP32, from 256 KiB on, or from what the
// slowest link moves in this time, where that is less: a pipeline is filled in the time of a slice
// per hop. With many ranks chunks are small and slices hardly matter, so only one is tried: the
// usual one, or a larger one of which a collective is no more than so many messages.
constexpr std::int64_t kFineSlice = 1 << 16;
constexpr std::int64_t kCoarsestSlice = 1 << 20;
constexpr std::int64_t kFinestSlice = 1 << 12;
constexpr Duration kShortSlice = 2_ms;
constexpr std::int64_t kUsualSlice = 1 << 18;
constexpr std::int64_t kLargestSlice = std::int64_t{1} << 28;
constexpr std::size_t kManyRanks = 32;
constexpr std::int64_t kFloatBytes = 4;
// With very many ranks, by how much a collective must be able to be faster to be simulated, and
// which lower bounds are alike.
constexpr double kWorthSimulating = 0.005;
constexpr double kNearly = 0.01;
// How far what other sizes and codecs say of a time may be off, and of which family sizes say
// nothing: where all ranks send to all servers at once, times jump with the order of the flows.
constexpr double kExpectedDeviation = 0.1;
constexpr const char* kFirstOfTheOthers = "parameter-server";  // those before it are made at once
constexpr const char* kUnsteadyFamily = "parameter-server";
// There nearly all messages are under way at once, and each that ends changes the rates of others.
constexpr std::int64_t kMostMessagesAtOnce = kMostMessages / 6;
// Of bounds, which are near enough to the least for a first simulation.
constexpr double kNotFarFromLeast = 2;
// With very many ranks, of the finer of a family's schedules: a step of forty buckets of more would
// be too large to be simulated beside others (kMostTransfersOfStep).
constexpr std::size_t kMostTransfersOfFiner = 65'000;

std::int64_t usual_slice(const Candidate& candidate, std::int64_t elements) {
  const std::int64_t chunk = std::max<std::int64_t>(
      1, elements / static_cast<std::int64_t>(candidate.graph.chunk_count()));
  const auto transfers = static_cast<std::int64_t>(candidate.graph.transfers().size());
  const std::int64_t messages =
      candidate.family == kUnsteadyFamily ? kMostMessagesAtOnce : kMostMessages;
  const std::int64_t most = std::max<std::int64_t>(1, messages / transfers);
  std::int64_t slice = kUsualSlice;
  while (slice < kLargestSlice && (chunk + slice - 1) / slice > most) {
    slice *= 2;
  }
  return slice;
}

std::vector<std::int64_t> slices_for(const topology::Topology& topology) {
  Bandwidth slowest = Bandwidth(INT64_MAX);
  for (std::size_t i = 0; i < topology.link_count(); ++i) {
    slowest = std::min(slowest, topology.link(LinkId(i)).bandwidth);
  }
  std::int64_t slice = kFineSlice;
  while (slice > kFinestSlice && Bytes(slice * kFloatBytes) / slowest > kShortSlice) {
    slice /= 2;
  }
  std::vector<std::int64_t> slices;
  for (; slice <= kCoarsestSlice; slice *= 4) {
    slices.push_back(slice);
  }
  return slices;
}

int strength(const plan::Codec& codec) { return static_cast<int>(codec.kind); }

std::vector<plan::Codec> codecs_within(const topology::Topology& topology,
                                       const PlannerOptions& options,
                                       const std::function<double(const plan::Codec&)>& error_of) {
  if (options.codec.has_value()) {
    return {*options.codec};
  }
  return codecs_to_try(topology, options.error_budget, error_of);
}

// Which pairs make sense: the slow tier's codec is never weaker than the fast tier's.
std::vector<TierCodecs> codec_pairs(const std::vector<plan::Codec>& allowed, bool only_one) {
  std::vector<plan::Codec> inside = allowed;
  if (only_one && allowed[0].is_lossy()) {
    inside.push_back(plan::Codec{});
    if (allowed[0].kind != plan::CodecKind::kFp16) {
      inside.push_back(plan::Codec{.kind = plan::CodecKind::kFp16});
    }
  }
  std::vector<TierCodecs> pairs;
  for (const plan::Codec& across : allowed) {
    for (const plan::Codec& codec : inside) {
      if (strength(codec) <= strength(across)) {
        pairs.push_back({codec, across});
      }
    }
  }
  return pairs;
}

// The least share of its time that a collective can need when its codec becomes a stronger one.
double most_saved(const plan::Codec& from, const plan::Codec& to) {
  constexpr std::int64_t kMany = 1 << 20;
  return plan::encoded_size(to, kMany) / plan::encoded_size(from, kMany);
}

/// Whether cables between switches outside hosts have several rates.
bool are_switch_links_unlike(const topology::Topology& topology) {
  const auto is_outside = [&](NodeId node) {
    return topology.node(node).host.empty() && !topology.rank_of(node);
  };
  std::optional<Bandwidth> rate;
  for (std::size_t l = 0; l < topology.link_count(); ++l) {
    const topology::Link& link = topology.link(LinkId(l));
    if (is_outside(link.from) && is_outside(link.to)) {
      if (rate.value_or(link.bandwidth) != link.bandwidth) {
        return true;
      }
      rate = link.bandwidth;
    }
  }
  return false;
}

/// What candidates share that differ in codecs only.
std::pair<std::string, std::size_t> shape_of(const Candidate& candidate) {
  return {candidate.family, candidate.variant};
}

}  // namespace

topology::Router make_router(const topology::Topology& topology) {
  return topology::Router(topology,
                          are_switch_links_unlike(topology) ? topology::Distance::kMessage
                                                            : topology::Distance::kLatency,
                          topology.rank_count() < kVeryManyRanks ? topology::EqualRoutes::kHashed
                                                                 : topology::EqualRoutes::kDealt);
}

std::map<std::string, plan::Codec> codecs_by_tier(const topology::Topology& topology,
                                                  const plan::TransferGraph& graph) {
  std::map<std::string, plan::Codec> tiers;
  std::map<std::pair<std::uint32_t, std::uint8_t>, bool> seen;  // (route, codec)
  for (const plan::Transfer& transfer : graph.transfers()) {
    if (!seen.emplace(std::pair(transfer.route.value(), transfer.codec), true).second) {
      continue;
    }
    const plan::Codec& codec = graph.codecs()[transfer.codec];
    for (const LinkId link : graph.routes()[transfer.route.index()]) {
      const auto [it, added] = tiers.emplace(topology.link(link).tier, codec);
      if (!added && strength(codec) > strength(it->second)) {
        it->second = codec;
      }
    }
  }
  return tiers;
}

CandidateSet::CandidateSet(const topology::Topology& topology, plan::CostModel& cost_model,
                           const PlannerOptions& options, const plan::Workload* workload,
                           std::vector<std::string> first)
    : topology_(topology),
      cost_model_(cost_model),
      stop_(options.stop),
      schedule_(options.schedule),
      first_(std::move(first)),
      router_(make_router(topology)),
      interpolates_(!options.exhaustive && topology.rank_count() >= kVeryManyRanks),
      expects_(!options.exhaustive && topology.rank_count() >= kManyRanks),
      has_bursts_(topology::longest_burst_time(topology) > Duration()),
      worthwhile_(interpolates_ ? kWorthSimulating : 0),
      may_have_rates_(may_have_rates(options.route_rates, topology)),
      slices_(slices_for(topology)),
      error_of_([workload](const plan::Codec& codec) {
        return workload != nullptr ? workload->codec_error(codec) : plan::usual_error(codec).error;
      }),
      allowed_(codecs_within(topology, options, error_of_)) {
  if (!options.codec.has_value() || options.holds_codec_to_budget) {
    error_budget_ = options.error_budget;
  }
  if (schedule_.has_value()) {
    schedule_family(*schedule_);  // throws for a name that does not exist
  }
  pairs_ = codec_pairs(allowed_, options.codec.has_value());
  const bool needs_protected = allowed_[0].has_error_feedback();
  for (const auto& family : schedule_families()) {
    if (is_first(family->name())) {
      add_family(*family, pairs_, false);
    }
  }
  if (candidates_.empty()) {
    add_families(stop_ && !needs_protected);
  }
  if (candidates_.empty() && least_error_.has_value()) {
    constexpr double kShown = 1e4;  // digits after the point, upwards
    throw ConfigError(
        ErrorContext{"<command line>", "error budget", fmt::format("{}", *error_budget_),
                     fmt::format("at least {}, which the best schedule with this codec needs",
                                 std::ceil(*least_error_ * kShown) / kShown)});
  }
  if (candidates_.empty()) {
    throw ConfigError(
        ErrorContext{"<command line>", "schedule and codec",
                     fmt::format("no schedule that can be used: {}", fmt::join(refusals_, "; ")),
                     "options that leave at least one"});
  }
  if (needs_protected) {
    const plan::Codec fp16{.kind = plan::CodecKind::kFp16};
    const std::size_t before = candidates_.size();
    if (schedule_.has_value()) {
      add_family(schedule_family(*schedule_), {{fp16, fp16}}, true);
    }
    if (candidates_.size() == before) {  // any, or one that moves no FP16
      for (const auto& family : schedule_families()) {
        add_family(*family, {{fp16, fp16}}, true);
      }
    }
    allowed_.push_back(fp16);
  }
}

bool CandidateSet::is_first(std::string_view family) const {
  return std::ranges::find(first_, family) != first_.end();
}

void CandidateSet::add_families(bool only_first) {
  const auto families = schedule_families();
  for (; next_family_ < families.size(); ++next_family_) {
    const ScheduleFamily& family = *families[next_family_];
    if ((schedule_.has_value() && *schedule_ != family.name()) || is_first(family.name())) {
      continue;
    }
    if (!candidates_.empty()) {
      if (only_first && family.name() == kFirstOfTheOthers) {
        return;
      }
      if (stop_ && stop_()) {
        next_family_ = families.size();
        return;
      }
    }
    const std::size_t before = candidates_.size();
    try {
      // Of the first one some are made whatever it takes.
      add_family(family, pairs_, false, candidates_.empty() ? std::function<bool()>() : stop_);
    } catch (const MakingStopped&) {
      next_family_ = families.size();
      return;
    }
    if (candidates_.size() == before) {
      // Of the lightest codecs: what is said of them is not the fault of stronger ones.
      refusals_.push_back(
          fmt::format("{} ({})", family.name(),
                      graph_refusal(family, topology_, pairs_.front())
                          .value_or(error_budget_ ? "beyond the error budget" : "no codec fits")));
    }
  }
}

double CandidateSet::largest_error() const {
  double largest = 0;
  for (const Candidate& candidate : candidates_) {
    largest = std::max(largest, candidate.error);
  }
  return largest;
}

bool CandidateSet::complete() {
  const std::size_t before = candidates_.size();
  add_families(false);
  return candidates_.size() > before;
}

void CandidateSet::add_family(const ScheduleFamily& family, const std::vector<TierCodecs>& pairs,
                              bool only_protected, const std::function<bool()>& stop) {
  std::vector<plan::TransferGraph> graphs;
  for (const TierCodecs& codecs : pairs) {
    if (graph_refusal(family, topology_, codecs).has_value()) {
      continue;
    }
    if (graphs.empty() || family.depends_on_codecs()) {
      ScheduleRequest request{.topology = topology_, .router = router_, .codecs = codecs};
      request.stop = stop;
      request.may_have_rates = may_have_rates_;
      if (interpolates_) {
        request.most_transfers = kMostTransfersOfFiner;
      }
      graphs = family.all_reduces(request);
    }
    for (std::size_t variant = 0; variant < graphs.size(); ++variant) {
      Candidate candidate;
      candidate.family = family.name();
      candidate.variant = variant;
      candidate.codecs = codecs;
      candidate.only_protected = only_protected;
      candidate.graph = recoded(graphs[variant], topology_, codecs);
      candidate.error = plan::reduced_error(candidate.graph, error_of_);
      if (error_budget_.has_value() && candidate.error > *error_budget_) {
        least_error_ = std::min(least_error_.value_or(candidate.error), candidate.error);
        continue;
      }
      candidate.largest_share = shape_of(candidate.graph).largest_share;
      candidate.loads = plan::link_loads(candidate.graph, topology_);
      candidate.model = plan::alpha_beta(candidate.graph, topology_, candidate.loads);
      for (const plan::Transfer& transfer : candidate.graph.transfers()) {
        const plan::Codec& codec = candidate.graph.codecs()[transfer.codec];
        if (strength(codec) > strength(candidate.strongest)) {
          candidate.strongest = codec;
        }
      }
      candidate.hurts_protected = !candidate.strongest.survives_many_hops();
      candidate.codec_tiers = codecs_by_tier(topology_, candidate.graph);
      first_of_shape_.push_back(
          first_with_.emplace(shape_of(candidate), candidates_.size()).first->second);
      candidates_.push_back(std::move(candidate));
    }
  }
}

std::size_t CandidateSet::followed_transfers(std::size_t candidate) {
  const auto [known, is_new] = followed_.try_emplace(candidate);
  if (is_new) {
    known->second = cost_model_.followed_transfers(candidates_[candidate].graph);
  }
  return known->second;
}

std::optional<Duration> CandidateSet::time(std::size_t candidate, std::int64_t elements,
                                           std::int64_t slice_elements, Duration limit) {
  const auto below =
      static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(elements)));
  if (!interpolates_ || below == elements) {
    return simulated(candidate, elements, slice_elements, limit);
  }
  if (is_expected_slower(candidate, elements, limit)) {
    return std::nullopt;
  }
  const auto least = simulated(candidate, below, slice_elements, limit);
  if (!least.has_value()) {
    return std::nullopt;
  }
  const double share = static_cast<double>(elements - below) / static_cast<double>(below);
  // Where the line through both times meets the limit.
  const double meets = (limit - *least).seconds() / share;
  constexpr double kLongest = 1e6;
  const Duration limit_of_most =
      meets < kLongest ? *least + Duration::from_seconds(meets) : kNoLimit;
  const auto most = simulated(candidate, 2 * below, slice_elements, limit_of_most);
  if (!most.has_value()) {
    return std::nullopt;
  }
  const Duration between = *least + scaled(*most - *least, share);
  return between < limit ? std::optional(between) : std::nullopt;
}

// What other sizes and codecs say: more bytes take no less, and k times the bytes take at most k
// times as long; a codec saves at most its ratio of what FP32 takes.
Duration CandidateSet::expected_least(std::size_t candidate, std::int64_t elements) const {
  Duration least;
  for (auto it = known_.lower_bound(std::tuple(candidate, std::int64_t{0}, std::int64_t{0}));
       it != known_.end() && std::get<0>(it->first) == candidate; ++it) {
    const std::int64_t size = std::get<1>(it->first);
    if (size != elements && candidates_[candidate].family == kUnsteadyFamily) {
      continue;
    }
    const Duration at_least = it->second.time.value_or(it->second.at_least);
    const double share = static_cast<double>(elements) / static_cast<double>(size);
    least = std::max(least, size <= elements ? at_least : scaled(at_least, share));
  }
  const std::size_t first = first_of_shape_[candidate];
  if (first != candidate && !candidates_[first].strongest.is_lossy()) {
    const double gain = most_saved(candidates_[first].strongest, candidates_[candidate].strongest);
    least = std::max(least, scaled(expected_least(first, elements), gain));
  }
  return least;
}

bool CandidateSet::is_expected_slower(std::size_t candidate, std::int64_t elements,
                                      Duration limit) const {
  return !has_bursts_ &&  // a larger one may take many times as long
         scaled(expected_least(candidate, elements), 1 - kExpectedDeviation) > limit;
}

std::optional<Duration> CandidateSet::simulated(std::size_t candidate, std::int64_t elements,
                                                std::int64_t slice_elements, Duration limit) {
  Known& known = known_[std::tuple(candidate, elements, slice_elements)];
  if (!known.time.has_value() && known.at_least < limit) {
    if (expects_ && is_expected_slower(candidate, elements, limit)) {
      return std::nullopt;
    }
    const plan::TransferGraph& graph = candidates_[candidate].graph;
    known.time =
        limit == kNoLimit
            ? cost_model_.collective_time(graph, elements, slice_elements)  // not interrupted
            : cost_model_.collective_time_below(graph, elements, slice_elements, limit);
    if (!known.time.has_value() && stop_ && stop_()) {
      return std::nullopt;  // it may have been interrupted
    }
    known.at_least = limit;
  }
  return known.time.has_value() && *known.time < limit ? known.time : std::nullopt;
}

std::optional<Choice> CandidateSet::likely(std::int64_t elements,
                                           const CandidateFilter& filter) const {
  std::optional<Choice> least;
  for (std::size_t i = 0; i < candidates_.size(); ++i) {
    const Duration time = candidates_[i].model.at_least(elements);
    if ((!least.has_value() || time < least->time) && filter(candidates_[i])) {
      least = Choice{i, usual_slice(candidates_[i], elements), time};
    }
  }
  return least;
}

std::vector<std::int64_t> CandidateSet::slices_of(std::size_t candidate,
                                                  std::int64_t elements) const {
  if (topology_.rank_count() >= kManyRanks) {
    return {usual_slice(candidates_[candidate], elements)};
  }
  // Slices that no transfer is longer than are all alike.
  const auto largest_transfer =
      static_cast<std::int64_t>(
          std::ceil(candidates_[candidate].largest_share * static_cast<double>(elements))) +
      1;
  std::vector<std::int64_t> slices = {slices_.front()};
  for (std::size_t i = 1;
       i < slices_.size() && slices_[i] <= elements && slices_[i - 1] < largest_transfer; ++i) {
    slices.push_back(slices_[i]);
  }
  return slices;
}

// The one that was chosen last, at another size mostly, else what is simulated soonest of those
// whose bounds are not far from the least.
std::optional<std::size_t> CandidateSet::likely_winner(std::int64_t elements,
                                                       const CandidateFilter& filter) const {
  const auto last = std::ranges::find_if(
      last_chosen_, [&](std::size_t candidate) { return filter(candidates_[candidate]); });
  if (last != last_chosen_.end()) {
    return *last;
  }
  const std::optional<Choice> least = likely(elements, filter);
  if (!least.has_value()) {
    return std::nullopt;
  }
  std::optional<std::size_t> soonest;
  for (std::size_t i = 0; i < candidates_.size(); ++i) {
    const Candidate& candidate = candidates_[i];
    if (candidate.family != kUnsteadyFamily && filter(candidate) &&
        candidate.model.at_least(elements) <= scaled(least->time, kNotFarFromLeast) &&
        (!soonest.has_value() ||
         candidate.graph.transfers().size() < candidates_[*soonest].graph.transfers().size())) {
      soonest = i;
    }
  }
  return soonest.has_value() ? soonest : least->candidate;
}

void CandidateSet::remember_chosen(std::size_t candidate) {
  std::erase(last_chosen_, candidate);
  last_chosen_.insert(last_chosen_.begin(), candidate);
}

std::optional<Choice> CandidateSet::cheapest(std::int64_t elements, const CandidateFilter& filter,
                                             Duration most) {
  if (most < kNoLimit) {
    return cheapest_below(elements, filter, most);
  }
  const auto candidate = likely_winner(elements, filter);
  if (!candidate.has_value()) {
    return std::nullopt;
  }
  const std::int64_t slice = slices_of(*candidate, elements).back();
  const Choice known{*candidate, slice, time(*candidate, elements, slice, kNoLimit).value()};
  const Choice best = cheapest_below(elements, filter, known.time + Duration(1)).value_or(known);
  remember_chosen(best.candidate);
  return best;
}

std::optional<Choice> CandidateSet::cheapest_below(std::int64_t elements,
                                                   const CandidateFilter& filter, Duration most) {
  std::optional<Choice> best;
  const auto least = [&] { return best.has_value() ? best->time : most; };
  // None when it is no faster than the limit.
  const auto time_of = [&](std::size_t i, Duration limit) {
    std::optional<Duration> fastest;
    for (const std::int64_t slice : slices_of(i, elements)) {
      const auto cost = time(i, elements, slice, fastest.value_or(limit));
      if (!cost.has_value()) {
        continue;
      }
      fastest = cost;
      if (*cost < least()) {
        best = Choice{i, slice, *cost};
      }
    }
    return fastest;
  };
  const auto may_win = [&](std::size_t i) {
    return candidates_[i].model.at_least(elements) < scaled(least(), 1 - worthwhile_) &&
           !(stop_ && stop_()) && !(expects_ && is_expected_slower(i, elements, least()));
  };
  // The lightest form of every family first, the most promising family before others.
  std::vector<std::size_t> lightest;
  std::map<std::size_t, std::vector<std::size_t>> forms;  // in the race, by the lightest of them
  std::map<std::pair<std::string, std::size_t>, std::size_t> lightest_of;
  for (std::size_t i = 0; i < candidates_.size(); ++i) {
    if (filter(candidates_[i])) {
      const auto [first, is_new] = lightest_of.emplace(shape_of(candidates_[i]), i);
      if (is_new) {
        lightest.push_back(i);
      }
      forms[first->second].push_back(i);
    }
  }
  // Of those that may be equally good, what is simulated soonest.
  const auto place = [&](std::size_t i) {
    const auto bound = candidates_[i].model.at_least(elements).picoseconds();
    return worthwhile_ > 0
               ? std::pair(std::llround(std::log(static_cast<double>(bound + 1)) / kNearly),
                           candidates_[i].graph.transfers().size())
               : std::pair<long long, std::size_t>(bound, 0);
  };
  std::stable_sort(lightest.begin(), lightest.end(),
                   [&](std::size_t a, std::size_t b) { return place(a) < place(b); });
  // A codec shrinks messages by its ratio at most, so a family that is slower than the best by more
  // than that need not be tried with codecs, nor be simulated further than to that. Where links let
  // bursts pass at once, a smaller message may take no time at all.
  const auto gain_of = [&](std::size_t first, std::size_t i) {
    return has_bursts_ ? 0 : most_saved(candidates_[first].strongest, candidates_[i].strongest);
  };
  std::map<std::size_t, double> largest_gain;  // by the lightest form
  for (const auto& [first, all] : forms) {
    double gain = 1.0;
    for (const std::size_t i : all) {
      gain = std::min(gain, gain_of(first, i));
    }
    largest_gain.emplace(first, gain);
  }
  // Of a lightest form that cannot win itself, the time may still say that stronger ones cannot.
  const auto may_one_win = [&](std::size_t first) {
    return std::ranges::any_of(forms.at(first), may_win);
  };
  std::map<std::size_t, std::optional<Duration>> simulated;
  for (const std::size_t i : lightest) {
    if (candidates_[i].model.at_least(elements) < scaled(least(), 1 - worthwhile_) &&
        may_one_win(i)) {
      const Duration limit =
          largest_gain.at(i) > 0 ? scaled(least(), 1 / largest_gain.at(i)) : kNoLimit;
      simulated.emplace(i, time_of(i, limit));
    }
  }
  for (std::size_t i = 0; i < candidates_.size(); ++i) {
    if (!filter(candidates_[i]) || !may_win(i)) {
      continue;
    }
    const std::size_t first = lightest_of.at(shape_of(candidates_[i]));
    const auto known = simulated.find(first);
    const bool may_gain =
        known == simulated.end() ||
        (known->second.has_value() && scaled(*known->second, gain_of(first, i)) < least());
    if (i != first && may_gain) {
      time_of(i, least());
    }
  }
  return best;
}

}  // namespace rackrail::planner
