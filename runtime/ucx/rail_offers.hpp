// What ranks tell each other of their adapters: the address of a worker of each.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace rackrail::runtime {

/// Address of the worker that sends and receives by an adapter, by the adapter's name in the plan;
/// empty: it is not to be found there.
using RailOffers = std::map<std::string, std::vector<std::byte>>;

std::vector<std::byte> encode_offers(const RailOffers& offers);
/// Nothing for bytes that encode_offers() does not give: of more than 256 adapters, or of names or
/// addresses above 64 KiB.
std::optional<RailOffers> decode_offers(std::span<const std::byte> bytes);

}  // namespace rackrail::runtime
