#include "base/error.hpp"

#include <utility>

namespace rackrail {

Error::Error(const std::string& message, ErrorContext context)
    : std::runtime_error(message), context_(std::move(context)) {}

ConfigError::ConfigError(const ErrorContext& context) : Error(describe(context), context) {}

PlanError::PlanError(const ErrorContext& context) : Error(describe(context), context) {}

namespace {

// What was found is copied from the input, so it may be long and hold anything.
constexpr std::size_t kLongestPart = 400;

std::string in_one_line(const std::string& text) {
  constexpr const char* kHex = "0123456789abcdef";
  std::string line;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (line.size() >= kLongestPart && (byte & 0xc0U) != 0x80U) {  // not inside a UTF-8 sequence
      return line + "...";
    }
    if (c == '\n') {
      line += "\\n";
    } else if (byte < 0x20 || byte == 0x7f) {
      line += {'\\', 'x', kHex[byte >> 4U], kHex[byte & 0xfU]};
    } else {
      line += c;
    }
  }
  return line;
}

}  // namespace

std::string describe(const ErrorContext& raw) {
  const ErrorContext context{in_one_line(raw.file), in_one_line(raw.where), in_one_line(raw.found),
                             in_one_line(raw.expected)};
  std::string line = context.file;
  if (!context.where.empty()) {
    line += (line.empty() ? "" : ": ") + context.where;
  }
  if (!context.found.empty()) {
    line += (line.empty() ? "" : ": ") + ("found " + context.found);
  }
  if (!context.expected.empty()) {
    line += (context.found.empty() ? (line.empty() ? "" : ": ") : ", ") +
            ("expected " + context.expected);
  }
  return line;
}

}  // namespace rackrail
