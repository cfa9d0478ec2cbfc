// Small things about text.
#pragma once

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

}  // namespace rackrail
