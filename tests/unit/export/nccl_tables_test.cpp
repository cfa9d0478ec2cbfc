#include <algorithm>
#include <catch2/catch.hpp>
#include <sstream>
#include <string>
#include <tuple>
#include <vector>

#include "base/csv.hpp"
#include "export/nccl/plugin/table.hpp"
#include "export/nccl/tuner_tables.hpp"

namespace rackrail::exporting::nccl {

namespace {

using sim::nccl::Algorithm;
using sim::nccl::Protocol;

SizeTuning tuned(Bytes size, Setting usual, Setting chosen) {
  SizeTuning result;
  result.size = size;
  result.usual = usual;
  result.usual_time = 100_us;
  result.chosen = chosen;
  result.time = usual == chosen ? 100_us : 50_us;
  result.one_way = size < 1_MiB ? Protocol::kLl : Protocol::kSimple;
  return result;
}

/// Two hosts of eight GPUs that share a switch: NCCL is right at 1 KiB and 4 MiB, wrong between.
std::vector<ShapeTuning> shapes() {
  const Setting ring{Algorithm::kRing, Protocol::kLl, 24, Bytes(0)};
  const Setting tree{Algorithm::kTree, Protocol::kLl128, 24, Bytes(0)};
  const Setting nvls{Algorithm::kNvlsTree, Protocol::kSimple, 16, 128_KiB};
  ShapeTuning one{2, 8, {}, true, 24, 16};
  one.sizes = {tuned(1_KiB, ring, ring), tuned(4_KiB, ring, tree), tuned(16_KiB, ring, tree),
               tuned(64_KiB, ring, nvls), tuned(4_MiB, nvls, nvls)};
  return {one};
}

/// What the plugin's own parser makes of a table.
std::vector<nccl_tuner::Rule> rules_of(const std::string& csv) {
  const nccl_tuner::Table table = nccl_tuner::parse_table(csv);
  CHECK(table.problem.empty());
  return table.rules;
}

}  // namespace

TEST_CASE("rows that override are where another choice is worth it, neighbours together",
          "[export]") {
  const std::vector<TableRow> rows = overriding_rows(shapes());
  REQUIRE(rows.size() == 2);
  CHECK(rows[0].setting.algorithm == Algorithm::kTree);
  CHECK(rows[0].least_bytes == 2049);  // above the geometric mean of 1 and 4 KiB
  CHECK(rows[0].most_bytes == 32768);  // that of 16 and 64 KiB
  CHECK(rows[1].setting.algorithm == Algorithm::kNvlsTree);
  CHECK(rows[1].least_bytes == 32769);
  CHECK(rows[1].most_bytes == 524288);
  CHECK(rows[1].nodes == 2);
  CHECK(rows[1].ranks == 16);
}

TEST_CASE("the plugin reads back what is written for it", "[export]") {
  const std::vector<nccl_tuner::Rule> rules =
      rules_of(to_nccl_csv(overriding_rows(shapes()), "test", true));
  REQUIRE(rules.size() == 2);
  CHECK(rules[0].algorithm == nccl_tuner::Algorithm::kTree);
  CHECK(rules[0].protocol == nccl_tuner::Protocol::kLl128);
  CHECK(rules[0].channels == 24);
  CHECK(rules[1].algorithm == nccl_tuner::Algorithm::kNvlsTree);
  CHECK(rules[1].chunk_bytes == 128 * 1024);
}

TEST_CASE("a table for NVIDIA's example plugin covers every size of every collective", "[export]") {
  const std::string csv = to_nccl_csv(covering_rows(shapes()), "test", false);
  std::istringstream lines(csv);
  for (std::string line; std::getline(lines, line);) {
    CHECK(line.size() < 255);
    if (line.front() != '#') {
      CHECK(csv_cells(line).size() == 10);
    }
  }
  const std::vector<nccl_tuner::Rule> rules = rules_of(csv);
  for (int function = 0; function < 5; ++function) {
    for (const std::size_t bytes : {0UL, 1UL, 2048UL, 2049UL, 524288UL, 524289UL, 1UL << 40U}) {
      for (const auto& [nodes, ranks, registered] :
           {std::tuple(2UL, 16UL, 0), {2UL, 16UL, 1}, {3UL, 5UL, 0}, {1UL, 2UL, 1}}) {
        const nccl_tuner::Question question{function, bytes, nodes, ranks, 1, registered};
        const auto rule = std::ranges::find_if(
            rules, [&](const nccl_tuner::Rule& one) { return matches(one, question); });
        REQUIRE(rule != rules.end());
        CHECK(rule->channels > 0);
      }
    }
  }
}

TEST_CASE("registered buffers on one host go by NVLS where there is one", "[export]") {
  std::vector<ShapeTuning> one_host = shapes();
  one_host.front().nodes = 1;
  const std::vector<nccl_tuner::Rule> rules =
      rules_of(to_nccl_csv(covering_rows(one_host), "test", false));
  for (const int registered : {0, 1}) {
    const nccl_tuner::Question question{
        static_cast<int>(nccl_tuner::Function::kAllGather), 1 << 20, 1, 8, 1, registered};
    const auto rule = std::ranges::find_if(
        rules, [&](const nccl_tuner::Rule& one) { return matches(one, question); });
    REQUIRE(rule != rules.end());
    CHECK(rule->algorithm ==
          (registered == 1 ? nccl_tuner::Algorithm::kNvls : nccl_tuner::Algorithm::kRing));
  }
}

TEST_CASE("a table for NCCLX has intervals of bytes per rank, the last one open", "[export]") {
  std::vector<ShapeTuning> open = shapes();
  open.front().sizes.pop_back();
  CHECK(to_ncclx_csv(overriding_rows(open), "test") ==
        "# test\n"
        "# collective,bytesPerRank,algorithm,protocol,channels,nNodes,nLocalRanks,numPipeOps,"
        "regBuff,chunkSize\n"
        "allreduce,[129,2048],tree,ll128,24,2,8,-1,-1,0\n"
        "allreduce,[2049,),nvls_tree,simple,16,2,8,-1,-1,131072\n");
}

TEST_CASE("AMD's architectures by device class", "[export]") {
  CHECK(gfx_architecture("MI300X") == "gfx942");
  CHECK(gfx_architecture("mi250x") == "gfx90a");
  CHECK(gfx_architecture("A100").empty());
  CHECK(gfx_architecture("").empty());
}

}  // namespace rackrail::exporting::nccl
