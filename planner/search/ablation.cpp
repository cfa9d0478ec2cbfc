// Each choice of a plan put back to the baseline's.
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "base/parse_units.hpp"
#include "plan/slice_unit.hpp"
#include "planner/batch/batch.hpp"
#include "planner/search/plan_report.hpp"

namespace rackrail::planner {

namespace {

class Ablation {
 public:
  Ablation(Search& search, const Search::Scored& best, std::vector<std::string>& not_reached)
      : search_(search), best_(best), not_reached_(not_reached) {}

  void add(std::string name, std::string what, std::optional<Search::Scored> trial) {
    if (!trial.has_value()) {
      return;
    }
    if (search_.score_below(*trial, CandidateSet::kNoLimit)) {
      rivals_.push_back({std::move(name), std::move(what), *std::move(trial)});
    } else {
      not_reached_.push_back("without " + name);
    }
  }

  /// Every bucket by the fastest of the candidates that `allows` accepts for it, the first of
  /// several such rules that accepts any. None when nothing changes, or a bucket has no candidate.
  template <typename... Allows>
  std::optional<Search::Scored> with_candidates(const Allows&... allows) {
    Search::Scored trial = best_;
    for (std::size_t b = 0; b < trial.chosen.size(); ++b) {
      const Candidate& now = candidate(best_.chosen[b]);
      std::optional<Choice> choice;
      const auto try_rule = [&](const auto& rule) {
        if (!choice.has_value()) {
          choice = search_.cheapest(best_.plan.buckets[b].elements, [&](const Candidate& other) {
            return !other.only_protected && rule(now, other);
          });
        }
      };
      (try_rule(allows), ...);
      if (!choice.has_value()) {
        return std::nullopt;
      }
      if (choice->candidate != best_.chosen[b]) {
        search_.set_choice(trial, b, *choice);
      }
    }
    return trial.chosen == best_.chosen ? std::nullopt : std::optional(std::move(trial));
  }

  const Candidate& candidate(std::size_t number) const {
    return search_.candidates().all()[number];
  }

  std::vector<Rival> rivals() && { return std::move(rivals_); }

 private:
  Search& search_;
  const Search::Scored& best_;
  std::vector<std::string>& not_reached_;
  std::vector<Rival> rivals_;
};

bool same_graph_but_codecs(const Candidate& now, const Candidate& other) {
  return now.family == other.family && now.variant == other.variant;
}

/// The codec of `now`, or FP16 where it is stronger.
plan::Codec at_most_fp16(const plan::Codec& codec) {
  return codec.kind > plan::CodecKind::kFp16 ? plan::Codec{.kind = plan::CodecKind::kFp16} : codec;
}

std::optional<Search::Scored> without_slices(const Search::Scored& best) {
  Search::Scored trial = best;
  bool changes = false;
  for (plan::Bucket& bucket : trial.plan.buckets) {
    changes = changes || bucket.slice_elements < bucket.elements;
    bucket.slice_elements = std::max(bucket.slice_elements, plan::one_slice(bucket.elements));
  }
  return changes ? std::optional(std::move(trial)) : std::nullopt;
}

std::optional<Search::Scored> in_order_of_readiness(const Search::Scored& best) {
  Search::Scored trial = best;
  bool changes = false;
  for (std::size_t b = 0; b < trial.plan.buckets.size(); ++b) {
    changes = changes || trial.plan.buckets[b].priority != b;
    trial.plan.buckets[b].priority = static_cast<std::uint32_t>(b);
  }
  return changes ? std::optional(std::move(trial)) : std::nullopt;
}

}  // namespace

std::vector<Rival> undo_choices(Search& search, const Search::Scored& best, const BatchSpace& space,
                                const PlannerOptions& options,
                                std::vector<std::string>& not_reached) {
  Ablation ablation(search, best, not_reached);
  const auto is_usual = [](const Candidate&, const Candidate& other) {
    return other.family == kUsualFamily;
  };
  const auto is_lightest = [&](const Candidate& now, const Candidate& other) {
    return is_usual(now, other) && other.strongest.kind <= now.strongest.kind;
  };
  ablation.add("routes", "rings instead, with the same codecs where rings can use them",
               ablation.with_candidates(
                   [&](const Candidate& now, const Candidate& other) {
                     return is_usual(now, other) && now.codecs == other.codecs;
                   },
                   is_lightest));

  const Bytes usual_size = options.bucket_size.value_or(kUsualBucket);
  if (best.bucket_size != usual_size) {
    const std::set<std::size_t> used(best.chosen.begin(), best.chosen.end());
    auto usual = search.draft({"usual buckets", usual_size,
                               [&](const Candidate& other) {
                                 return used.contains(static_cast<std::size_t>(
                                     &other - search.candidates().all().data()));
                               }},
                              best.plan.batch);
    ablation.add("bucket size",
                 fmt::format("buckets of {} instead of {}, with the same routes and codecs",
                             to_string(usual_size), to_string(best.bucket_size)),
                 usual.has_value() ? std::optional(std::move(usual->scored)) : std::nullopt);
  }

  ablation.add("codecs", "FP32 instead, on the same routes",
               ablation.with_candidates([](const Candidate& now, const Candidate& other) {
                 return same_graph_but_codecs(now, other) && is_fp32(other);
               }));
  ablation.add("codecs inside groups",
               "FP32 inside groups of near ranks, the same codecs between them",
               ablation.with_candidates([](const Candidate& now, const Candidate& other) {
                 return same_graph_but_codecs(now, other) && !other.codecs.inside.is_lossy() &&
                        now.codecs.across == other.codecs.across;
               }));
  ablation.add("codecs beyond FP16", "FP16 at most, on the same routes",
               ablation.with_candidates([](const Candidate& now, const Candidate& other) {
                 return same_graph_but_codecs(now, other) &&
                        other.codecs.inside == at_most_fp16(now.codecs.inside) &&
                        other.codecs.across == at_most_fp16(now.codecs.across);
               }));
  ablation.add("slices", "each chunk in one message instead of slices", without_slices(best));
  ablation.add("priorities", "buckets sent in the order in which they become ready",
               in_order_of_readiness(best));

  if (!is_same_everywhere(best.plan.batch)) {
    Search::Scored trial = best;
    trial.plan.batch = same_everywhere(best.plan.batch);
    std::string what = fmt::format("{} instead of {}", local_batch_text(trial.plan.batch),
                                   local_batch_text(best.plan.batch));
    ablation.add("unequal batches", std::move(what), std::move(trial));
  }
  const plan::BatchPlan usual_batch = space.fixed();
  if (usual_batch.local_batch != best.plan.batch.local_batch ||
      usual_batch.accumulation != best.plan.batch.accumulation) {
    Search::Scored trial = best;
    trial.plan.batch = usual_batch;
    ablation.add("batch",
                 fmt::format("the profiled batch, {} instead of {}", usual_batch.global_batch(),
                             best.plan.batch.global_batch()),
                 std::move(trial));
  }
  return std::move(ablation).rivals();
}

}  // namespace rackrail::planner
