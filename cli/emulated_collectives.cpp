#include "cli/emulated_collectives.hpp"

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>

#include "base/error.hpp"
#include "base/parse_units.hpp"
#include "plan/empty_plan.hpp"
#include "planner/algorithms/schedule_family.hpp"
#include "planner/search/held_rates.hpp"
#include "planner/tuning/collective_forms.hpp"
#include "planner/tuning/schedule_table.hpp"

namespace rackrail::cli {

namespace {

/// Adds cases of one codec to plans.
class CollectivePlanner {
 public:
  CollectivePlanner(const topology::Topology& network, plan::CostModel& costs,
                    const plan::Codec& codec, planner::ScheduleTable table)
      : network_(network),
        costs_(costs),
        codec_(codec),
        table_(std::move(table)),
        router_(network) {}

  std::size_t families() const { return table_.families.size(); }

  /// All sizes by this family; none: each by the one that is chosen for it.
  CollectivePlan plan(const std::vector<Bytes>& sizes, std::optional<std::size_t> family) {
    result_ = {.plan = plan::empty_plan(network_), .cases = {}};
    result_.plan.name = "all-reduces";
    made_.clear();
    for (const Bytes size : sizes) {
      const planner::TableRow& of_size = row(size);
      const std::size_t chosen = choice(of_size);
      add(of_size, family.value_or(chosen), chosen);
    }
    return std::move(result_);
  }

 private:
  const planner::TableRow& row(Bytes size) const {
    const auto found =
        std::find_if(table_.rows.begin(), table_.rows.end(),
                     [&](const planner::TableRow& one) { return one.bytes == size; });
    if (found == table_.rows.end()) {
      throw SimulationError("the table of schedules has no row of " + to_string(size));
    }
    return *found;
  }

  /// As plans of programs divide and choose: by what they know of flows that share links, where
  /// those are under way for long.
  const planner::DividedCollective& division(const planner::TableRow& row, std::size_t family) {
    const auto [known, is_new] = divided_.try_emplace({row.bytes, family});
    const planner::TableTime& time = row.times[family];
    if (is_new && time.time < planner::kLongForRates) {
      known->second = {.time = time.time, .form = time.form, .slice_elements = time.slice_elements};
    } else if (is_new) {
      known->second = planner::judged_division(forms_of(family), codec_, row.bytes.count() / 4,
                                               costs_, network_);
    }
    return known->second;
  }

  std::size_t choice(const planner::TableRow& row) {
    std::size_t best = row.best;
    for (std::size_t family = 0; family < row.times.size(); ++family) {
      if (row.times[family].is_simulated && division(row, family).time < division(row, best).time) {
        best = family;
      }
    }
    return best;
  }

  void add(const planner::TableRow& row, std::size_t family, std::size_t choice) {
    const planner::DividedCollective& divided = division(row, family);
    plan::Bucket bucket;
    bucket.tensors = {static_cast<std::uint32_t>(result_.plan.buckets.size())};
    bucket.elements = row.bytes.count() / 4;
    bucket.schedule = schedule_of(family, divided.form);
    bucket.slice_elements = divided.slice_elements;
    bucket.codec = codec_;
    const plan::TransferGraph& graph = result_.plan.schedules[bucket.schedule];
    result_.cases.push_back({.size = row.bytes,
                             .codec = codec_,
                             .family = table_.families[family],
                             .is_chosen = family == choice,
                             .predicted = predicted(graph, bucket),
                             .measured = {}});
    result_.plan.buckets.push_back(std::move(bucket));
  }

  /// As it is measured, many times in a row.
  Duration predicted(const plan::TransferGraph& graph, const plan::Bucket& bucket) {
    return costs_
        .exact_collective_time_below(graph, bucket.elements, bucket.slice_elements,
                                     Duration(INT64_MAX))
        .value();
  }

  const std::vector<planner::CollectiveForm>& forms_of(std::size_t family) {
    auto& forms = forms_[family];
    if (forms.empty()) {
      forms = planner::collective_forms(planner::schedule_family(table_.families[family]),
                                        plan::Collective::kAllReduce, network_, router_,
                                        {codec_, codec_});
    }
    return forms;
  }

  std::uint32_t schedule_of(std::size_t family, std::size_t form) {
    auto known = std::find(made_.begin(), made_.end(), std::pair(family, form));
    if (known == made_.end()) {
      result_.plan.schedules.push_back(forms_of(family).at(form).graph());
      known = made_.insert(made_.end(), {family, form});
    }
    return static_cast<std::uint32_t>(known - made_.begin());
  }

  const topology::Topology& network_;
  plan::CostModel& costs_;
  plan::Codec codec_;
  planner::ScheduleTable table_;
  topology::Router router_;
  CollectivePlan result_;
  std::map<std::size_t, std::vector<planner::CollectiveForm>> forms_;            // by family
  std::map<std::pair<Bytes, std::size_t>, planner::DividedCollective> divided_;  // by size, family
  std::vector<std::pair<std::size_t, std::size_t>> made_;  // by schedule of the plan: family, form
};

}  // namespace

std::vector<Bytes> CollectiveSelection::sizes() const {
  std::vector<Bytes> sizes;
  for (Bytes size = smallest; size <= largest; size = size * growth) {
    sizes.push_back(size);
  }
  return sizes;
}

std::vector<CollectivePlan> plan_collectives(const topology::Topology& network,
                                             const sim::SimulationOptions& simulation,
                                             const CollectiveSelection& selection) {
  const auto cost_model = sim::make_cost_model(network, simulation);
  planner::ScheduleTableOptions wanted;
  wanted.smallest = selection.smallest;
  wanted.largest = selection.largest;
  wanted.simulate_all = selection.every_schedule;
  std::vector<CollectivePlan> plans;
  for (const plan::Codec& codec : selection.codecs) {
    wanted.codec = codec;
    CollectivePlanner planner(network, *cost_model, codec,
                              planner::make_schedule_table(network, *cost_model, wanted));
    if (selection.every_schedule) {
      for (std::size_t family = 0; family < planner.families(); ++family) {
        plans.push_back(planner.plan(selection.sizes(), family));
      }
    } else {
      plans.push_back(planner.plan(selection.sizes(), std::nullopt));
    }
  }
  return plans;
}

std::vector<MeasuredChoice> measured_choices(const std::vector<EmulatedCollective>& cases) {
  std::vector<MeasuredChoice> choices;
  for (const EmulatedCollective& chosen : cases) {
    if (!chosen.is_chosen) {
      continue;
    }
    MeasuredChoice choice{.chosen = &chosen, .best = &chosen};
    std::size_t families = 0;
    for (const EmulatedCollective& other : cases) {
      if (other.size == chosen.size && other.codec == chosen.codec) {
        ++families;
        if (other.measured < choice.best->measured) {
          choice.best = &other;
        }
      }
    }
    if (families > 1) {
      choices.push_back(choice);
    }
  }
  for (auto begin = choices.begin(); begin != choices.end();) {
    const auto end = std::find_if(begin, choices.end(), [&](const MeasuredChoice& choice) {
      return choice.chosen->codec != begin->chosen->codec;
    });
    std::ranges::sort(begin, end, {}, [](const MeasuredChoice& one) { return one.chosen->size; });
    begin = end;
  }
  return choices;
}

}  // namespace rackrail::cli
