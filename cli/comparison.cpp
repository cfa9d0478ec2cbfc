#include "cli/comparison.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/parse_units.hpp"
#include "cli/shared_numbers.hpp"
#include "cli/table.hpp"

namespace rackrail::cli {

std::string comparison_table(const std::string& title, const std::vector<Compared>& cases) {
  Table table({{title},
               {"by"},
               {"predicted", Align::kRight},
               {"measured", Align::kRight},
               {"error", Align::kRight}});
  for (const Compared& one : cases) {
    table.add_row({one.what, one.how, to_string(one.predicted), to_string(one.measured),
                   fmt::format("{:+.1f} %", one.error() * kPercent)});
  }
  return table.to_string();
}

nlohmann::json to_json(const Compared& one) {
  return {{"what", one.what},
          {"by", one.how},
          {"predicted_s", one.predicted.seconds()},
          {"measured_s", one.measured.seconds()},
          {"relative_error", one.error()}};
}

}  // namespace rackrail::cli
