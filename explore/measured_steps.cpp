#include "explore/measured_steps.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "base/csv.hpp"

namespace rackrail::explore {

namespace {

constexpr std::int64_t kMostDevices = 1 << 20;
constexpr std::int64_t kMostSamples = 1'000'000'000;
constexpr std::uint64_t kHeldOutOf = 5;

MeasuredPlacement placement_of(const CsvTable& table, std::size_t row) {
  MeasuredPlacement placement;
  if (table.has("placement")) {
    placement.name = table.text(row, "placement");
    placement.nodes = static_cast<std::int64_t>(placement.name.size());
    placement.replicas = 0;
    placement.largest_node = 0;
    for (const char digit : placement.name) {
      if (digit < '1' || digit > '9') {
        table.fail(row, "placement", "a digit from 1 to 9 for each node");
      }
      placement.replicas += digit - '0';
      placement.largest_node = std::max<std::int64_t>(placement.largest_node, digit - '0');
    }
    if (placement.name.empty()) {
      table.fail(row, "placement", "a digit from 1 to 9 for each node");
    }
    return placement;
  }
  placement.nodes = table.whole(row, "num_nodes", kMostDevices);
  placement.replicas = table.whole(row, "num_replicas", kMostDevices);
  if (placement.replicas < placement.nodes) {
    table.fail(row, "num_replicas", fmt::format("one for each of {} nodes", placement.nodes));
  }
  placement.largest_node = (placement.replicas + placement.nodes - 1) / placement.nodes;
  placement.name = fmt::format("{}n{}", placement.nodes, placement.replicas);
  return placement;
}

std::uint64_t folded_fnv1a(std::string_view text) {
  std::uint64_t hash = 0xcbf29ce484222325ULL;
  for (const char c : text) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
  }
  return hash ^ (hash >> 32U);
}

}  // namespace

std::vector<MeasuredStep> read_measured_steps(const std::filesystem::path& path) {
  const CsvTable table = CsvTable::read(path);
  std::vector<MeasuredStep> steps;
  for (std::size_t row = 0; row < table.rows(); ++row) {
    steps.push_back({placement_of(table, row), table.whole(row, "local_bsz", kMostSamples),
                     Duration::from_seconds(table.positive(row, "step_time"))});
  }
  return steps;
}

DividedSteps divide(const std::vector<MeasuredStep>& steps, HoldOut what) {
  DividedSteps divided;
  for (const MeasuredStep& step : steps) {
    const std::string key = what == HoldOut::kPlacements
                                ? step.placement.name
                                : fmt::format("{}/{}", step.placement.name, step.local_batch);
    (folded_fnv1a(key) % kHeldOutOf == 0 ? divided.held_out : divided.known).push_back(step);
  }
  return divided;
}

}  // namespace rackrail::explore
