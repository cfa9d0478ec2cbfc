#include "plan/json_layout.hpp"

#include <algorithm>
#include <vector>

namespace rackrail::plan {
namespace {

constexpr std::size_t kColumns = 100;
constexpr std::string_view kBlank = " \t\r\n";

/// The end of the string that starts at `begin` with a quote: past its closing quote.
std::size_t end_of_string(std::string_view json, std::size_t begin) {
  std::size_t i = begin + 1;
  while (i < json.size() && json[i] != '"') {
    i += json[i] == '\\' ? 2 : 1;
  }
  return i + 1;
}

/// The items of the list that starts at `begin` if they are all scalars; `end` is then past it.
bool scalar_items(std::string_view json, std::size_t begin, std::vector<std::string_view>& items,
                  std::size_t& end) {
  items.clear();
  std::size_t i = begin + 1;
  while (true) {
    i = json.find_first_not_of(kBlank, i);
    if (i == std::string_view::npos || json[i] == '[' || json[i] == '{') {
      return false;
    }
    if (json[i] == ']') {
      end = i + 1;
      return true;
    }
    if (json[i] == ',') {
      ++i;
      continue;
    }
    const std::size_t past =
        json[i] == '"' ? end_of_string(json, i) : json.find_first_of(" \t\r\n,]", i);
    if (past > json.size()) {
      return false;
    }
    items.push_back(json.substr(i, past - i));
    i = past;
  }
}

}  // namespace

std::string with_compact_lists(std::string_view json) {
  std::string text;
  text.reserve(json.size());
  std::vector<std::string_view> items;
  std::size_t line_begin = 0;  // in `text`
  std::size_t i = 0;
  while (i < json.size()) {
    std::size_t end = i + 1;
    if (json[i] == '"') {
      end = std::min(end_of_string(json, i), json.size());
    } else if (json[i] == '[' && scalar_items(json, i, items, end)) {
      std::size_t length = text.size() - line_begin + 2;
      for (const std::string_view item : items) {
        length += item.size() + 2;
      }
      const bool one_line = length <= kColumns;
      const std::size_t indent = text.find_first_not_of(' ', line_begin) - line_begin + 1;
      text += '[';
      for (std::size_t k = 0; k < items.size(); ++k) {
        const bool fits = text.size() - line_begin + items[k].size() + 2 <= kColumns;
        if (!one_line && (k == 0 || !fits)) {
          text += '\n';
          line_begin = text.size();
          text.append(indent, ' ');
        } else if (k > 0) {
          text += ' ';
        }
        text += items[k];
        text += k + 1 < items.size() ? "," : "";
      }
      text += ']';
      i = end;
      continue;
    }
    text.append(json.substr(i, end - i));
    if (json[i] == '\n') {
      line_begin = text.size();
    }
    i = end;
  }
  return text;
}

}  // namespace rackrail::plan
