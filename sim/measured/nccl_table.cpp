#include "sim/measured/nccl_table.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "sim/measured/formats.hpp"
#include "sim/measured/log_lines.hpp"

namespace rackrail::sim::measured {

namespace {

constexpr std::size_t kNoColumn = static_cast<std::size_t>(-1);
constexpr std::size_t kMostColumns = 64;

/// The names of now for those of all versions.
std::string_view usual_name(std::string_view name) {
  constexpr std::array kOthers = {
      std::pair("bytes", "size"),   std::pair("#size", "size"),  std::pair("#bytes", "size"),
      std::pair("N", "count"),      std::pair("op", "redop"),    std::pair("res", "error"),
      std::pair("#wrong", "error"), std::pair("wrong", "error"), std::pair("cputime", "time"),
  };
  for (const auto& [other, usual] : kOthers) {
    if (name == other) {
      return usual;
    }
  }
  return name;
}

}  // namespace

std::optional<TableHeader> TableHeader::parse(std::string_view line) {
  std::vector<std::string_view> words = words_of(line);
  const auto first =
      std::ranges::find_if(words, [](std::string_view word) { return usual_name(word) == "size"; });
  words.erase(words.begin(), first);
  const auto has = [&](std::string_view name) {
    return std::ranges::any_of(words,
                               [&](std::string_view word) { return usual_name(word) == name; });
  };
  if (words.size() > kMostColumns || !has("size") || !has("time") || !has("count") ||
      !has("type")) {
    return std::nullopt;
  }
  TableHeader header;
  for (const std::string_view word : words) {
    header.names_.emplace_back(usual_name(word));
    header.is_cpu_time_ = header.is_cpu_time_ || word == "cputime";
    header.is_of_version_1_ = header.is_of_version_1_ || word == "res";
  }
  return header;
}

std::size_t TableHeader::column(std::string_view name) const {
  const auto found = std::ranges::find(names_, name);
  return found == names_.end() ? kNoColumn : static_cast<std::size_t>(found - names_.begin());
}

std::optional<TableRow> TableHeader::row(std::string_view line, std::size_t number) const {
  std::vector<std::string_view> words = words_of(line);
  const auto type = std::ranges::find_if(words, is_element_type);
  const auto type_column = static_cast<std::ptrdiff_t>(column("type"));
  if (type == words.end() || type - words.begin() < type_column) {
    return std::nullopt;
  }
  words.erase(words.begin(), type - type_column);
  TableRow row;
  row.line = number;
  std::vector<std::string_view> names(names_.begin(), names_.end());
  const std::size_t redop = column("redop");
  if (redop < words.size() && is_number(words[redop])) {
    // All-to-alls up to version 2.10 leave the cells of redop and root blank.
    row.has_blank_reduction = true;
    const bool has_root = words.size() + 1 >= names.size();
    std::erase_if(names, [&](std::string_view name) {
      return name == "redop" || (name == "root" && !has_root);
    });
  }
  for (std::size_t i = 0; i < std::min(words.size(), names.size()); ++i) {
    const std::string_view word = words[i];
    const std::optional<double> value = real_number(word);
    TableTime* const last = row.times.empty() ? nullptr : &row.times.back();
    if (names[i] == "size") {
      if (!is_digits(word) || !value || *value > static_cast<double>(kMostBytes)) {
        return std::nullopt;
      }
      row.size = *value;
    } else if (names[i] == "redop") {
      row.has_reduction = word != "none";
    } else if (names[i] == "root") {
      row.has_root = value && *value >= 0;
    } else if (names[i] == "time") {
      row.times.push_back({.is_in_place = is_in_place_only || !row.times.empty(),
                           .time = value && *value > 0 ? *value : 0});
    } else if (last != nullptr && names[i] == "algbw") {
      last->algbw = value;
    } else if (last != nullptr && names[i] == "busbw") {
      last->busbw = value;
    } else if (last != nullptr && names[i] == "error") {
      last->is_unchecked = word == "N/A";
      // Before #wrong there was the largest deviation, as 4e-07.
      last->is_wrong = value && *value >= 1;
    }
  }
  if (row.times.empty() || row.times.size() > 2) {
    return std::nullopt;
  }
  std::erase_if(row.times, [](const TableTime& one) { return one.time == 0; });
  return row;
}

std::optional<double> unit_of_time(std::string_view line) {
  constexpr std::array kUnits = {std::pair("(us)", kMicro), std::pair("(ms)", kMilli),
                                 std::pair("(ns)", kNano), std::pair("(s)", 1.0)};
  for (const std::string_view word : words_of(line)) {
    for (const auto& [name, unit] : kUnits) {
      if (word == name) {
        return unit;
      }
    }
  }
  return std::nullopt;
}

}  // namespace rackrail::sim::measured
