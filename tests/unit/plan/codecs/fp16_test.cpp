#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <random>
#include <vector>

#include "plan/codec.hpp"
#include "tests/unit/plan/codecs/sample.hpp"

namespace rackrail::plan::fp16_test {
namespace {

TEST_CASE("the error of FP16 is that of rounding to 11 bits") {
  const Codec fp16{.kind = CodecKind::kFp16};
  CHECK(relative_error(fp16) == Approx(test::error_of_rounding(11, 7)).epsilon(0.01));
  CHECK(relative_error(fp16) == Approx(2.1e-4).epsilon(0.02));
}

}  // namespace
}  // namespace rackrail::plan::fp16_test
