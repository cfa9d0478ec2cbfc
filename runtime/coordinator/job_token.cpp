#include "runtime/coordinator/job_token.hpp"

#include <sys/random.h>

#include <algorithm>
#include <array>
#include <cstdlib>

#include "base/digest.hpp"
#include "base/error.hpp"
#include "base/file.hpp"

namespace rackrail::runtime {

std::string read_job_token(const std::filesystem::path& file) {
  std::string token;
  if (file.empty()) {
    const char* value = std::getenv(kJobTokenVariable);
    if (value == nullptr) {
      return "";
    }
    token = value;
  } else {
    token = read_file(file);
    token.erase(
        std::find_if(token.begin(), token.end(), [](char c) { return c == '\n' || c == '\r'; }),
        token.end());
  }
  constexpr std::size_t kLongest = 4096;
  const bool printable =
      std::all_of(token.begin(), token.end(), [](char c) { return c > ' ' && c < '\x7f'; });
  if (token.empty() || token.size() > kLongest || !printable) {
    // What was found is a secret, so only its kind is said.
    throw ConfigError(ErrorContext{.file = file.empty() ? "<environment>" : file.string(),
                                   .where = file.empty() ? kJobTokenVariable : "line 1",
                                   .found = token.empty() ? "an empty token"
                                            : token.size() > kLongest
                                                ? std::to_string(token.size()) + " characters"
                                                : "a character that is not printable ASCII",
                                   .expected = "1 to 4096 printable characters without spaces"});
  }
  return token;
}

std::string make_job_token() {
  std::array<unsigned char, 32> bits{};
  // Up to 256 bytes are never cut short once the kernel's pool is ready, which getrandom waits for.
  if (getrandom(bits.data(), bits.size(), 0) != static_cast<ssize_t>(bits.size())) {
    throw RuntimeFailure("the operating system gives no random numbers for the job's token");
  }
  std::string token;
  constexpr std::string_view kDigits = "0123456789abcdef";
  for (const unsigned char byte : bits) {
    token += kDigits[byte >> 4U];
    token += kDigits[byte & 15U];
  }
  return token;
}

bool same_token(std::string_view a, std::string_view b) {
  // Digests have one length, so that not even the token's length shows in the time.
  const std::string first = sha256_hex(a);
  const std::string second = sha256_hex(b);
  unsigned difference = 0;
  for (std::size_t i = 0; i < first.size(); ++i) {
    difference |= static_cast<unsigned>(static_cast<unsigned char>(first[i]) ^
                                        static_cast<unsigned char>(second[i]));
  }
  return difference == 0;
}

}  // namespace rackrail::runtime
