// Small things about text.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace rackrail {

/// Without leading and trailing blanks, tabs and ends of lines.
constexpr std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kBlank = " \t\r\n";
  const std::size_t first = text.find_first_not_of(kBlank);
  return first == std::string_view::npos
             ? std::string_view()
             : text.substr(first, text.find_last_not_of(kBlank) - first + 1);
}

/// An order of texts in which A and a are the same; of other letters than English ones it knows no
/// other case.
struct LessInAnyCase {
  using is_transparent = void;
  constexpr bool operator()(std::string_view a, std::string_view b) const {
    return std::lexicographical_compare(a.begin(), a.end(), b.begin(), b.end(),
                                        [](char x, char y) { return small(x) < small(y); });
  }

 private:
  static constexpr char small(char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  }
};

constexpr bool is_same_in_any_case(std::string_view a, std::string_view b) {
  return !LessInAnyCase()(a, b) && !LessInAnyCase()(b, a);
}

/// As NUL and the end of a line are: what no name should have.
constexpr bool has_control_character(std::string_view text) {
  return std::ranges::any_of(text, [](char c) { return (c >= 0 && c < 0x20) || c == 0x7f; });
}

/// "1 rank", "2 ranks".
inline std::string counted(std::int64_t count, std::string_view noun) {
  return std::to_string(count) + " " + std::string(noun) + (count == 1 ? "" : "s");
}

/// From 1; none where all of it is UTF-8.
std::optional<std::size_t> first_line_not_utf8(std::string_view text);
/// Throws ConfigError with the file and that line.
void require_utf8(std::string_view text, const std::string& file);

}  // namespace rackrail
