// Which of several simulated steps is reported and explained.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace rackrail::sim {

struct StepSpan;

struct StepChoice {
  enum class Kind : std::uint8_t {
    kLast,
    kNumber,   ///< the one with `number`
    kSlowest,  ///< of equally long ones the first
    kMedian,   ///< of the lengths in order the middle one, of two the shorter
  };
  Kind kind = Kind::kLast;
  int number = 0;  ///< from 0

  /// The step that is chosen of so many whatever they are like, if there is one. Throws ConfigError
  /// for a number beyond them.
  std::optional<std::size_t> of(int steps) const;
  /// One of these, of which there must be one; throws as of() does.
  std::size_t choose(const std::vector<StepSpan>& steps) const;
  /// "the last one", "as asked", "the slowest one", "the median one".
  std::string_view words() const;
};

/// "last", "slowest", "median", or a number from 0.
std::optional<StepChoice> parse_step_choice(std::string_view text);

}  // namespace rackrail::sim
