// A UCX address with what shows that it is whole. UCX follows an address without checking it, so
// that a damaged one ends the process that opens an endpoint with it.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

namespace rackrail::runtime {

/// The address behind a mark and its digest (SHA-256).
std::vector<std::byte> sealed_address(std::span<const std::byte> address);
/// The address in it; nothing where one byte is another, is missing or is too many. Who knows the
/// form can seal anything: this is no protection against a member of the job.
std::optional<std::span<const std::byte>> opened_address(std::span<const std::byte> sealed);

}  // namespace rackrail::runtime
