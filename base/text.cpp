#include "base/text.hpp"

#include <algorithm>
#include <array>

#include "base/error.hpp"

namespace rackrail {

std::optional<std::size_t> first_line_not_utf8(std::string_view text) {
  // How many bytes follow the first one, and the least that they may stand for (Unicode, table
  // 3-7).
  struct Form {
    unsigned mask, lead;
    std::size_t following;
    unsigned least;
  };
  constexpr std::array<Form, 4> kForms{Form{0x80, 0x00, 0, 0}, Form{0xe0, 0xc0, 1, 0x80},
                                       Form{0xf0, 0xe0, 2, 0x800}, Form{0xf8, 0xf0, 3, 0x10000}};
  std::size_t line = 1;
  for (std::size_t i = 0; i < text.size();) {
    const unsigned first = static_cast<unsigned char>(text[i]);
    const auto form = std::ranges::find_if(
        kForms, [first](const Form& each) { return (first & each.mask) == each.lead; });
    if (form == kForms.end() || text.size() - i <= form->following) {
      return line;
    }
    unsigned value = first & ~form->mask & 0xff;
    for (std::size_t k = 1; k <= form->following; ++k) {
      const unsigned next = static_cast<unsigned char>(text[i + k]);
      if ((next & 0xc0) != 0x80) {
        return line;
      }
      value = (value << 6) | (next & 0x3f);
    }
    const bool is_surrogate = value >= 0xd800 && value <= 0xdfff;
    if (value < form->least || value > 0x10ffff || is_surrogate) {
      return line;
    }
    line += first == '\n' ? 1 : 0;
    i += form->following + 1;
  }
  return std::nullopt;
}

void require_utf8(std::string_view text, const std::string& file) {
  if (const auto line = first_line_not_utf8(text)) {
    throw ConfigError(ErrorContext{file, "line " + std::to_string(*line), "bytes that are no UTF-8",
                                   "text in UTF-8"});
  }
}

}  // namespace rackrail
