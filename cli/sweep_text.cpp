#include "cli/sweep_text.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/parse_units.hpp"
#include "cli/table.hpp"

namespace rackrail::cli {

namespace {

std::string failures(const std::vector<explore::Row>& rows, std::size_t most) {
  std::string text;
  std::size_t count = 0;
  for (const explore::Row& row : rows) {
    if (!row.figures && count++ < most) {
      text += fmt::format("cell {} failed: {}\n", row.cell, row.error);
    }
  }
  if (count > most) {
    text += fmt::format("({} more failed)\n", count - most);
  }
  return text;
}

}  // namespace

std::string sweep_table(const std::vector<explore::Row>& rows, const explore::Objective& objective,
                        std::size_t most) {
  std::vector<const explore::Row*> order;
  for (const explore::Row& row : rows) {
    if (row.figures) {
      order.push_back(&row);
    }
  }
  std::stable_sort(order.begin(), order.end(), [&](const auto* a, const auto* b) {
    const double x = explore::value_of(*a->figures, objective);
    const double y = explore::value_of(*b->figures, objective);
    return objective.more_is_better ? x > y : x < y;
  });
  if (order.empty()) {
    return failures(rows, most);
  }
  std::vector<Table::Column> columns{{"cell", Align::kRight}};
  for (const auto& [path, value] : order.front()->varied) {
    columns.push_back({path, Align::kRight});
  }
  for (const char* title : {"step time", "bound", "gap", "sync", "samples/s"}) {
    columns.push_back({title, Align::kRight});
  }
  Table table(columns);
  for (std::size_t i = 0; i < std::min(most, order.size()); ++i) {
    const explore::Row& row = *order[i];
    const explore::Figures& figures = *row.figures;
    std::vector<std::string> cells{std::to_string(row.cell)};
    for (const auto& [path, value] : row.varied) {
      cells.push_back(value);
    }
    cells.push_back(to_string(Duration::from_seconds(figures.step_time_s)));
    cells.push_back(to_string(Duration::from_seconds(figures.bound_s)));
    cells.push_back(fmt::format("{:+.1f} %", figures.gap * 100));
    cells.push_back(percent(figures.sync_share));
    cells.push_back(fmt::format("{:.1f}", figures.throughput));
    table.add_row(std::move(cells));
  }
  std::string text = table.to_string();
  if (order.size() > most) {
    text += fmt::format("({} more cells with a worse {} are not shown)\n", order.size() - most,
                        objective.name);
  }
  return text + failures(rows, most);
}

bool all_executions_equal(const std::vector<explore::Row>& rows) {
  bool any = false;
  for (const explore::Row& row : rows) {
    if (row.figures && !row.figures->executions_equal) {
      return false;
    }
    any = any || row.figures;
  }
  return any;
}

}  // namespace rackrail::cli
