// What ranks say of those for whom they wait.
#include <catch2/catch.hpp>

#include "runtime/capi/late_notice.hpp"
#include "runtime/capi/stall_notice.hpp"

namespace rackrail::capi::notices_test {
namespace {

runtime::MemberStatus member(std::size_t rank, std::uint32_t step) {
  runtime::MemberStatus status;
  status.rank = Rank(rank);
  status.is_present = true;
  status.progress.step = step;
  return status;
}

}  // namespace

TEST_CASE("ranks that have not joined are named, a few of many") {
  CHECK(missing_ranks({member(0, 0), member(1, 0)}, 2).empty());
  CHECK(missing_ranks({member(0, 0), member(2, 0)}, 3) == "1 of 3 ranks has not come yet: 1");
  CHECK(missing_ranks({member(0, 0)}, 20) ==
        "19 of 20 ranks have not come yet: 1, 2, 3, 4, 5, 6, 7, 8, ...");
  // One without a rank, one that has left, and one that cannot be.
  runtime::MemberStatus left = member(1, 0);
  left.is_present = false;
  CHECK(missing_ranks({member(0, 0), {}, left, member(7, 0)}, 2) ==
        "1 of 2 ranks has not come yet: 1");
}

TEST_CASE("ranks that have begun fewer steps are named") {
  CHECK(ranks_behind({member(0, 5), member(1, 5)}, 5).empty());
  CHECK(ranks_behind({member(0, 6), member(1, 5)}, 5).empty());
  CHECK(ranks_behind({member(0, 5), member(1, 4)}, 5) == "rank 1");
  CHECK(ranks_behind({member(0, 5), member(1, 4), member(2, 0)}, 5) == "ranks 1, 2");
}

}  // namespace rackrail::capi::notices_test
