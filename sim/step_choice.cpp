#include "sim/step_choice.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <numeric>

#include "base/error.hpp"
#include "sim/simulator.hpp"

namespace rackrail::sim {

std::optional<std::size_t> StepChoice::of(int steps) const {
  const auto count = static_cast<std::size_t>(steps);
  switch (kind) {
    case Kind::kLast:
      return count - 1;
    case Kind::kNumber:
      if (static_cast<std::size_t>(number) >= count) {
        throw ConfigError(
            ErrorContext{"", "step to report", std::to_string(number),
                         fmt::format("one of the {} steps, 0 to {}", count, count - 1)});
      }
      return static_cast<std::size_t>(number);
    case Kind::kSlowest:
    case Kind::kMedian:
      break;
  }
  return steps == 1 ? std::optional<std::size_t>(0) : std::nullopt;
}

Duration step_period(const std::vector<StepSpan>& steps, std::size_t step) {
  return steps[step].end - (step > 0 ? steps[step - 1].end : steps[step].start);
}

std::size_t StepChoice::choose(const std::vector<StepSpan>& steps) const {
  if (const auto known = of(static_cast<int>(steps.size()))) {
    return *known;
  }
  std::vector<std::size_t> order(steps.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  const auto is_shorter = [&](std::size_t a, std::size_t b) {
    return step_period(steps, a) < step_period(steps, b);
  };
  if (kind == Kind::kSlowest) {
    return *std::max_element(order.begin(), order.end(), is_shorter);
  }
  std::stable_sort(order.begin(), order.end(), is_shorter);
  return order[(order.size() - 1) / 2];
}

std::string_view StepChoice::words() const {
  switch (kind) {
    case Kind::kLast:
      return "the last one";
    case Kind::kNumber:
      return "as asked";
    case Kind::kSlowest:
      return "the slowest one";
    case Kind::kMedian:
      break;
  }
  return "the median one";
}

std::optional<StepChoice> parse_step_choice(std::string_view text) {
  using Kind = StepChoice::Kind;
  if (text == "last") {
    return StepChoice{};
  }
  if (text == "slowest") {
    return StepChoice{Kind::kSlowest};
  }
  if (text == "median") {
    return StepChoice{Kind::kMedian};
  }
  StepChoice choice{Kind::kNumber};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), choice.number);
  const bool is_number = error == std::errc() && end == text.data() + text.size();
  return is_number && choice.number >= 0 ? std::optional(choice) : std::nullopt;
}

}  // namespace rackrail::sim
