#include "plan/codec.hpp"

#include <catch2/catch.hpp>
#include <cmath>
#include <set>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "plan/codec_name.hpp"

namespace rackrail::plan::codec_test {
namespace {

Codec int8(std::uint32_t block) { return {.kind = CodecKind::kInt8Block, .block = block}; }
Codec top_k(double density) { return {.kind = CodecKind::kTopK, .density = density}; }
const Codec kFp16Codec{.kind = CodecKind::kFp16};

TEST_CASE("encoded sizes follow the wire formats") {
  CHECK(encoded_size(Codec{}, 1000) == Bytes(4000));
  CHECK(encoded_size(kFp16Codec, 1001) == Bytes(2002));
  CHECK(encoded_size(int8(256), 256) == Bytes(260));
  CHECK(encoded_size(int8(256), 257) == Bytes(257 + 8));
  CHECK(encoded_size(int8(1), 3) == Bytes(15));
  CHECK(encoded_size(top_k(0.01), 1000) == Bytes(80));
  CHECK(encoded_size(top_k(0.01), 1) == Bytes(8));
  const auto size_of = [](const char* text, std::int64_t n) {
    return encoded_size(parse_codec(text), n);
  };
  CHECK(size_of("bf16", 1001) == Bytes(2002));
  CHECK(size_of("fp8", 257) == Bytes(257 + 8));
  CHECK(size_of("fp8:block=64", 64) == Bytes(68));
  CHECK(size_of("randomk", 1000) == Bytes(8 + 40));
  CHECK(size_of("randomk", 1) == Bytes(8 + 4));
  for (const Codec& codec : all_codecs()) {
    CHECK(encoded_size(codec, 0) == Bytes(0));
  }
}

TEST_CASE("top-k keeps the stated share, at least one element and at most all") {
  CHECK(kept_elements(top_k(0.01), 0) == 0);
  CHECK(kept_elements(top_k(0.01), 1) == 1);
  CHECK(kept_elements(top_k(0.01), 100) == 1);
  CHECK(kept_elements(top_k(0.01), 101) == 2);
  CHECK(kept_elements(top_k(1), 7) == 7);
  // 0.07 · 100 and 0.07 · 300 round to above 7 and below 21 in binary.
  CHECK(kept_elements(top_k(0.07), 100) == 7);
  CHECK(kept_elements(top_k(0.07), 300) == 21);
}

TEST_CASE("codecs are equal when they produce the same bytes") {
  CHECK(Codec{.kind = CodecKind::kFp16, .block = 1} == Codec{.kind = CodecKind::kFp16, .block = 2});
  CHECK_FALSE(int8(128) == int8(256));
  CHECK(Codec{.kind = CodecKind::kInt8Block, .density = 0.5} == int8(256));
  CHECK_FALSE(top_k(0.1) == top_k(0.2));
  CHECK_FALSE(int8(256) == kFp16Codec);
}

TEST_CASE("codecs read back from their text") {
  for (const Codec& codec : {Codec{}, kFp16Codec, int8(256), int8(128), int8(1), top_k(0.01),
                             top_k(0.001), top_k(1), top_k(1.0 / 3)}) {
    CAPTURE(to_string(codec));
    CHECK(parse_codec(to_string(codec)) == codec);
  }
  CHECK(to_string(int8(128)) == "int8:block=128");
  CHECK(to_string(top_k(0.001)) == "topk:density=0.001");
}

TEST_CASE("a codec that does not exist is refused with what does") {
  for (const char* text : {"",
                           "fp4",
                           "fp16:",
                           "bf16:block=1",
                           "int8:block=1,block=2",
                           "int8:block=1,",
                           "int8,block=1",
                           "fp8:density=0.1",
                           "fp8:block=0",
                           "randomk:density=0",
                           "randomk:block=1",
                           "int8:",
                           "int8:block=",
                           "int8:block=0",
                           "int8:block=-1",
                           "int8:block=2000000",
                           "int8:block=12x",
                           "int8:density=1",
                           "topk:density=0",
                           "topk:density=1.5",
                           "topk:density=nan",
                           "topk:density=inf",
                           " none"}) {
    CAPTURE(text);
    CHECK_THROWS_AS(parse_codec(text), ConfigError);
  }
  CHECK_THROWS_WITH(parse_codec("fp4"),
                    Catch::Contains("'fp4'") && Catch::Contains("fp16, ") &&
                        Catch::Contains("int8[:block=<1..1048576>], ") &&
                        Catch::Contains(" or randomk[:density=<above 0, up to 1>]"));
}

TEST_CASE("people read FP32") {
  CHECK(display_name(Codec{}) == "fp32");
  CHECK(parse_codec("fp32") == Codec{});
  CHECK(display_name(int8(128)) == "int8:block=128");
}

TEST_CASE("every kind of codec is there once and reads by its short name") {
  std::set<CodecKind> kinds;
  for (const Codec& codec : all_codecs()) {
    kinds.insert(codec.kind);
    CHECK(to_string(codec).find(':') == std::string::npos);
    CHECK(parse_codec(to_string(codec)) == codec);
  }
  CHECK(kinds.size() == kCodecKinds);
  CHECK(all_codecs().size() == kCodecKinds);
}

TEST_CASE("the planner tries none, FP16, 8-bit blocks and top-k unless it is told otherwise") {
  std::vector<std::string> names;
  for (const Codec& codec : known_codecs()) {
    names.push_back(to_string(codec));
  }
  CHECK(names == std::vector<std::string>{"none", "fp16", "int8", "topk"});
}

TEST_CASE("only codecs that round to 16 bits may be applied at every hop") {
  std::set<std::string> survive;
  for (const Codec& codec : all_codecs()) {
    if (codec.survives_many_hops()) {
      survive.insert(to_string(codec));
    }
    // Every hop encodes a sum that only exists there, so there is no error to feed back.
    CHECK(codec.survives_many_hops() != codec.has_error_feedback());
    CHECK((codec.is_elementwise() || codec.has_error_feedback()));
  }
  CHECK(survive == std::set<std::string>{"none", "fp16", "bf16"});
}

}  // namespace
}  // namespace rackrail::plan::codec_test
