#include "planner/tuning/codecs_to_try.hpp"

#include <catch2/catch.hpp>
#include <map>
#include <string>

#include "tests/support/clusters.hpp"

namespace rackrail::codecs_to_try_test {
namespace {

using plan::Codec;
using plan::CodecKind;

/// Of these errors those that are not given are the model's.
std::vector<CodecKind> tried(const topology::Topology& topology, double budget,
                             const std::map<CodecKind, double>& errors = {}) {
  std::vector<CodecKind> kinds;
  for (const Codec& codec : planner::codecs_to_try(topology, budget, [&](const Codec& one) {
         const auto found = errors.find(one.kind);
         return found != errors.end() ? found->second : plan::relative_error(one);
       })) {
    kinds.push_back(codec.kind);
  }
  return kinds;
}

using Kinds = std::vector<CodecKind>;

TEST_CASE("of codecs of one size the one that is most right is tried") {
  const topology::Topology topology = test::two_racks();
  CHECK(tried(topology, 0) == Kinds{CodecKind::kNone});
  CHECK(tried(topology, 0.001) == Kinds{CodecKind::kNone, CodecKind::kFp16});
  CHECK(tried(topology, 0.02) == Kinds{CodecKind::kNone, CodecKind::kFp16, CodecKind::kInt8Block});
  CHECK(tried(topology, 0.1) == Kinds{CodecKind::kNone, CodecKind::kFp16, CodecKind::kInt8Block});
}

TEST_CASE("what is dropped is no reason to drop more") {
  const topology::Topology topology = test::two_racks();
  CHECK(tried(topology, 1) == Kinds{CodecKind::kNone, CodecKind::kFp16, CodecKind::kInt8Block,
                                    CodecKind::kTopK, CodecKind::kRandomK});
}

TEST_CASE("BF16 and FP8 are tried where FP16 and 8-bit blocks are not right enough") {
  const topology::Topology topology = test::two_racks();
  CHECK(tried(topology, 0.02, {{CodecKind::kFp16, 1.0}}) ==
        Kinds{CodecKind::kNone, CodecKind::kBf16, CodecKind::kInt8Block});
  CHECK(tried(topology, 0.03, {{CodecKind::kInt8Block, 0.2}}) ==
        Kinds{CodecKind::kNone, CodecKind::kFp16, CodecKind::kFp8Block});
  // More right than FP16, but not fit for every hop: FP16 stays for what needs that.
  CHECK(tried(topology, 0.02, {{CodecKind::kFp16, 0.019}}) ==
        Kinds{CodecKind::kNone, CodecKind::kBf16, CodecKind::kInt8Block});
  CHECK(tried(topology, 0.02, {{CodecKind::kFp16, 0.019}, {CodecKind::kBf16, 0.019}}) ==
        Kinds{CodecKind::kNone, CodecKind::kFp16, CodecKind::kInt8Block});
}

TEST_CASE("a codec that is much quicker is tried beside one that is more right") {
  topology::Topology topology("two of unknown class");
  for (const char* name : {"a", "b"}) {
    topology.add_rank(topology.add_node({.name = name}));
  }
  topology::MeasuredProcessor processor;
  const Bandwidth usual(8'000'000'000);
  for (const Codec& codec : plan::all_codecs()) {
    processor.codecs[plan::to_string(codec)] = {usual, usual};
  }
  processor.reduce = usual;
  const auto with_fp8_at = [&](Bandwidth rate) {
    processor.codecs[plan::to_string(Codec{.kind = CodecKind::kFp8Block})] = {rate, rate};
    topology.set_measured_processor(processor);
    return tried(topology, 0.03);
  };
  CHECK(with_fp8_at(scaled(usual, 1.1)) ==
        Kinds{CodecKind::kNone, CodecKind::kFp16, CodecKind::kInt8Block});
  CHECK(with_fp8_at(scaled(usual, 1.5)) ==
        Kinds{CodecKind::kNone, CodecKind::kFp16, CodecKind::kInt8Block, CodecKind::kFp8Block});
}

}  // namespace
}  // namespace rackrail::codecs_to_try_test
