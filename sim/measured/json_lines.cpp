// JSON lines of MSCCL++'s benchmark: name, ranks, ranksPerNode, size, time in µs.
#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <sstream>
#include <utility>

#include "base/error.hpp"
#include "base/text.hpp"
#include "sim/measured/formats.hpp"

namespace rackrail::sim::measured {

namespace {

constexpr const char* kKeys = "name, ranks, ranksPerNode, size, time";

double number(const nlohmann::json& row, const char* key, const Place& place) {
  const auto found = row.find(key);
  if (found == row.end() || !found->is_number() || !(found->get<double>() > 0)) {
    place.fail(fmt::format("no number above 0 for '{}'", key), kKeys);
  }
  return found->get<double>();
}

std::int64_t count(const nlohmann::json& row, const char* key, std::int64_t most,
                   const Place& place) {
  const double value = number(row, key, place);
  if (!(value <= static_cast<double>(most)) || value != std::floor(value)) {
    place.fail(fmt::format("{} {:g}", key, value),
               fmt::format("a whole number from 1 to {}", most));
  }
  return static_cast<std::int64_t>(value);
}

Row read_row(const nlohmann::json& object, Operation operation, const Place& place) {
  Row row{place.line, operation, false, {}};
  const std::int64_t ranks = count(object, "ranks", kMostRanks, place);
  const std::int64_t per_node = count(object, "ranksPerNode", kMostRanks, place);
  if (ranks % per_node != 0) {
    place.fail(fmt::format("{} ranks, {} per node", ranks, per_node), "whole nodes");
  }
  set_machine(row.measurement, ranks, ranks / per_node, place);
  row.measurement.size = Bytes(count(object, "size", kMostBytes, place));
  row.measurement.seconds = number(object, "time", place) * kMicro;
  return row;
}

}  // namespace

bool is_json_lines(std::string_view content) {
  std::size_t at = 0;
  while (at < content.size()) {
    const std::size_t end = std::min(content.find('\n', at), content.size());
    const std::string_view text = trimmed(content.substr(at, end - at));
    if (!text.empty() && text.front() != '#') {
      return text.front() == '{';
    }
    at = end + 1;
  }
  return false;
}

Measurements read_json_lines(const std::filesystem::path& path, const std::string& content) {
  Measurements result;
  result.are_of_mscclpp = true;
  std::istringstream lines(content);
  Place place{path.string(), 0};
  for (std::string line; std::getline(lines, line);) {
    ++place.line;
    const std::string_view text = trimmed(line);
    if (text.empty() || text.front() == '#') {
      continue;
    }
    const nlohmann::json object = nlohmann::json::parse(text, nullptr, false);
    if (!object.is_object()) {
      place.fail("what is not a JSON object", "one object per line");
    }
    const auto name = object.find("name");
    if (name == object.end() || !name->is_string()) {
      place.fail("no 'name'", kKeys);
    }
    const Operation operation = parse_operation(name->get<std::string>());
    try {
      add_row(result, read_row(object, operation, place));
    } catch (const ConfigError&) {
      if (operation == Operation::kAllReduce) {
        throw;
      }
      ++result.unread_others;
    }
  }
  return result;
}

}  // namespace rackrail::sim::measured
