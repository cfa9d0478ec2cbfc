// Pieces of messages that came before what they belong to had begun here, in bounded memory.
//
// Why a bound is enough, and nobody has to wait. In a sum over all ranks, who has ended a bucket's
// turn has had something of every rank's in it. So a peer's piece of turn t says that this rank has
// given its share of turn t − 1, and has thereby ended the bucket's turn t − 2: of each piece there
// are at most the two of turns t − 1 and t to keep. Peers that follow the plan stay within twice
// what they send in a turn of all buckets; the bound is twice that and a margin, as the executor on
// processors has it, and whoever goes beyond it follows another plan. To hold such a peer back
// instead would need no less memory, since UCX receives into memory of its own what nobody takes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "base/ids.hpp"
#include "runtime/transport.hpp"

namespace rackrail::runtime {

class EarlyPieces {
 public:
  struct Piece {
    Rank source;
    SliceHeader header;
    std::vector<std::byte> payload;
  };

  /// Of all that peers send to this rank once: added up over the buckets.
  void expect(std::size_t bytes_per_turn) { most_ += 4 * bytes_per_turn; }

  /// Copies the payload, unless the same piece is there already or there is too much: then says so.
  [[nodiscard]] std::optional<std::string> keep(Rank source, const SliceHeader& header,
                                                std::span<const std::byte> payload);
  /// What is there of a transfer in one turn (SliceHeader::step), which is forgotten.
  std::vector<Piece> take(std::uint32_t bucket, std::uint32_t transfer, std::uint32_t turn);

  /// Whether the piece of this number (SliceHeader::slice) is there.
  bool has(std::uint32_t bucket, std::uint32_t transfer, std::uint32_t turn,
           std::uint32_t number) const;

  std::size_t bytes() const { return bytes_; }
  /// What fits at most.
  std::size_t most_bytes() const { return most_; }

 private:
  using Key = std::tuple<std::uint32_t, std::uint32_t, std::uint32_t>;

  std::map<Key, std::vector<Piece>> pieces_;
  std::size_t bytes_ = 0;
  std::size_t most_ = std::size_t{16} << 20;
};

}  // namespace rackrail::runtime
