#include "cli/comparison.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/parse_units.hpp"
#include "cli/shared_numbers.hpp"
#include "cli/table.hpp"

namespace rackrail::cli {

ErrorSummary summarise(const std::vector<double>& errors) {
  std::vector<double> sizes;
  double logarithms = 0;
  for (const double error : errors) {
    sizes.push_back(std::abs(error));
    logarithms += std::abs(std::log1p(error));
  }
  std::sort(sizes.begin(), sizes.end());
  const std::size_t count = sizes.size();
  return {
      .mean = std::expm1(logarithms / static_cast<double>(count)),
      .median = (sizes[(count - 1) / 2] + sizes[count / 2]) / 2,
      .worst = *std::ranges::max_element(errors, {}, [](double error) { return std::abs(error); })};
}

std::string summary_text(const ErrorSummary& summary) {
  return fmt::format("off by a factor of {:.3f} in the geometric mean; error: median {}, worst {}",
                     1 + summary.mean, percent(summary.median), error_text(summary.worst));
}

std::string error_text(double error) { return fmt::format("{:+.1f} %", error * kPercent); }

std::string comparison_table(const std::string& title, const std::vector<Compared>& cases) {
  Table table({{title},
               {"by"},
               {"predicted", Align::kRight},
               {"measured", Align::kRight},
               {"error", Align::kRight}});
  for (const Compared& one : cases) {
    table.add_row({one.what, one.how, to_string(one.predicted), to_string(one.measured),
                   error_text(one.error())});
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
