// What comes over the wire of UCX's transport, whoever sent it.
#include "runtime/ucx/wire.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstring>

#include "runtime/ucx/rail_offers.hpp"
#include "runtime/ucx/sealed_address.hpp"

namespace rackrail::runtime::wire_test {
namespace {

std::vector<std::byte> bytes_of(const WireHeader& header) {
  std::vector<std::byte> bytes(sizeof header);
  std::memcpy(bytes.data(), &header, sizeof header);
  return bytes;
}

std::vector<std::byte> bytes_of(const std::vector<int>& values) {
  std::vector<std::byte> bytes;
  for (const int value : values) {
    bytes.push_back(static_cast<std::byte>(value));
  }
  return bytes;
}

}  // namespace

TEST_CASE("a header counts where it is whole, of this session, and another rank's") {
  constexpr std::uint64_t kSession = 7;
  const Rank self(std::size_t{1});
  WireHeader header{.session = kSession, .source = 2, .connection = 5, .slice = {.transfer = 9}};
  const auto read = [&] { return read_header(bytes_of(header), kSession, 3, self); };
  REQUIRE(read());
  CHECK(read()->source == 2);
  CHECK(read()->slice.transfer == 9);
  std::vector<std::byte> cut = bytes_of(header);
  cut.pop_back();
  CHECK_FALSE(read_header(cut, kSession, 3, self));
  CHECK_FALSE(read_header({}, kSession, 3, self));
  header.source = 1;
  CHECK_FALSE(read());
  header.source = 3;
  CHECK_FALSE(read());
  header.source = 0;
  header.session = 8;
  CHECK_FALSE(read());
}

TEST_CASE("offers come back as they were, and what is no offers is told") {
  const RailOffers offers{{"nic0", bytes_of(std::vector<int>{1, 2})}, {"nic1", {}}};
  CHECK(decode_offers(encode_offers(offers)) == offers);
  CHECK(decode_offers({}) == RailOffers());
  // A name of one byte, and an address of more than there are, or of none.
  CHECK_FALSE(decode_offers(bytes_of(std::vector<int>{1, 0, 0, 0, 'n', 2, 0, 0, 0, 1})));
  CHECK_FALSE(decode_offers(bytes_of(std::vector<int>{1, 0, 0, 0, 'n', 0, 0})));
  CHECK_FALSE(decode_offers(bytes_of(std::vector<int>{255, 255, 255, 255})));
}

TEST_CASE("a session is another one with another key, or other addresses") {
  const std::vector<std::vector<std::byte>> both{bytes_of(std::vector<int>{1, 2}),
                                                 bytes_of(std::vector<int>{3})};
  const std::vector<std::vector<std::byte>> shifted{bytes_of(std::vector<int>{1}),
                                                    bytes_of(std::vector<int>{2, 3})};
  CHECK(session_of(7, both) == session_of(7, both));
  CHECK(session_of(7, both) != session_of(8, both));
  CHECK(session_of(7, both) != session_of(7, shifted));
  CHECK(session_of(7, both) != session_of(7, {}));
}

TEST_CASE("an address that is damaged anywhere is told from a whole one") {
  const std::vector<std::byte> address = bytes_of(std::vector<int>{0, 1, 2, 255});
  const std::vector<std::byte> sealed = sealed_address(address);
  const auto opened = opened_address(sealed);
  REQUIRE(opened);
  CHECK(std::ranges::equal(*opened, address));
  for (std::size_t i = 0; i < sealed.size(); ++i) {
    std::vector<std::byte> damaged = sealed;
    damaged[i] ^= std::byte{1};
    CHECK_FALSE(opened_address(damaged));
    CHECK_FALSE(opened_address(std::span(sealed).first(i)));
  }
  std::vector<std::byte> longer = sealed;
  longer.push_back({});
  CHECK_FALSE(opened_address(longer));
  CHECK_FALSE(opened_address(address));
}

}  // namespace rackrail::runtime::wire_test
