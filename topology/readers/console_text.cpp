#include "topology/readers/console_text.hpp"

#include <algorithm>
#include <array>

namespace rackrail::topology {
namespace {

constexpr char kEscape = '\x1b';
/// No-break space, and the vertical rules that draw tables.
constexpr std::array<std::string_view, 3> kBlanks{"\xc2\xa0", "\xe2\x94\x82", "\xe2\x94\x83"};

/// Where the escape sequence that begins at `at` ends: after the letter of "ESC [ 4 m", else after
/// the one character that follows. Copies may have lost the escape character ("[4m") or write it
/// as ^[. The same place where there is none.
std::size_t end_of_escape(std::string_view text, std::size_t at) {
  if (text[at] == '[') {
    const std::size_t end = text.find_first_not_of("0123456789;", at + 1);
    return end != text.npos && end > at + 1 && text[end] == 'm' ? end + 1 : at;
  }
  const bool is_caret = text.substr(at).starts_with("^[");
  if (text[at] != kEscape && !is_caret) return at;
  std::size_t i = at + (is_caret ? 2 : 1);
  if (i >= text.size() || text[i] != '[') return std::min(is_caret ? i : i + 1, text.size());
  for (++i; i < text.size() && (text[i] < '@' || text[i] > '~') && text[i] != '\n';) ++i;
  return i < text.size() && text[i] != '\n' ? i + 1 : i;
}

}  // namespace

std::string plain_console_text(std::string_view content) {
  std::string text;
  text.reserve(content.size());
  for (std::size_t i = 0; i < content.size();) {
    if (const std::size_t end = end_of_escape(content, i); end > i) {
      i = end;
      continue;
    }
    std::size_t blank = content[i] == '|' || content[i] == '`' ? 1 : 0;
    for (const std::string_view wide : kBlanks) {
      if (content.substr(i).starts_with(wide)) blank = wide.size();
    }
    if (blank > 0) {
      text += ' ';
      i += blank;
    } else {
      if (content[i] != '\r') text += content[i];
      ++i;
    }
  }
  return text;
}

std::vector<ConsoleWord> console_words(std::string_view text) {
  std::vector<ConsoleWord> words;
  std::size_t line = 1;
  bool is_first = true;
  for (std::size_t i = 0; i < text.size();) {
    if (text[i] == '\n') {
      ++line;
      is_first = true;
      ++i;
    } else if (text[i] == ' ' || text[i] == '\t') {
      ++i;
    } else {
      const std::size_t end = std::min(text.find_first_of(" \t\n", i), text.size());
      const bool is_quote = is_first && text.find_first_not_of(">*#", i) >= end;
      if (is_quote) {
        i = end;
        continue;
      }
      words.push_back({text.substr(i, end - i), line, is_first});
      is_first = false;
      i = end;
    }
  }
  return words;
}

}  // namespace rackrail::topology
