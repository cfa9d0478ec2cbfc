#include "runtime/ucx/sealed_address.hpp"

#include <algorithm>
#include <string>
#include <string_view>

#include "base/digest.hpp"

namespace rackrail::runtime {
namespace {

constexpr std::string_view kMark = "rackrail UCX 1\n";

/// What stands before the address.
std::string seal_of(std::span<const std::byte> address) {
  const auto* text = reinterpret_cast<const char*>(address.data());
  return std::string(kMark) + sha256_hex({text, address.size()});
}

}  // namespace

std::vector<std::byte> sealed_address(std::span<const std::byte> address) {
  const std::string seal = seal_of(address);
  const auto bytes = std::as_bytes(std::span(seal));
  std::vector<std::byte> result(bytes.begin(), bytes.end());
  result.insert(result.end(), address.begin(), address.end());
  return result;
}

std::optional<std::span<const std::byte>> opened_address(std::span<const std::byte> sealed) {
  const std::size_t size = seal_of({}).size();
  if (sealed.size() <= size) {
    return std::nullopt;
  }
  const std::span<const std::byte> address = sealed.subspan(size);
  const std::string seal = seal_of(address);
  const bool is_whole = std::ranges::equal(sealed.first(size), std::as_bytes(std::span(seal)));
  return is_whole ? std::optional(address) : std::nullopt;
}

}  // namespace rackrail::runtime
