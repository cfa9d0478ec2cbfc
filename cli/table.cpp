#include "cli/table.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace rackrail::cli {

namespace {

// Width on a terminal: one cell per code point (our tables hold no wide or combining characters).
std::size_t width(const std::string& text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U;
  }));
}

std::string padded(const std::string& text, std::size_t to, Align align) {
  const std::string padding(to - std::min(to, width(text)), ' ');
  return align == Align::kRight ? padding + text : text + padding;
}

}  // namespace

std::string Table::to_string() const {
  std::vector<std::size_t> widths;
  for (std::size_t i = 0; i < columns_.size(); ++i) {
    std::size_t widest = width(columns_[i].title);
    for (const auto& row : rows_) {
      widest = std::max(widest, width(row.at(i)));
    }
    widths.push_back(widest);
  }
  std::string text;
  const auto add_line = [&](const auto& cell) {
    std::string line;
    for (std::size_t i = 0; i < columns_.size(); ++i) {
      line += (i == 0 ? "" : "  ") + padded(cell(i), widths[i], columns_[i].align);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  };
  add_line([&](std::size_t i) { return columns_[i].title; });
  add_line([&](std::size_t i) { return std::string(widths[i], '-'); });
  for (const auto& row : rows_) {
    add_line([&](std::size_t i) { return row[i]; });
  }
  return text;
}

RowByRow::RowByRow(std::vector<Column> columns) : columns_(std::move(columns)) {
  for (Column& column : columns_) {
    column.width = std::max(column.width, width(column.title));
  }
}

std::string RowByRow::head() const {
  std::vector<std::string> titles;
  std::vector<std::string> rules;
  for (const Column& column : columns_) {
    titles.push_back(column.title);
    rules.emplace_back(column.width, '-');
  }
  return row(titles) + row(rules);
}

std::string RowByRow::row(const std::vector<std::string>& cells) const {
  std::string line;
  for (std::size_t i = 0; i < columns_.size(); ++i) {
    line += (i == 0 ? "" : "  ") + padded(cells.at(i), columns_[i].width, columns_[i].align);
  }
  line.erase(line.find_last_not_of(' ') + 1);
  return line + "\n";
}

std::string signed_percent(double share) {
  constexpr double kShown = 0.0005;
  return fmt::format("{:+.1f} %", std::abs(share) < kShown ? 0.0 : share * 100);
}

std::string percent(double share) { return fmt::format("{:.1f} %", share * 100); }

}  // namespace rackrail::cli
