// Text that was copied from a terminal.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace rackrail::topology {

/// Without escape sequences (underlined headings) and carriage returns; blanks that take
/// several bytes, table rules and code marks as blanks. Lines stay where they are.
std::string plain_console_text(std::string_view content);

struct ConsoleWord {
  std::string_view text;
  std::size_t line = 1;
  bool is_first = false;  ///< of its line
};

/// The words of a text, which must outlive them, without marks of quotes or comments before lines.
std::vector<ConsoleWord> console_words(std::string_view text);

}  // namespace rackrail::topology
