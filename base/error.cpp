#include "base/error.hpp"

#include <utility>

namespace rackrail {

Error::Error(const std::string& message, ErrorContext context)
    : std::runtime_error(message), context_(std::move(context)) {}

ConfigError::ConfigError(ErrorContext context) : Error(describe(context), context) {}

PlanError::PlanError(ErrorContext context) : Error(describe(context), context) {}

std::string describe(const ErrorContext& context) {
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
