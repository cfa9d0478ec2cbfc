#include "planner/tuning/candidates.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <span>
#include <utility>

#include "base/error.hpp"
#include "base/work.hpp"
#include "plan/reduced_error.hpp"
#include "planner/groups/many_ranks.hpp"
#include "planner/pipeline/recode.hpp"
#include "planner/tuning/codecs_to_try.hpp"
#include "planner/tuning/collective_forms.hpp"
#include "planner/tuning/step_forms.hpp"

namespace rackrail::planner {

namespace {

constexpr std::size_t kFirstStepForm = 1'000;                  // of a family's variants
constexpr const char* kFirstOfTheOthers = "parameter-server";  // those before it are made at once

/// Slices that are tried, in elements: up to 4 MiB of FP32, from 256 KiB on, or from what the
/// slowest link moves in a short time, where that is less: a pipeline is filled in the time of a
/// slice per hop.
std::vector<std::int64_t> slices_for(const topology::Topology& topology) {
  constexpr std::int64_t kFineSlice = 1 << 16;
  constexpr std::int64_t kCoarsestSlice = 1 << 20;
  constexpr std::int64_t kFinestSlice = 1 << 12;
  constexpr Duration kShortSlice = 2_ms;
  Bandwidth slowest = Bandwidth(INT64_MAX);
  for (std::size_t i = 0; i < topology.link_count(); ++i) {
    slowest = std::min(slowest, topology.link(LinkId(i)).bandwidth);
  }
  std::int64_t slice = kFineSlice;
  while (slice > kFinestSlice && Bytes(slice * 4) / slowest > kShortSlice) {
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

}  // namespace

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
      work_left_(options.work_left),
      decisions_(options.decisions),
      schedule_(options.schedule),
      first_(std::move(first)),
      router_(make_router(topology)),
      interpolates_(!options.exhaustive && topology.rank_count() >= kVeryManyRanks),
      expects_(!options.exhaustive && topology.rank_count() >= kRanksOfOneSlice),
      has_bursts_(topology::longest_burst_time(topology) > Duration()),
      worthwhile_(interpolates_ ? kNearEnough : 0),
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
      const StoppableWork stoppable(candidates_.empty() ? std::function<bool()>() : stop_);
      add_family(family, pairs_, false);
    } catch (const WorkStopped&) {
      if (stop_()) {
        next_family_ = families.size();
        return;
      }
    }
    if (candidates_.size() == before) {
      // Of the lightest codecs: what is said of them is not the fault of stronger ones.
      const std::string why =
          graph_refusal(family, topology_, pairs_.front())
              .value_or(error_budget_ ? "beyond the error budget" : "no codec fits");
      refusals_.push_back(fmt::format("{} ({})", family.name(), why));
      if (decisions_) {
        decisions_({.about = "families",
                    .schedule = std::string(family.name()),
                    .codecs = {},
                    .bound = {},
                    .time = {},
                    .outcome = "refused: " + why});
      }
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

bool CandidateSet::add_step_forms() {
  if (!std::exchange(looked_for_step_forms_, true) && topology_.rank_count() < kVeryManyRanks) {
    try {
      const StoppableWork stoppable(stop_);
      make_step_forms();
    } catch (const WorkStopped&) {
      // There are those that were made before.
    }
  }
  return std::ranges::any_of(candidates_, &Candidate::is_step_form);
}

void CandidateSet::make_step_forms() {
  std::vector<const ScheduleFamily*> families;
  for (const auto& family : schedule_families()) {
    if (!schedule_.has_value() || *schedule_ == family->name()) {
      families.push_back(family.get());
    }
  }
  // In FP32, or, where that is not asked for, in what is the fastest now.
  TierCodecs compared = pairs_.front();
  if (compared.across.is_lossy()) {
    const auto is_free = [](const Candidate& candidate) { return !candidate.only_protected; };
    if (const auto fastest = cheapest(kSizesOfStepForms[0], is_free)) {
      compared = candidates_[fastest->candidate].codecs;
    }
  }
  const auto is_comparable = [&](const Candidate& candidate) {
    return candidate.codecs == compared && !candidate.only_protected;
  };
  StepForms forms({.topology = topology_,
                   .router = router_,
                   .costs = cost_model_,
                   .codecs = compared,
                   .may_have_rates = may_have_rates_});
  for (const std::int64_t elements : kSizesOfStepForms) {
    if (is_stopped()) {
      return;
    }
    const std::optional<Choice> known = cheapest(elements, is_comparable);
    const auto form = known ? forms.faster(families, elements, known->time) : std::nullopt;
    if (!form ||
        first_with_.contains({std::string(form->family->name()), kFirstStepForm + form->number})) {
      continue;
    }
    for (const TierCodecs& codecs : pairs_) {
      if (const auto graph = forms.in_codecs(*form, codecs)) {
        add(*form->family, kFirstStepForm + form->number, *graph, codecs, false);
      }
    }
  }
}

// One family leaves some of a quick search's work to those after it.
std::function<bool()> CandidateSet::end_of_family() const {
  if (!work_left_ || candidates_.empty()) {
    return candidates_.empty() ? std::function<bool()>() : stop_;
  }
  constexpr std::int64_t kPartOfOthers = 4;
  return [this, least = work_left_() / kPartOfOthers] { return stop_() || work_left_() <= least; };
}

void CandidateSet::add_family(const ScheduleFamily& family, const std::vector<TierCodecs>& pairs,
                              bool only_protected) {
  std::vector<plan::TransferGraph> graphs;
  for (const TierCodecs& codecs : pairs) {
    if (graph_refusal(family, topology_, codecs).has_value()) {
      continue;
    }
    if (graphs.empty() || family.depends_on_codecs()) {
      ScheduleRequest request{.topology = topology_, .router = router_, .codecs = codecs};
      request.may_have_rates = may_have_rates_;
      if (interpolates_) {
        request.most_transfers = kMostTransfersOfMany;
      }
      // What every plan needs is made whatever it takes.
      const bool is_needed = only_protected || is_first(family.name());
      const StoppableWork stoppable(is_needed ? std::function<bool()>() : end_of_family());
      graphs = family.all_reduces(request);
    }
    for (std::size_t variant = 0; variant < graphs.size(); ++variant) {
      constexpr std::size_t kWorkPerTransfer = 8;  // of loads and bound
      Work::step(kWorkPerTransfer * graphs[variant].transfers().size());
      add(family, variant, graphs[variant], codecs, only_protected);
    }
  }
}

void CandidateSet::add(const ScheduleFamily& family, std::size_t variant,
                       const plan::TransferGraph& graph, const TierCodecs& codecs,
                       bool only_protected) {
  Candidate candidate;
  candidate.family = family.name();
  candidate.variant = variant;
  candidate.codecs = codecs;
  candidate.is_step_form = variant >= kFirstStepForm;
  candidate.only_protected = only_protected;
  candidate.graph = recoded(graph, topology_, codecs);
  candidate.error = plan::reduced_error(candidate.graph, error_of_);
  if (error_budget_.has_value() && candidate.error > *error_budget_) {
    least_error_ = std::min(least_error_.value_or(candidate.error), candidate.error);
    return;
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
      first_with_.emplace(candidate.shape(), candidates_.size()).first->second);
  candidates_.push_back(std::move(candidate));
}

}  // namespace rackrail::planner
