#include "planner/tuning/step_forms.hpp"

#include <algorithm>
#include <utility>

#include "base/work.hpp"
#include "plan/verifier.hpp"
#include "planner/pipeline/recode.hpp"
#include "planner/request/search_limits.hpp"
#include "planner/tuning/bound.hpp"
#include "planner/tuning/codecs_to_try.hpp"

namespace rackrail::planner {

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

FamilyDivisions& StepForms::divisions_of(const ScheduleFamily& family) {
  const auto known = divisions_.find(&family);
  return known != divisions_.end()
             ? known->second
             : divisions_
                   .emplace(&family, FamilyDivisions(made(family, request_.codecs), request_.costs))
                   .first->second;
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
  const std::vector<CollectiveForm>& known = divisions_of(*form.family).forms();
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
  const double each = std::min(bytes_per_element(request_.codecs.inside),
                               bytes_per_element(request_.codecs.across));
  return Bytes(static_cast<std::int64_t>(static_cast<double>(elements) * each)) / *rate_;
}

std::optional<StepForm> StepForms::faster(std::span<const ScheduleFamily* const> families,
                                          std::int64_t elements, Duration known) {
  constexpr double kWorthAnotherForm = 0.98;  // times what is known
  constexpr double kFormsNearBound = 1.03;
  if (known <= scaled(bound(elements), kFormsNearBound)) {
    return std::nullopt;
  }
  std::optional<StepForm> best;
  Duration limit = scaled(known, kWorthAnotherForm);
  for (const ScheduleFamily* family : families) {
    Work::ask();
    FamilyDivisions& divisions = divisions_of(*family);
    const auto found = divisions.fastest(elements, {.known = limit, .slow = 2 * known});
    if (found && found->time < limit) {
      limit = found->time;
      best = StepForm{family, found->form, divisions.forms()[found->form].shared_graph()};
    }
  }
  return best;
}

}  // namespace rackrail::planner
