#include "runtime/ucx/rail_offers.hpp"

#include "tests/fuzz/fuzz.hpp"

namespace {

std::vector<std::byte> address_of(std::string_view text) {
  const auto bytes = rackrail::fuzz::bytes_of(text);
  return {bytes.begin(), bytes.end()};
}

}  // namespace

std::vector<std::string> rackrail::fuzz::seeds() {
  std::vector<std::string> texts;
  for (const runtime::RailOffers& offers :
       {runtime::RailOffers{{"nic0", address_of("address")}, {"nic1", {}}},
        runtime::RailOffers{{"", address_of(std::string(300, 'x'))}}}) {
    const std::vector<std::byte> bytes = runtime::encode_offers(offers);
    texts.emplace_back(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }
  return texts;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace rackrail;
  const auto offers = runtime::decode_offers(fuzz::bytes_of(fuzz::text_of(data, size)));
  if (offers) {
    const auto again = runtime::decode_offers(runtime::encode_offers(*offers));
    fuzz::require(again && *again == *offers, "other offers when written and read again");
  }
  return 0;
}
