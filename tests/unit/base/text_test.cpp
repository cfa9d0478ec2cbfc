#include "base/text.hpp"

#include <catch2/catch.hpp>

namespace rackrail::text_test {
namespace {

TEST_CASE("texts are the same in any case where they differ in English letters' case only") {
  CHECK(is_same_in_any_case("A100-sxm", "a100-SXM"));
  CHECK(is_same_in_any_case("", ""));
  CHECK_FALSE(is_same_in_any_case("A100", "A10"));
  CHECK_FALSE(is_same_in_any_case("A[", "A{"));
  CHECK(LessInAnyCase()("a", "B"));
  CHECK_FALSE(LessInAnyCase()("B", "a"));
}

TEST_CASE("the first line that is no UTF-8 is found") {
  CHECK_FALSE(first_line_not_utf8(""));
  CHECK_FALSE(first_line_not_utf8("a\nb"));
  CHECK_FALSE(first_line_not_utf8("\xc3\xa4 \xe2\x86\x92 \xf0\x9f\x98\x80"));
  CHECK(first_line_not_utf8("a\nhost\xff"
                            "0\n") == 2U);
  CHECK(first_line_not_utf8("\x80") == 1U);              // only what follows
  CHECK(first_line_not_utf8("\n\n\xe2\x86") == 3U);      // cut off
  CHECK(first_line_not_utf8("\xc0\xaf") == 1U);          // longer than it need be
  CHECK(first_line_not_utf8("\xed\xa0\x80") == 1U);      // half of a pair
  CHECK(first_line_not_utf8("\xf4\x90\x80\x80") == 1U);  // more than Unicode has
}

}  // namespace
}  // namespace rackrail::text_test
