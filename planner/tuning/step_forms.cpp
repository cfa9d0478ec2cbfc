#include "planner/tuning/step_forms.hpp"

#include <algorithm>
#include <utility>

#include "base/work.hpp"
#include "plan/verifier.hpp"
#include "planner/pipeline/recode.hpp"
#include "planner/tuning/bound.hpp"
#include "planner/tuning/collective_forms.hpp"

namespace rackrail::planner {

namespace {

constexpr std::size_t kMostTransfersOfBucket = 35'000;
constexpr double kWorthAnotherForm = 0.98;  // times what is known
constexpr double kFormsNearBound = 1.03;
constexpr double kSlowInOnePiece = 2;  // the same: slower forms are not cut into slices

}  // namespace

std::vector<CollectiveForm> StepForms::made(const ScheduleFamily& family,
                                            const TierCodecs& codecs) const {
  if (graph_refusal(family, request_.topology, codecs)) {
    return {};
  }
  std::vector<CollectiveForm> forms = collective_forms(
      family, plan::Collective::kAllReduce, request_.topology, request_.router, codecs,
      {.may_have_rates = request_.may_have_rates, .most_transfers = kMostTransfersOfBucket});
  std::erase_if(forms, [](const CollectiveForm& form) {  // of one round, maybe
    return form.shape().transfers > static_cast<std::int64_t>(kMostTransfersOfBucket);
  });
  return forms;
}

const std::vector<CollectiveForm>& StepForms::forms_of(const ScheduleFamily& family) {
  const auto known = forms_.find(&family);
  return known != forms_.end()
             ? known->second
             : forms_.emplace(&family, made(family, request_.codecs)).first->second;
}

std::optional<plan::TransferGraph> StepForms::in_codecs(const StepForm& form,
                                                        const TierCodecs& codecs) {
  if (graph_refusal(*form.family, request_.topology, codecs)) {
    return std::nullopt;
  }
  plan::TransferGraph same = recoded(*form.graph, request_.topology, codecs);
  if (codecs == request_.codecs || is_right(same)) {
    return same;
  }
  // Encoding twice what a rank sends to several others needs an order that FP32 does not.
  const std::vector<CollectiveForm> forms = made(*form.family, codecs);
  const std::vector<CollectiveForm>& known = forms_of(*form.family);
  if (forms.size() != known.size() ||
      forms[form.number].shape().transfers != known[form.number].shape().transfers) {
    return std::nullopt;
  }
  plan::TransferGraph own = recoded(forms[form.number].graph(), request_.topology, codecs);
  return is_right(own) ? std::optional(std::move(own)) : std::nullopt;
}

bool StepForms::is_right(const plan::TransferGraph& graph) const {
  return plan::verify(graph, &request_.topology).problems.empty();
}

Duration StepForms::bound(std::int64_t elements) {
  if (!rate_) {
    rate_ = network_bound(request_.topology).algbw;
  }
  if (*rate_ <= Bandwidth(0)) {
    return Duration();  // ranks that nothing binds
  }
  constexpr std::int64_t kMany = 1 << 20;
  const double bytes = std::min(plan::encoded_size(request_.codecs.inside, kMany).count(),
                                plan::encoded_size(request_.codecs.across, kMany).count());
  return Bytes(static_cast<std::int64_t>(static_cast<double>(elements) * bytes / kMany)) / *rate_;
}

std::optional<StepForm> StepForms::faster(std::span<const ScheduleFamily* const> families,
                                          std::int64_t elements, Duration known) {
  if (known <= scaled(bound(elements), kFormsNearBound)) {
    return std::nullopt;
  }
  std::optional<StepForm> best;
  Duration limit = scaled(known, kWorthAnotherForm);
  const Duration slow = scaled(known, kSlowInOnePiece);
  for (const ScheduleFamily* family : families) {
    Work::ask();
    const std::vector<CollectiveForm>& forms = forms_of(*family);
    if (forms.empty()) {
      continue;
    }
    const auto time = [&](std::size_t form, std::int64_t slice, std::optional<Duration> below) {
      Work::ask();
      const plan::TransferGraph& graph = forms[form].graph();
      return request_.costs.collective_time_below(graph, elements, slice, below.value_or(slow));
    };
    const auto found = DivisionSearch(shapes_of(forms)).fastest(elements, time, limit);
    if (found && found->time < limit) {
      limit = found->time;
      best = StepForm{family, found->form, forms[found->form].shared_graph()};
    }
  }
  return best;
}

}  // namespace rackrail::planner
