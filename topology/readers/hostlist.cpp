#include "topology/readers/hostlist.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <optional>

#include "base/error.hpp"
#include "base/text.hpp"

namespace rackrail::topology {
namespace {

constexpr std::size_t kLongestName = 255;  // of a host, with its domain

[[noreturn]] void fail(std::string_view found, const std::string& expected) {
  throw ConfigError(ErrorContext{"", "", fmt::format("'{}'", found), expected});
}

std::optional<std::uint32_t> number(std::string_view digits) {
  std::uint32_t value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (error != std::errc() || end != digits.data() + digits.size()) return std::nullopt;
  return value;
}

/// Places of the commas outside of brackets, and the end.
std::vector<std::size_t> ends_of_names(std::string_view list) {
  std::vector<std::size_t> ends;
  bool is_inside = false;
  for (std::size_t i = 0; i < list.size(); ++i) {
    if (list[i] == '[' || list[i] == ']') {
      if (is_inside == (list[i] == '[')) fail(list, "a list with each '[' closed by ']'");
      is_inside = !is_inside;
    }
    if (list[i] == ',' && !is_inside) ends.push_back(i);
  }
  if (is_inside) fail(list, "a list with each '[' closed by ']'");
  ends.push_back(list.size());
  return ends;
}

/// What stands in brackets: "01-04,7".
std::vector<std::string> numbers_in(std::string_view ranges, std::string_view name,
                                    std::size_t most) {
  std::vector<std::string> numbers;
  while (true) {
    const std::size_t comma = std::min(ranges.find(','), ranges.size());
    const std::string_view range = trimmed(ranges.substr(0, comma));
    const std::size_t dash = range.find('-');
    const std::string_view first = range.substr(0, dash);
    const std::string_view last = dash == range.npos ? first : range.substr(dash + 1);
    if (first.size() > kLongestName) fail(name.substr(0, kLongestName), "shorter numbers");
    const std::optional<std::uint32_t> low = number(first);
    const std::optional<std::uint32_t> high = number(last);
    if (!low || !high || *low > *high) {
      fail(name, "numbers in brackets, as [1-4,7], each range from low to high");
    }
    if (*high - *low >= most) fail(name, fmt::format("at most {} names", most));
    for (std::uint64_t i = *low; i <= *high; ++i) {
      numbers.push_back(fmt::format("{:0>{}}", i, first.size()));
    }
    if (numbers.size() > most) fail(name, fmt::format("at most {} names", most));
    if (comma == ranges.size()) return numbers;
    ranges.remove_prefix(comma + 1);
  }
}

/// One element of a list, with brackets.
std::vector<std::string> expand_name(std::string_view name, std::size_t most) {
  std::vector<std::string> names{""};
  for (std::string_view rest = name; !rest.empty();) {
    const std::size_t open = std::min(rest.find('['), rest.size());
    if (names.front().size() + open > kLongestName) {
      fail(name.substr(0, kLongestName), fmt::format("names of at most {} letters", kLongestName));
    }
    for (std::string& one : names) one += rest.substr(0, open);
    rest.remove_prefix(open);
    if (rest.empty()) break;
    const std::size_t close = rest.find(']');
    const std::vector<std::string> numbers = numbers_in(rest.substr(1, close - 1), name, most);
    if (names.size() * numbers.size() > most) fail(name, fmt::format("at most {} names", most));
    std::vector<std::string> longer;
    for (const std::string& one : names) {
      for (const std::string& tail : numbers) longer.push_back(one + tail);
    }
    names = std::move(longer);
    rest.remove_prefix(close + 1);
  }
  return names;
}

}  // namespace

std::vector<std::string> expand_hostlist(std::string_view list, std::size_t most) {
  std::vector<std::string> names;
  std::size_t begin = 0;
  for (const std::size_t end : ends_of_names(list)) {
    const std::string_view name = trimmed(list.substr(begin, end - begin));
    begin = end + 1;
    if (name.empty()) fail(list, "names between commas");
    for (std::string& one : expand_name(name, most)) {
      if (std::ranges::all_of(one, [](char c) { return c >= '0' && c <= '9'; })) {
        fail(name, "names with a prefix before their numbers, as node[1-4]");
      }
      names.push_back(std::move(one));
    }
    if (names.size() > most) fail(list, fmt::format("at most {} names", most));
  }
  return names;
}

}  // namespace rackrail::topology
