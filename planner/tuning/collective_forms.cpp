#include "planner/tuning/collective_forms.hpp"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

#include "plan/slice_unit.hpp"
#include "planner/groups/many_ranks.hpp"
#include "planner/request/search_limits.hpp"
#include "planner/tuning/candidates.hpp"

namespace rackrail::planner {

namespace {

constexpr std::size_t kMostTransfers = 130'000;
constexpr std::size_t kMostTransfersOfOneSize = 2'000'000;
constexpr std::size_t kMostTransfersOfManyOfOneSize = 1'200'000;
constexpr std::int64_t kMostPieces = 256;      // rounds, or slices of a transfer
constexpr std::int64_t kFewestElements = 512;  // of a message: below, it costs more than it moves
constexpr std::size_t kMostSliced = 3;         // series whose best form is tried in slices
constexpr double kWorthSlicing = 1.05;         // of the time of the best: what slices may save

std::int64_t largest_transfer(const FormShape& form, std::int64_t elements) {
  return static_cast<std::int64_t>(std::ceil(form.largest_share * static_cast<double>(elements)));
}

/// The largest transfer in so many cuts, in sizes that plans have.
std::int64_t slice_of(std::int64_t transfer, std::int64_t cuts) {
  const std::int64_t unit = cuts * plan::kSliceUnit;
  return std::max<std::int64_t>(1, (transfer + unit - 1) / unit) * plan::kSliceUnit;
}

}  // namespace

std::vector<CollectiveForm> collective_forms(const ScheduleFamily& family, plan::Collective what,
                                             const topology::Topology& topology,
                                             topology::Router& router, const TierCodecs& codecs,
                                             const FormOptions& options) {
  const bool is_many = topology.rank_count() >= kVeryManyRanks;
  const std::size_t usual = is_many ? kMostTransfersOfMany : kMostTransfers;
  const std::size_t of_many =  // an all-reduce is two at once
      kMostTransfersOfManyOfOneSize / (what == plan::Collective::kAllReduce ? 2 : 1);
  const std::size_t of_one_size = is_many ? of_many : kMostTransfersOfOneSize;
  return family.collectives(
      what, {.topology = topology,
             .router = router,
             .codecs = codecs,
             .most_rounds = std::size_t{kMostPieces},
             .most_transfers =
                 std::min(options.is_of_one_size ? of_one_size : usual, options.most_transfers),
             .may_have_rates = options.may_have_rates,
             .most_of_pipelines = options.is_of_one_size ? std::size_t{kMostPlannedTransfers} : 0});
}

std::vector<FormShape> shapes_of(std::span<const CollectiveForm> forms) {
  std::vector<FormShape> shapes;
  shapes.reserve(forms.size());
  for (const CollectiveForm& form : forms) {
    shapes.push_back(form.shape());
  }
  return shapes;
}

FormShape shape_of(const plan::RegularSchedule& schedule) {
  FormShape shape;
  const std::vector<plan::RegularSchedule::Lane> lanes = schedule.lanes();
  std::uint32_t largest = 0;
  for (std::uint32_t lane = 0; lane < lanes.size(); ++lane) {
    shape.transfers += lanes[lane].count;
    for (std::uint32_t position = 0; position < lanes[lane].count; ++position) {
      largest = std::max(largest, schedule.step({lane, position}).chunk_count);
    }
  }
  shape.largest_share = static_cast<double>(largest) / static_cast<double>(schedule.chunk_count());
  return shape;
}

DividedCollective fastest_division(
    std::span<const FormShape> forms, std::int64_t elements,
    const std::function<Duration(std::size_t form, std::int64_t slice_elements)>& time) {
  return fastest_division(
      forms, elements,
      [&](std::size_t form, std::int64_t slice, const std::optional<Duration>& /*limit*/) {
        return std::optional(time(form, slice));
      });
}

DividedCollective fastest_division(std::span<const FormShape> forms, std::int64_t elements,
                                   const TimeBelow& time) {
  return DivisionSearch({forms.begin(), forms.end()}).fastest(elements, time);
}

DivisionSearch::DivisionSearch(std::vector<FormShape> forms, SliceSearch slices)
    : forms_(std::move(forms)), slices_(slices) {
  for (std::size_t form = 0; form < forms_.size(); ++form) {
    if (form == 0 || forms_[form].transfers <= forms_[form - 1].transfers) {
      series_.push_back({form, form});
    }
    ++series_.back().end;
  }
}

DividedCollective DivisionSearch::fastest(std::int64_t elements, const TimeBelow& time) {
  return fastest(elements, time, std::nullopt).value();
}

std::optional<DividedCollective> DivisionSearch::fastest(std::int64_t elements,
                                                         const TimeBelow& time,
                                                         std::optional<Duration> known,
                                                         const TimeBelow& exact) {
  std::optional<DividedCollective> best;
  std::vector<DividedCollective> best_of_series;
  BestForms best_forms;
  for (std::size_t series = 0; series < series_.size(); ++series) {
    const auto found = search_series(series, elements, time, known, best);
    best_forms.push_back(found ? found->form : series_[series].begin);
    if (found) {
      best_of_series.push_back(*found);
      best = !best || found->time < best->time ? found : best;
    }
  }
  if (!best) {
    return std::nullopt;
  }
  std::stable_sort(best_of_series.begin(), best_of_series.end(),
                   [](const auto& one, const auto& other) { return one.time < other.time; });
  known_[elements] = std::move(best_forms);
  for (std::size_t i = 0; i < best_of_series.size(); ++i) {
    const DividedCollective& whole = best_of_series[i];
    const bool is_near = i < kMostSliced && whole.time <= scaled(best->time, kWorthSlicing);
    if (!is_near && !may_pass_by_slices(whole, elements, best->time)) {
      continue;
    }
    const DividedCollective found = in_finer_slices(whole, elements, time);
    if (found.time < best->time) {
      best = found;
    }
  }
  best_of_series.resize(std::min(best_of_series.size(), kMostSliced));
  if (exact && (!known || best->time < scaled(*known, 1 + kSameTime))) {
    best_of_series.insert(best_of_series.begin(), *best);
    best = exactly_fastest(best_of_series, elements, known, exact);
  }
  return best;
}

std::optional<DividedCollective> DivisionSearch::exactly_fastest(
    const std::vector<DividedCollective>& candidates, std::int64_t elements,
    std::optional<Duration> known, const TimeBelow& exact) const {
  std::optional<DividedCollective> best;
  std::optional<Duration> limit = known;
  for (const DividedCollective& candidate : candidates) {
    const bool is_known = &candidate != &candidates.front() &&
                          candidate.form == candidates[0].form &&
                          candidate.slice_elements == candidates[0].slice_elements;
    const auto& bound = forms_[candidate.form].bound;
    if (is_known || candidate.time > scaled(candidates.front().time, 1 + kSameTime) ||
        (limit && bound && bound->at_least(elements) >= *limit)) {
      continue;
    }
    if (const auto time = exact(candidate.form, candidate.slice_elements, limit)) {
      limit = time;
      best = {*time, candidate.form, candidate.slice_elements};
    }
  }
  return best;
}

std::size_t DivisionSearch::first_form(std::size_t series, std::int64_t elements) const {
  const std::size_t begin = series_[series].begin;
  const auto larger = known_.upper_bound(elements);
  return larger == known_.begin() ? begin
                                  : std::max(begin + 1, std::prev(larger)->second[series]) - 1;
}

bool DivisionSearch::is_ruled_out(const FormShape& form, std::int64_t elements,
                                  std::optional<Duration> known,
                                  const std::optional<DividedCollective>& best) const {
  if (!form.bound) {
    return false;
  }
  const Duration least = form.bound->at_least(elements);
  return (known && least >= *known) || (best && least >= scaled(best->time, slices_.another_form));
}

std::optional<DividedCollective> DivisionSearch::search_series(
    std::size_t series, std::int64_t elements, const TimeBelow& time, std::optional<Duration> known,
    const std::optional<DividedCollective>& best) const {
  std::optional<DividedCollective> best_here;
  const std::int64_t coarsest = largest_transfer(forms_[series_[series].begin], elements);
  int idle = 0;
  constexpr int kPatience = 2;
  constexpr double kWorthFinerRounds = 0.998;
  for (std::size_t form = first_form(series, elements);
       form < series_[series].end && idle < kPatience; ++form) {
    const std::int64_t transfer = largest_transfer(forms_[form], elements);
    if (transfer < std::min(kFewestElements, coarsest)) {
      break;  // the finer ones are all the more too fine
    }
    const auto& best_so_far =
        best_here && (!best || best_here->time < best->time) ? best_here : best;
    if (is_ruled_out(forms_[form], elements, known, best_so_far)) {
      continue;
    }
    // Slow as it may be: of deep trees the forms of few rounds tell nothing about those of many.
    const std::int64_t slice = slice_of(transfer, forms_[form].slices);
    const std::optional<Duration> limit = best_here ? std::optional(best_here->time) : std::nullopt;
    const std::optional<Duration> found = time(form, slice, limit);
    const bool is_worth_it = !limit || (found && *found < scaled(*limit, kWorthFinerRounds));
    idle = is_worth_it ? 0 : idle + 1;
    if (found && (!limit || *found < *limit)) {
      best_here = {*found, form, slice};
    }
  }
  return best_here;
}

bool DivisionSearch::may_pass_by_slices(const DividedCollective& whole, std::int64_t elements,
                                        Duration best) const {
  // What few large transfers, one after the other, take says little of what they take in slices.
  constexpr std::int64_t kFewTransfers = 2'000;
  const FormShape& shape = forms_[whole.form];
  return shape.bound && shape.transfers <= kFewTransfers &&
         shape.bound->at_least(elements) < scaled(best, 1 / kWorthSlicing);
}

DividedCollective DivisionSearch::in_finer_slices(DividedCollective best, std::int64_t elements,
                                                  const TimeBelow& time) const {
  const FormShape& shape = forms_[best.form];
  if (shape.bound && shape.bound->at_least(elements) >= scaled(best.time, slices_.another_form)) {
    return best;
  }
  const std::int64_t transfer = largest_transfer(shape, elements);
  const auto is_possible = [&](std::int64_t cuts) {
    return cuts <= kMostPieces && transfer / cuts >= kFewestElements &&
           shape.transfers * cuts <= slices_.most_messages;
  };
  bool is_worth_it = true;
  for (std::int64_t cuts = shape.slices * slices_.factor; is_worth_it && is_possible(cuts);
       cuts *= slices_.factor) {
    const std::int64_t slice = slice_of(transfer, cuts);
    const std::optional<Duration> found = time(best.form, slice, best.time);
    is_worth_it = found && *found < scaled(best.time, slices_.worthwhile);
    if (found && *found < best.time) {
      best = {*found, best.form, slice};
    }
  }
  return best;
}

}  // namespace rackrail::planner
