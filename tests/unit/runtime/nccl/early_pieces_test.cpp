#include "runtime/nccl/early_pieces.hpp"

#include <catch2/catch.hpp>

namespace rackrail::runtime::early_pieces_test {
namespace {

SliceHeader piece(std::uint32_t turn, std::uint32_t transfer, std::uint32_t number) {
  return {.step = turn, .bucket = 1, .transfer = transfer, .slice = number};
}

TEST_CASE("early pieces: what is kept is given back once, by transfer and turn") {
  EarlyPieces early;
  const std::vector<std::byte> payload(100, std::byte{7});
  CHECK_FALSE(early.keep(Rank(2), piece(5, 3, 0), payload));
  CHECK_FALSE(early.keep(Rank(2), piece(5, 3, 1), payload));
  CHECK_FALSE(early.keep(Rank(2), piece(6, 3, 0), payload));
  CHECK_FALSE(early.keep(Rank(4), piece(5, 9, 0), payload));
  CHECK(early.bytes() == 400);
  CHECK(early.take(1, 3, 4).empty());
  CHECK(early.has(1, 3, 5, 1));
  CHECK_FALSE(early.has(1, 3, 5, 2));
  CHECK_FALSE(early.has(1, 9, 6, 0));
  const auto taken = early.take(1, 3, 5);
  REQUIRE(taken.size() == 2);
  CHECK(taken[0].source == Rank(2));
  CHECK(taken[1].header.slice == 1);
  CHECK(taken[1].payload == payload);
  CHECK(early.take(1, 3, 5).empty());
  CHECK(early.bytes() == 200);
}

TEST_CASE("early pieces: one that is there already is refused") {
  EarlyPieces early;
  const std::vector<std::byte> payload(1);
  CHECK_FALSE(early.keep(Rank(2), piece(5, 3, 1), payload));
  CHECK(early.keep(Rank(2), piece(5, 3, 1), payload) ==
        "rank 2 sent piece 1 of transfer 3 once more");
  CHECK(early.bytes() == 1);
}

TEST_CASE("early pieces: a flood is refused, what peers may be ahead is not") {
  EarlyPieces early;
  constexpr std::size_t kPerTurn = std::size_t{16} << 20;
  early.expect(kPerTurn);
  CHECK(early.most_bytes() == 5 * kPerTurn);
  const std::vector<std::byte> payload(kPerTurn);
  std::uint32_t turn = 0;
  while (!early.keep(Rank(1), piece(++turn, 0, 0), payload)) {
    REQUIRE(turn < 100);
  }
  CHECK(turn == 6);
  CHECK(early.bytes() <= early.most_bytes());
  CHECK(early.keep(Rank(1), piece(turn, 0, 0), payload) ==
        "rank 1 is too far ahead: 83886080 bytes wait for their buckets");
  // The next ones fit once others have been taken.
  CHECK(early.take(1, 0, 1).size() == 1);
  CHECK_FALSE(early.keep(Rank(1), piece(turn, 0, 0), payload));
}

}  // namespace
}  // namespace rackrail::runtime::early_pieces_test
