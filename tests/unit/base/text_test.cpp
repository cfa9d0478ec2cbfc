#include "base/text.hpp"

#include <catch2/catch.hpp>

namespace rackrail {
namespace {

TEST_CASE("texts are the same in any case where they differ in English letters' case only") {
  CHECK(is_same_in_any_case("A100-sxm", "a100-SXM"));
  CHECK(is_same_in_any_case("", ""));
  CHECK_FALSE(is_same_in_any_case("A100", "A10"));
  CHECK_FALSE(is_same_in_any_case("A[", "A{"));
  CHECK(LessInAnyCase()("a", "B"));
  CHECK_FALSE(LessInAnyCase()("B", "a"));
}

}  // namespace
}  // namespace rackrail
