// How the readers and writers of messages complain: with the place in the message, the file comes
// later. Used by plan_message.cpp and schedule_message.cpp only.
#pragma once

#include <fmt/format.h>

#include <string>
#include <utility>

#include "base/error.hpp"

namespace rackrail::plan::message {

[[noreturn]] inline void fail(std::string where, std::string found, std::string expected) {
  throw PlanError(ErrorContext{.file = {},
                               .where = std::move(where),
                               .found = std::move(found),
                               .expected = std::move(expected)});
}

/// Runs `read`; what it complains about gets the place in front.
template <typename Read>
auto at(const std::string& place, Read read) {
  try {
    return read();
  } catch (const Error& e) {
    if (!e.is_bad_input()) {
      throw;
    }
    ErrorContext context = e.context();
    context.where = context.where.empty() ? place : fmt::format("{}.{}", place, context.where);
    throw PlanError(std::move(context));
  }
}

/// The text, if it is UTF-8: protobuf would write anything else and then refuse to read it.
const std::string& utf8(const std::string& text, const std::string& where);
/// The text, as names and notes stand in tables, a line each; fails where it has control
/// characters.
const std::string& one_line(const std::string& text, const std::string& where);

}  // namespace rackrail::plan::message
