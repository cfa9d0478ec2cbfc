#include "plan/message_errors.hpp"

#include <cstdint>

#include "base/text.hpp"

namespace rackrail::plan::message {
namespace {

/// Length of the well-formed sequence (Unicode 15, table 3-7) that starts at `i`; 0 if none does.
std::size_t sequence_length(const std::string& text, std::size_t i) {
  const auto byte = [&](std::size_t k) {
    return k < text.size() ? static_cast<std::uint8_t>(text[k]) : std::uint8_t{0};
  };
  const std::uint8_t lead = byte(i);
  if (lead < 0x80) {
    return 1;
  }
  const std::size_t length = lead >= 0xC2 && lead <= 0xDF   ? 2
                             : lead >= 0xE0 && lead <= 0xEF ? 3
                             : lead >= 0xF0 && lead <= 0xF4 ? 4
                                                            : 0;
  // The second byte excludes overlong forms, surrogates and what lies past U+10FFFF.
  const std::uint8_t least = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
  const std::uint8_t most = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
  if (length == 0 || byte(i + 1) < least || byte(i + 1) > most) {
    return 0;
  }
  for (std::size_t k = 2; k < length; ++k) {
    if (byte(i + k) < 0x80 || byte(i + k) > 0xBF) {
      return 0;
    }
  }
  return length;
}

}  // namespace

const std::string& one_line(const std::string& text, const std::string& where) {
  if (has_control_character(text)) {
    fail(where, "'" + text + "'", "text without control characters");
  }
  return text;
}

const std::string& utf8(const std::string& text, const std::string& where) {
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t length = sequence_length(text, i);
    if (length == 0) {
      fail(where, fmt::format("byte 0x{:02x} at place {}", static_cast<std::uint8_t>(text[i]), i),
           "a text in UTF-8");
    }
    i += length;
  }
  return text;
}

}  // namespace rackrail::plan::message
