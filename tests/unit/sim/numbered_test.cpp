#include "sim/numbered.hpp"

#include <catch2/catch.hpp>
#include <iterator>
#include <random>
#include <set>
#include <vector>

namespace rackrail::sim::numbered_test {
namespace {

TEST_CASE("numbered entries are there until they are dropped, in whatever order") {
  Numbered<std::uint32_t> entries;
  std::set<std::uint32_t> there;
  std::mt19937 random(GENERATE(1U, 2U, 3U));
  for (int i = 0; i < 10'000; ++i) {
    const std::uint32_t number = entries.end();
    CHECK(entries.add() == number);
    entries[number] = number;
    there.insert(number);
    while (there.size() > 20) {  // one of the oldest
      auto oldest = there.begin();
      std::advance(oldest, random() % 5);
      const bool stays = *oldest % 1000 == 0;
      if (stays) {
        entries.keep(*oldest);
      } else {
        entries.drop(*oldest);
      }
      there.erase(oldest);
    }
  }
  for (std::uint32_t kept = 0; kept < 10'000; kept += 1000) {
    CHECK(entries[kept] == kept);
    there.insert(kept);
  }
  const std::vector<std::uint32_t> numbers = entries.numbers();
  CHECK(std::set<std::uint32_t>(numbers.begin(), numbers.end()) == there);
  CHECK(numbers.size() == there.size());
  for (const std::uint32_t number : there) {
    CHECK(entries[number] == number);
  }
}

}  // namespace
}  // namespace rackrail::sim::numbered_test
