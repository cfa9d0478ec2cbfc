#include "runtime/ucx/wire.hpp"

#include <cstring>

#include "base/random.hpp"

namespace rackrail::runtime {

std::uint64_t session_of(std::span<const std::vector<std::byte>> addresses) {
  std::uint64_t hash = addresses.size();
  for (const std::vector<std::byte>& address : addresses) {
    hash = mix64(hash ^ address.size());
    for (const std::byte byte : address) {
      hash = mix64(hash ^ static_cast<std::uint64_t>(byte));
    }
  }
  return hash;
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
