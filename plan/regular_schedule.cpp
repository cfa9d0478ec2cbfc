#include "plan/regular_schedule.hpp"

#include <algorithm>
#include <tuple>

namespace rackrail::plan {

std::vector<ListedStep> list_steps(const RegularSchedule& schedule) {
  std::vector<ListedStep> steps;
  const std::vector<RegularSchedule::Lane> lanes = schedule.lanes();
  for (std::uint32_t lane = 0; lane < lanes.size(); ++lane) {
    for (std::uint32_t position = 0; position < lanes[lane].count; ++position) {
      steps.push_back({{lane, position}, schedule.step({lane, position}), {}});
    }
  }
  std::sort(steps.begin(), steps.end(), [](const ListedStep& a, const ListedStep& b) {
    return std::tie(a.step.stage, a.place.lane, a.place.position) <
           std::tie(b.step.stage, b.place.lane, b.place.position);
  });
  std::vector<std::vector<std::uint32_t>> index(lanes.size());
  for (std::size_t lane = 0; lane < lanes.size(); ++lane) {
    index[lane].resize(lanes[lane].count);
  }
  for (std::size_t i = 0; i < steps.size(); ++i) {
    index[steps[i].place.lane][steps[i].place.position] = static_cast<std::uint32_t>(i);
  }
  std::vector<RegularSchedule::Dependent> dependents;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    dependents.clear();
    schedule.append_dependents(steps[i].place, dependents);
    for (const auto& [next, whole] : dependents) {
      steps[index[next.lane][next.position]].dependencies.push_back(static_cast<std::uint32_t>(i));
    }
  }
  return steps;
}

}  // namespace rackrail::plan
