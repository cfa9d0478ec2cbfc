#include "runtime/nccl/early_pieces.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace rackrail::runtime {

std::optional<std::string> EarlyPieces::keep(Rank source, const SliceHeader& header,
                                             std::span<const std::byte> payload) {
  if (payload.size() > most_ - bytes_) {
    return fmt::format("rank {} is too far ahead: {} bytes wait for their buckets", source.value(),
                       bytes_);
  }
  if (has(header.bucket, header.transfer, header.step, header.slice)) {
    return fmt::format("rank {} sent piece {} of transfer {} once more", source.value(),
                       header.slice, header.transfer);
  }
  pieces_[{header.bucket, header.transfer, header.step}].push_back(
      {source, header, {payload.begin(), payload.end()}});
  bytes_ += payload.size();
  return std::nullopt;
}

bool EarlyPieces::has(std::uint32_t bucket, std::uint32_t transfer, std::uint32_t turn,
                      std::uint32_t number) const {
  const auto found = pieces_.find({bucket, transfer, turn});
  return found != pieces_.end() &&
         std::any_of(found->second.begin(), found->second.end(),
                     [&](const Piece& each) { return each.header.slice == number; });
}

std::vector<EarlyPieces::Piece> EarlyPieces::take(std::uint32_t bucket, std::uint32_t transfer,
                                                  std::uint32_t turn) {
  const auto found = pieces_.find({bucket, transfer, turn});
  if (found == pieces_.end()) {
    return {};
  }
  std::vector<Piece> taken = std::move(found->second);
  pieces_.erase(found);
  for (const Piece& each : taken) {
    bytes_ -= each.payload.size();
  }
  return taken;
}

}  // namespace rackrail::runtime
