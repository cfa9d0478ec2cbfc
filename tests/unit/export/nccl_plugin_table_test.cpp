#include <catch2/catch.hpp>

#include "export/nccl/plugin/table.hpp"

namespace rackrail::nccl_tuner {

namespace {

Question all_reduce_of(std::size_t bytes) {
  return {static_cast<int>(Function::kAllReduce), bytes, 2, 16, 1, 0};
}

}  // namespace

TEST_CASE("a table of NVIDIA's columns is read, with and without the last three", "[export]") {
  const Table table = parse_table(
      "# made for a test\n"
      "allreduce,0,65536,tree,ll128,8,2,16\n"
      "\n"
      " allgather , 0 , 100 , nvls_tree , simple , -1 , -1 , -1 , -1 , 1 \r\n"
      "allreduce,65537,18446744073709551615,nvls,simple,24,-1,-1,-1,-1,131072");
  REQUIRE(table.problem.empty());
  REQUIRE(table.rules.size() == 3);
  CHECK(table.rules[0].algorithm == Algorithm::kTree);
  CHECK(table.rules[0].protocol == Protocol::kLl128);
  CHECK(table.rules[0].channels == 8);
  CHECK(table.rules[0].registered == -1);
  CHECK(table.rules[1].function == Function::kAllGather);
  CHECK(table.rules[1].algorithm == Algorithm::kNvlsTree);
  CHECK(table.rules[1].registered == 1);
  CHECK(table.rules[2].most_bytes == ~std::uint64_t{0});
  CHECK(table.rules[2].chunk_bytes == 131072);
}

TEST_CASE("a line that cannot be read names itself and leaves no rule", "[export]") {
  const auto problem_of = [](const char* text) {
    const Table table = parse_table(text);
    CHECK(table.rules.empty());
    return table.problem;
  };
  CHECK(problem_of("allreduce,0,1,ring,ll,1,1,2\nallreduce,0,1,rings,ll,1,1,2") ==
        "line 2: 'rings' in column 4");
  CHECK(problem_of("all-reduce,0,1,ring,ll,1,1,2") == "line 1: 'all-reduce' in column 1");
  CHECK(problem_of("allreduce,0,64K,ring,ll,1,1,2") == "line 1: '64K' in column 3");
  CHECK(problem_of("allreduce,-1,64,ring,ll,1,1,2") == "line 1: '-1' in column 2");
  CHECK(problem_of("allreduce,0,1") == "line 1: 3 columns where 8 to 11 are expected");
  CHECK(problem_of("allreduce,0,1,ring,ll,1,1,2,3,4,5,6") ==
        "line 1: 12 columns where 8 to 11 are expected");
  CHECK(problem_of("allreduce,0,1,ring,ll,,1,2") == "line 1: '' in column 6");
}

TEST_CASE("a rule matches its sizes, hosts, ranks and buffers only", "[export]") {
  const Table table = parse_table("allreduce,100,200,ring,ll,1,2,16,1,0");
  REQUIRE(table.rules.size() == 1);
  const Rule& rule = table.rules.front();
  CHECK(matches(rule, all_reduce_of(100)));
  CHECK(matches(rule, all_reduce_of(200)));
  CHECK_FALSE(matches(rule, all_reduce_of(99)));
  CHECK_FALSE(matches(rule, all_reduce_of(201)));
  Question question = all_reduce_of(150);
  question.nodes = 4;
  CHECK_FALSE(matches(rule, question));
  question = all_reduce_of(150);
  question.ranks = 8;
  CHECK_FALSE(matches(rule, question));
  question = all_reduce_of(150);
  question.operations = 2;
  CHECK_FALSE(matches(rule, question));
  question = all_reduce_of(150);
  question.registered = 1;
  CHECK_FALSE(matches(rule, question));
  question = all_reduce_of(150);
  question.function = static_cast<int>(Function::kAllGather);
  CHECK_FALSE(matches(rule, question));
}

}  // namespace rackrail::nccl_tuner
