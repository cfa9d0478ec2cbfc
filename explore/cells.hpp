// The cells of a scenario: each a value for every varied field.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "explore/document.hpp"
#include "explore/plan_options.hpp"
#include "explore/scenario.hpp"

namespace rackrail::explore {

/// A cell with all that its result depends on.
struct Cell {
  std::size_t number = 0;          ///< place in the enumeration
  std::vector<FieldValue> varied;  ///< field and value, in the order of the axes
  Source cluster;                  ///< with the cell's values
  Source workload;
  std::optional<Source> faults;
  std::map<std::string, std::string> plan;
  int repetitions = 1;
  std::uint64_t seed = 0;
  /// SHA-256 of all that the result depends on (documents, options, seed, executions, version of
  /// rackrail): equal for equal cells of different scenarios.
  std::string digest() const;
};

/// Enumerates the cells of a scenario; each can be made by itself, so that only those in work take
/// memory.
///
/// Grid: all combinations, the last axis changing fastest. Random: the first `trials` different
/// ones of the sequence of draws; fewer when 20·trials draws do not have as many.
class Cells {
 public:
  /// Keeps a reference. Throws ConfigError for more than a million combinations.
  explicit Cells(const Scenario& scenario);
  std::size_t size() const { return values_.size(); }
  /// Safe from several threads.
  Cell at(std::size_t number) const;

 private:
  const Scenario& scenario_;
  std::vector<std::vector<std::string>> values_;  ///< per cell, in the order of the axes
};

}  // namespace rackrail::explore
