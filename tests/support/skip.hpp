#pragma once

// Leaving a test case because this machine cannot run it.
//
// Catch2 v2 has no skip. RACKRAIL_SKIP(reason) prints "SKIPPED: <test case>: <reason>", has the
// case counted as skipped instead of passed, and returns from it; so it stands in the test case
// itself, not in a helper or a lambda. A case that has already failed stays failed. Inside a
// SECTION it may keep later sections from running, so that what can run anywhere belongs in a case
// of its own.
//
//   TEST_CASE("UCX moves a gigabyte") {
//     if (!transport.is_available()) RACKRAIL_SKIP(transport.reason());
//     ...

#include <string_view>

namespace rackrail::test {

/// Marks the running test case as skipped. Use the macro, which also leaves the case.
void record_skip(std::string_view reason);

}  // namespace rackrail::test

// The macro is one statement, also after an `if` without braces.
#define RACKRAIL_SKIP(reason)              \
  do {                                     \
    ::rackrail::test::record_skip(reason); \
    return;                                \
  } while (false)
