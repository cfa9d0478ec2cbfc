#include "runtime/ucx/wire.hpp"

#include <charconv>
#include <cstring>

#include "base/digest.hpp"
#include "base/random.hpp"

namespace rackrail::runtime {

std::uint64_t session_of(std::uint64_t key, std::span<const std::vector<std::byte>> addresses) {
  std::string text = std::to_string(key);
  for (const std::vector<std::byte>& address : addresses) {
    text += ' ' + std::to_string(address.size()) + ' ';
    text.append(reinterpret_cast<const char*>(address.data()), address.size());
  }
  constexpr std::size_t kDigits = 16;  // of 64 bits
  constexpr int kHexadecimal = 16;
  std::uint64_t session = 0;
  const std::string digest = sha256_hex(text);
  std::from_chars(digest.data(), digest.data() + kDigits, session, kHexadecimal);
  return session;
}

std::optional<WireHeader> read_header(std::span<const std::byte> bytes, std::uint64_t session,
                                      std::size_t ranks, Rank self) {
  WireHeader header;
  if (bytes.size() != sizeof header) {
    return std::nullopt;
  }
  std::memcpy(&header, bytes.data(), sizeof header);
  if (header.session != session || header.source >= ranks || Rank(header.source) == self) {
    return std::nullopt;
  }
  return header;
}

std::uint32_t connection_id(Rank self, Rank peer, const std::string& own,
                            const std::string& others) {
  const std::string name = self < peer ? own + " " + others : others + " " + own;
  std::uint64_t hash = name.size();
  for (const char c : name) {
    hash = mix64(hash ^ static_cast<unsigned char>(c));
  }
  return static_cast<std::uint32_t>(hash) | 1U;
}

}  // namespace rackrail::runtime
