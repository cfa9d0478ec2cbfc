#include "sim/measured/inference.hpp"

#include <catch2/catch.hpp>

namespace rackrail::sim::measured::inference_test {

TEST_CASE("operations are told by the factor between busbw and algbw, redop and root", "[logs]") {
  for (const std::size_t ranks : {2, 3, 8, 16, 512}) {
    INFO(ranks);
    const double share = static_cast<double>(ranks - 1) / static_cast<double>(ranks);
    const auto of = [&](double factor, bool reduces, bool has_root, bool unchecked = false) {
      return infer({ranks, factor, reduces, has_root, unchecked}).operation;
    };
    CHECK(of(2 * share, true, false) == Operation::kAllReduce);
    CHECK(of(share, true, false) == Operation::kReduceScatter);
    CHECK(of(1, true, true) == Operation::kReduce);
    CHECK(of(share, false, false) == Operation::kAllGather);
    CHECK(of(share, false, false, true) == Operation::kAllToAll);
    CHECK(of(1, false, true) == Operation::kBroadcast);
    if (ranks <= 64) {
      CHECK(of(1, false, false) == Operation::kSendReceive);
      CHECK(of(share, false, true) == Operation::kUnknown);  // gather or scatter
    }
    CHECK(of(7, true, false) == Operation::kUnknown);
    CHECK(of(7, false, false) == Operation::kUnknown);
  }
  CHECK(infer({1, 0.0, true, false, false}).operation == Operation::kUnknown);
  CHECK(infer({8, std::nullopt, true, false, false}).operation == Operation::kUnknown);
}

}  // namespace rackrail::sim::measured::inference_test
