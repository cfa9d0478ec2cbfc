#include <algorithm>
#include <catch2/catch.hpp>

#include "base/error.hpp"
#include "plan/codecs/arithmetic.hpp"
#include "plan/cost_model.hpp"
#include "plan/shaped_codec.hpp"
#include "plan/workload.hpp"

namespace rackrail::plan::low_rank_test {
namespace {

Workload three_tensors() {
  Workload workload;
  workload.name = "three";
  workload.tensors = {
      {.name = "wide", .elements = 1000 * 400, .shape = MatrixShape{1000, 400}},
      {.name = "narrow", .elements = 100'000 * 2, .shape = MatrixShape{100'000, 2}},
      {.name = "unknown", .elements = 100'000},
      {.name = "bias", .elements = 100, .shape = MatrixShape{10, 10}},  // protected
  };
  return workload;
}

}  // namespace

TEST_CASE("low rank sends factors of matrices, and the rest in full") {
  const FactorSize size = factor_size(three_tensors(), 4);
  CHECK(size.matrices == 1);  // four columns for two are no gain
  CHECK(size.tensors == 3);
  CHECK(size.elements == 700'000);
  CHECK(size.sent == 4 * 1400 + 200'000 + 100'000);
  const Codec codec = resolved_for(three_tensors(), parse_codec("lowrank:rank=4"));
  CHECK(codec.density == Approx(305'600.0 / 700'000));
  CHECK(encoded_size(codec, 700'000) == Bytes(4 * 305'600));
  CHECK(parse_codec(to_string(codec)) == codec);
  CHECK(resolved_for(three_tensors(), parse_codec("topk")) == parse_codec("topk"));

  Workload shapeless = three_tensors();
  for (GradientTensor& tensor : shapeless.tensors) {
    tensor.shape.reset();
  }
  CHECK(resolved_for(shapeless, parse_codec("lowrank")) == Codec{});
}

TEST_CASE("what low rank costs grows with its rank, once that outweighs reading the matrix") {
  const auto effort = [](const char* text) { return codec_effort(parse_codec(text)); };
  CHECK(effort("lowrank:rank=4").encode == 1);
  CHECK(effort("lowrank:rank=8").encode == 1);
  // 2·256 operations in each of the two products, 12.5 of them in the time of a byte.
  CHECK(effort("lowrank:rank=256").encode == Approx((12 + 2 * 512 / 12.5) / (12 + 8)));
  CHECK(effort("lowrank:rank=256").decode == Approx(512 / 12.5 / 8));
}

TEST_CASE("the error of low rank is what its share of a random matrix leaves out, or as measured") {
  Codec codec = parse_codec("lowrank:rank=2");
  codec.density = 0.19;
  CHECK(relative_error(codec) == Approx(0.9));
  Workload workload = three_tensors();
  workload.codec_errors["lowrank:rank=2"] = 0.5;
  CHECK(workload.codec_error(codec) == 0.5);
  workload.codec_errors[to_string(codec)] = 0.4;
  CHECK(workload.codec_error(codec) == 0.4);
}

TEST_CASE("nothing executes low rank, and that is said") {
  const Codec codec = parse_codec("lowrank:rank=3");
  CHECK_FALSE(codec.is_executable());
  CHECK(std::ranges::count(all_codecs(), codec.kind, &Codec::kind) == 0);
  CHECK(std::ranges::count(described_codecs(), codec.kind, &Codec::kind) == 1);
  CHECK_THROWS_WITH(make_codec_arithmetic(codec),
                    "codec lowrank:rank=3 is planned and simulated only: nothing executes it");
  CHECK_THROWS_AS(parse_codec("lowrank:rank=0"), ConfigError);
  CHECK_THROWS_AS(parse_codec("lowrank:rank=4,density=0"), ConfigError);
}

}  // namespace rackrail::plan::low_rank_test
