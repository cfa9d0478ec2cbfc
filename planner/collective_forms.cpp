#include "planner/collective_forms.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "planner/candidates.hpp"

namespace rackrail::planner {

namespace {

constexpr std::size_t kMostRounds = 256;
constexpr std::size_t kMostTransfers = 500'000;
constexpr std::size_t kMostTransfersOfMany = 65'000;  // where there are very many ranks
constexpr std::int64_t kMostCuts = 256;
constexpr std::int64_t kFewestElements = 2048;  // of a message: below, it costs more than it moves
constexpr double kWorthFinerSlices = 0.98;      // of the time with coarser ones
constexpr double kWorthFinerRounds = 0.998;
constexpr int kPatience = 2;

std::int64_t largest_transfer(const FormShape& form, std::int64_t elements) {
  return static_cast<std::int64_t>(std::ceil(form.largest_share * static_cast<double>(elements)));
}

/// The largest transfer in so many cuts, in multiples of 1,024 elements, as plans have them.
std::int64_t slice_of(std::int64_t transfer, std::int64_t cuts) {
  constexpr std::int64_t kUnit = 1024;
  return std::max<std::int64_t>(1, (transfer + cuts * kUnit - 1) / (cuts * kUnit)) * kUnit;
}

}  // namespace

std::vector<plan::TransferGraph> collective_forms(const ScheduleFamily& family,
                                                  plan::Collective what,
                                                  const topology::Topology& topology,
                                                  topology::Router& router,
                                                  const TierCodecs& codecs) {
  const bool many = topology.rank_count() >= kVeryManyRanks;
  return family.collectives(what, {.topology = topology,
                                   .router = router,
                                   .codecs = codecs,
                                   .most_rounds = kMostRounds,
                                   .most_transfers = many ? kMostTransfersOfMany : kMostTransfers});
}

FormShape shape_of(const plan::TransferGraph& graph) {
  const auto weights = graph.chunk_weights();
  std::vector<std::int64_t> sum(weights.size() + 1, 0);
  std::partial_sum(weights.begin(), weights.end(), sum.begin() + 1);
  std::int64_t largest = 0;
  for (const plan::Transfer& transfer : graph.transfers()) {
    largest = std::max(
        largest, sum[transfer.chunk_begin + transfer.chunk_count] - sum[transfer.chunk_begin]);
  }
  return {static_cast<double>(largest) / static_cast<double>(sum.back()),
          static_cast<std::int64_t>(graph.transfers().size()), std::nullopt};
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
  DividedCollective best;
  std::optional<Duration> best_of_series;
  int idle = 0;
  for (std::size_t form = 0; form < forms.size(); ++form) {
    const std::int64_t transfer = largest_transfer(forms[form], elements);
    if (form == 0 || forms[form].transfers <= forms[form - 1].transfers) {
      best_of_series.reset();
      idle = 0;
    } else if (transfer < kFewestElements || idle == kPatience) {
      continue;
    }
    if (form > 0 && forms[form].bound && forms[form].bound->at_least(elements) >= best.time) {
      continue;
    }
    // Slow as it may be: of deep trees the forms of few rounds tell nothing about those of many.
    const std::int64_t slice = slice_of(transfer, 1);
    const std::optional<Duration> found = time(form, slice, best_of_series);
    const bool is_worth_it =
        !best_of_series || (found && *found < scaled(*best_of_series, kWorthFinerRounds));
    idle = is_worth_it ? 0 : idle + 1;
    if (found && (!best_of_series || *found < *best_of_series)) {
      best_of_series = found;
    }
    if (form == 0 || (found && *found < best.time)) {
      best = {found.value(), form, slice};
    }
  }
  const FormShape& shape = forms[best.form];
  const std::int64_t transfer = largest_transfer(shape, elements);
  for (std::int64_t cuts = 4; cuts <= kMostCuts; cuts *= 4) {
    if (transfer / cuts < kFewestElements || shape.transfers * cuts > kMostMessages) {
      continue;
    }
    const std::int64_t slice = slice_of(transfer, cuts);
    const std::optional<Duration> found = time(best.form, slice, best.time);
    const bool is_worthwhile = found && *found < scaled(best.time, kWorthFinerSlices);
    if (found && *found < best.time) {
      best = {*found, best.form, slice};
    }
    if (!is_worthwhile) {
      break;
    }
  }
  return best;
}

}  // namespace rackrail::planner
