#include "runtime/ucx/rail_offers.hpp"

#include <cstdint>
#include <cstring>

namespace rackrail::runtime {
namespace {

constexpr std::size_t kMostOffers = 256;
constexpr std::size_t kLongest = 64 << 10;

void put(std::vector<std::byte>& bytes, std::span<const std::byte> part) {
  const auto length = static_cast<std::uint32_t>(part.size());
  const auto prefix = std::as_bytes(std::span(&length, 1));
  bytes.insert(bytes.end(), prefix.begin(), prefix.end());
  bytes.insert(bytes.end(), part.begin(), part.end());
}

std::optional<std::span<const std::byte>> take(std::span<const std::byte>& bytes) {
  std::uint32_t length = 0;
  if (bytes.size() < sizeof length) {
    return std::nullopt;
  }
  std::memcpy(&length, bytes.data(), sizeof length);
  bytes = bytes.subspan(sizeof length);
  if (length > kLongest || length > bytes.size()) {
    return std::nullopt;
  }
  const std::span<const std::byte> part = bytes.first(length);
  bytes = bytes.subspan(length);
  return part;
}

}  // namespace

std::vector<std::byte> encode_offers(const RailOffers& offers) {
  std::vector<std::byte> bytes;
  for (const auto& [adapter, address] : offers) {
    put(bytes, std::as_bytes(std::span(adapter)));
    put(bytes, address);
  }
  return bytes;
}

std::optional<RailOffers> decode_offers(std::span<const std::byte> bytes) {
  RailOffers offers;
  while (!bytes.empty()) {
    const auto name = take(bytes);
    const auto address = name ? take(bytes) : std::nullopt;
    if (!address || offers.size() == kMostOffers) {
      return std::nullopt;
    }
    std::string adapter(name->size(), '\0');
    std::memcpy(adapter.data(), name->data(), name->size());
    offers[adapter].assign(address->begin(), address->end());
  }
  return offers;
}

}  // namespace rackrail::runtime
