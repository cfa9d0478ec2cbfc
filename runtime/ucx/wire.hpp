// What the messages of UCX's transport carry, and the numbers by which ranks know theirs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "base/ids.hpp"
#include "runtime/transport.hpp"

namespace rackrail::runtime {

inline constexpr unsigned kSliceMessage = 0;
inline constexpr unsigned kHelloMessage = 1;
inline constexpr unsigned kGoodbyeMessage = 2;
inline constexpr unsigned kOfferMessage = 3;

struct WireHeader {
  std::uint64_t session = 0;  ///< session_of()
  std::uint32_t source = 0;
  std::uint32_t connection = 0;  ///< connection_id()
  SliceHeader slice;             ///< of a goodbye, its `transfer` is how many there are
};
static_assert(std::is_trivially_copyable_v<WireHeader> && sizeof(WireHeader) == 64);

/// The same on all ranks, and different for every job: addresses contain process and socket
/// numbers. Nobody without the job's key (Transport::set_key) can say it: it comes from a digest of
/// key and addresses (SHA-256).
std::uint64_t session_of(std::uint64_t key, std::span<const std::vector<std::byte>> addresses);

/// What somebody sent as a header, whoever it was: nothing unless it is one of this session, of one
/// of so many ranks, and of another than `self`.
std::optional<WireHeader> read_header(std::span<const std::byte> bytes, std::uint64_t session,
                                      std::size_t ranks, Rank self);

/// Of the rail between adapters of two ranks: the same at both ends, and 0 for no other connection
/// than the first.
std::uint32_t connection_id(Rank self, Rank peer, const std::string& own,
                            const std::string& others);

}  // namespace rackrail::runtime
