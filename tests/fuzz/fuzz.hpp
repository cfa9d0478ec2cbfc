// What the fuzzers share: how a finding ends the run, and which errors are right answers.
//
// A fuzzer is a file with LLVMFuzzerTestOneInput(), which calls what production calls, and with
// seeds(). `scripts/fuzz` runs them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.hpp"

namespace rackrail::fuzz {

/// Inputs that this fuzzer makes itself; `<fuzzer> --seeds=FOLDER` writes them. Files of the
/// repository are seeds, too: scripts/fuzz knows which.
std::vector<std::string> seeds();

/// A finding unless the condition holds.
inline void require(bool holds, std::string_view what) {
  if (!holds) {
    std::fprintf(stderr, "FINDING: %.*s\n", static_cast<int>(what.size()), what.data());
    std::abort();
  }
}

inline std::string_view text_of(const std::uint8_t* data, std::size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

inline std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

/// Whether `read` takes its input. An error that blames the input, in one line, is a right answer;
/// any other exception is a finding.
template <typename Read>
bool accepted(const Read& read) {
  try {
    read();
    return true;
  } catch (const Error& error) {
    const std::string_view line = error.what();
    require(error.is_bad_input(), "an error that does not blame the input: " + std::string(line));
    require(!line.empty() && line.find('\n') == line.npos,
            "an error that is not one line: " + std::string(line));
    return false;
  }
}

}  // namespace rackrail::fuzz
