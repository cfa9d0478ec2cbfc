#include "runtime/coordinator/job_token.hpp"

#include <openssl/crypto.h>
#include <sys/random.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstdlib>
#include <span>
#include <utility>

#include "base/digest.hpp"
#include "base/error.hpp"
#include "base/file.hpp"

namespace rackrail::runtime {
namespace {

constexpr std::size_t kShortest = 16;
constexpr std::size_t kLongest = 4096;

/// Up to 256 bytes: these are never cut short once the kernel's pool is ready, which getrandom
/// waits for.
void fill_at_random(std::span<unsigned char> bytes) {
  if (getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size())) {
    throw RuntimeFailure("the operating system gives no random numbers for the job's secrets");
  }
}

}  // namespace

std::string read_job_token(const std::filesystem::path& file) {
  std::string token;
  if (file.empty()) {
    const char* value = std::getenv(kJobTokenVariable);
    if (value == nullptr) {
      return "";
    }
    token = value;
  } else {
    require_private_file(file, "a token");
    token = read_file(file);
    token.erase(
        std::find_if(token.begin(), token.end(), [](char c) { return c == '\n' || c == '\r'; }),
        token.end());
  }
  return checked_job_token(std::move(token), file.empty() ? "<environment>" : file.string(),
                           file.empty() ? kJobTokenVariable : "line 1");
}

std::string checked_job_token(std::string token, const std::string& file,
                              const std::string& where) {
  const bool printable =
      std::all_of(token.begin(), token.end(), [](char c) { return c > ' ' && c < '\x7f'; });
  if (token.size() < kShortest || token.size() > kLongest || !printable) {
    // What was found is a secret, so only its kind is said.
    throw ConfigError(ErrorContext{
        .file = file,
        .where = where,
        .found = token.empty() ? "an empty token"
                 : !printable  ? "a character that is not printable ASCII"
                               : std::to_string(token.size()) + " characters",
        .expected =
            "16 to 4096 printable characters without spaces, as of 'openssl rand -hex 32'"});
  }
  return token;
}

std::string make_job_token() {
  std::array<unsigned char, 32> bits{};
  fill_at_random(bits);
  std::string token;
  constexpr std::string_view kDigits = "0123456789abcdef";
  for (const unsigned char byte : bits) {
    token += kDigits[byte >> 4U];
    token += kDigits[byte & 15U];
  }
  return token;
}

std::uint64_t random_key() {
  std::array<unsigned char, sizeof(std::uint64_t)> bits{};
  fill_at_random(bits);
  return std::bit_cast<std::uint64_t>(bits);
}

bool same_token(std::string_view a, std::string_view b) {
  // Digests have one length, so that not even the token's length shows in the time.
  const std::string first = sha256_hex(a);
  const std::string second = sha256_hex(b);
  return CRYPTO_memcmp(first.data(), second.data(), first.size()) == 0;
}

}  // namespace rackrail::runtime
