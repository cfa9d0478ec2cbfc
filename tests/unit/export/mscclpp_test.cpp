// Schedules of the planner as execution plans of MSCCL++: right on numbers, without races and
// within the executor's limits, by an interpreter of the format.
#include <catch2/catch.hpp>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "export/exporter.hpp"
#include "plan/mscclpp/from_graph.hpp"
#include "planner/algorithms/schedule_family.hpp"
#include "planner/groups/many_ranks.hpp"
#include "planner/tuning/collective_forms.hpp"
#include "tests/support/clusters.hpp"
#include "tests/support/mscclpp_interpreter.hpp"
#include "topology/queries.hpp"

namespace rackrail::exporting {

namespace {

using plan::Collective;
using plan::TransferGraph;

std::vector<std::uint32_t> hosts_of(std::size_t ranks, std::size_t ranks_per_host) {
  std::vector<std::uint32_t> hosts;
  for (std::size_t r = 0; r < ranks; ++r) {
    hosts.push_back(static_cast<std::uint32_t>(r / ranks_per_host));
  }
  return hosts;
}

std::string written(const TransferGraph& graph, std::size_t ranks_per_host) {
  return plan::mscclpp::to_json(
      plan::mscclpp::from_graph(graph, hosts_of(graph.rank_count(), ranks_per_host), "schedule"));
}

/// Each rank adds up a chunk and sends the sum to all.
TransferGraph all_pairs(int ranks) {
  TransferGraph graph("all pairs", Collective::kAllReduce, static_cast<std::size_t>(ranks),
                      std::vector<std::uint32_t>(static_cast<std::size_t>(ranks), 1));
  for (int owner = 0; owner < ranks; ++owner) {
    plan::Transfer transfer{.chunk_begin = static_cast<std::uint32_t>(owner)};
    std::vector<TransferId> sums;
    for (const auto op : {plan::TransferOp::kReduce, plan::TransferOp::kCopy}) {
      transfer.op = op;
      const std::vector<TransferId> before = sums;
      for (int other = 0; other < ranks; ++other) {
        if (other != owner) {
          const bool is_sum = op == plan::TransferOp::kReduce;
          transfer.src = Rank(is_sum ? other : owner);
          transfer.dst = Rank(is_sum ? owner : other);
          sums.push_back(graph.add_transfer(transfer, before));
        }
      }
    }
  }
  return graph;
}

/// By family: what is wrong with its first form for the collective, or why it is not written.
struct Families {
  std::map<std::string, std::string> run;
  std::map<std::string, std::string> refused;
};

Families families_of(const topology::Topology& cluster, Collective what) {
  Families result;
  topology::Router router = planner::make_router(cluster);
  for (const auto& family : planner::schedule_families()) {
    const planner::TierCodecs codecs{};
    if (family->refusal(cluster, codecs)) {
      continue;
    }
    const auto forms = planner::collective_forms(*family, what, cluster, router, codecs);
    if (forms.empty()) {
      continue;
    }
    std::string text;
    try {
      text = written(forms.front().graph(), 8);
    } catch (const ConfigError& error) {
      result.refused[std::string(family->name())] = error.what();
      continue;
    }
    // Seven units to a chunk divide by no number of slices.
    result.run[std::string(family->name())] = test::mscclpp_problem(text, 7);
  }
  return result;
}

/// Two GPUs that each add one half by reading the other's and write the sum to both, as a plan
/// for tests of the executor does; `end` is the last operation of both.
nlohmann::json pair_of_gpus(const nlohmann::json& end) {
  const nlohmann::json nop{{"name", "nop"}};
  const auto on_channel = [](const char* name) {
    return nlohmann::json{{"name", name}, {"channel_ids", {0}}, {"channel_type", "memory"}};
  };
  nlohmann::json plan{{"name", "pair"},
                      {"collective", "allreduce"},
                      {"protocol", "Simple"},
                      {"inplace", true},
                      {"gpus", nlohmann::json::array()}};
  for (int g = 0; g < 2; ++g) {
    const auto place = [&](const char* key, const nlohmann::json& buffer, int index) {
      return nlohmann::json{{key, buffer}, {"index", index}, {"size", 1}};
    };
    const nlohmann::json copy{{"name", "copy"},
                              {"src_buff", {place("type", "i", 1 - g)}},
                              {"dst_buff", {place("type", "s", 1 - g)}}};
    const nlohmann::json add{{"name", "rres"},
                             {"src_buff", {place("type", "i", g), place("buffer_id", 0, g)}},
                             {"dst_buff", {place("type", "i", g), place("buffer_id", 1, g)}},
                             {"channel_type", "memory"},
                             {"reduce_op", "sum"}};
    const nlohmann::json block{
        {"id", 0},
        {"ops",
         {copy, nop, on_channel("signal"), on_channel("wait"), nop, add, nop, on_channel("signal"),
          end}},
        {"channels", {{{"channel_type", "memory"}, {"channel_ids", {0}}}}},
        {"remote_buffer_refs",
         {{{"access_channel_type", "memory"}, {"remote_buffer_ids", {0, 1}}}}}};
    const nlohmann::json remote{
        {{"rank", 1 - g}, {"type", "s"}, {"access_channel_types", {"memory"}}},
        {{"rank", 1 - g}, {"type", "i"}, {"access_channel_types", {"memory"}}}};
    plan["gpus"].push_back({{"id", g},
                            {"input_chunks", 2},
                            {"output_chunks", 2},
                            {"scratch_chunks", 2},
                            {"threadblocks", {block}},
                            {"channels", {{{"channel_type", "memory"}, {"connected_to", {1 - g}}}}},
                            {"remote_buffers", remote},
                            {"semaphores", nlohmann::json::array()}});
  }
  return plan;
}

nlohmann::json wait_of_pair() {
  return {{"name", "wait"}, {"channel_ids", {0}}, {"channel_type", "memory"}};
}

}  // namespace

TEST_CASE("the interpreter of MSCCL++ runs a plan written by hand", "[export][mscclpp]") {
  const nlohmann::json plan = pair_of_gpus(wait_of_pair());
  CHECK(test::mscclpp_problem(plan.dump(), 5).empty());
}

TEST_CASE("the interpreter of MSCCL++ sees what is wrong", "[export][mscclpp]") {
  nlohmann::json plan = pair_of_gpus(wait_of_pair());
  nlohmann::json& operations = plan["gpus"][0]["threadblocks"][0]["ops"];
  SECTION("a signal that nobody awaits") {
    operations.erase(8);
    CHECK(test::mscclpp_problem(plan.dump(), 1) == "a signal that nobody awaits");
  }
  SECTION("a wait without a signal") {
    operations.push_back(wait_of_pair());
    CHECK_THAT(test::mscclpp_problem(plan.dump(), 1), Catch::Contains("waits for ever"));
  }
  SECTION("threads that do not wait for each other before a signal") {
    operations.erase(1);
    CHECK_THAT(test::mscclpp_problem(plan.dump(), 1), Catch::Contains("race"));
  }
  SECTION("threads that do not wait for each other after a wait") {
    operations.erase(4);
    CHECK_THAT(test::mscclpp_problem(plan.dump(), 1), Catch::Contains("race"));
  }
  SECTION("another sum") {
    operations[5]["src_buff"].erase(1);
    CHECK_THAT(test::mscclpp_problem(plan.dump(), 1), Catch::Contains("other numbers"));
  }
  SECTION("two blocks that write one place") {
    nlohmann::json& blocks = plan["gpus"][0]["threadblocks"];
    blocks.push_back({{"id", 1}, {"ops", {operations[0]}}, {"channels", nlohmann::json::array()}});
    CHECK_THAT(test::mscclpp_problem(plan.dump(), 1), Catch::Contains("race"));
  }
  SECTION("a channel without a partner, and one that is not there") {
    plan["gpus"][0]["channels"][0]["connected_to"].push_back(1);
    CHECK_THROWS(test::mscclpp_problem(plan.dump(), 1));
    plan = pair_of_gpus(wait_of_pair());
    plan["gpus"][0]["threadblocks"][0]["ops"][2]["channel_ids"][0] = 1;
    CHECK_THROWS(test::mscclpp_problem(plan.dump(), 1));
  }
  SECTION("a peer that ends too soon") {
    nlohmann::json& others = plan["gpus"][1]["threadblocks"][0]["ops"];
    others.erase(8);
    operations.erase(7);
    CHECK_THAT(test::mscclpp_problem(plan.dump(), 1), Catch::Contains("ends while"));
  }
  SECTION("a peer that may not have begun") {
    for (auto& gpu : plan["gpus"]) {
      nlohmann::json& begin = gpu["threadblocks"][0]["ops"];
      begin.erase(2);
      begin.erase(2);
    }
    CHECK_THAT(test::mscclpp_problem(plan.dump(), 1), Catch::Contains("race"));
  }
  SECTION("too many operations") {
    for (int i = 0; i < 64; ++i) {
      operations.push_back({{"name", "nop"}});
    }
    CHECK_THROWS(test::mscclpp_problem(plan.dump(), 1));
  }
}

TEST_CASE("blocks of the interpreter wait for each other by semaphore and barrier",
          "[export][mscclpp]") {
  nlohmann::json plan = pair_of_gpus(wait_of_pair());
  nlohmann::json& gpu = plan["gpus"][0];
  nlohmann::json& first = gpu["threadblocks"][0]["ops"];
  const nlohmann::json copy = first[0];
  const nlohmann::json nop{{"name", "nop"}};
  nlohmann::json before = nlohmann::json::array({copy});
  SECTION("semaphore") {
    gpu["semaphores"].push_back({{"init_value", 0}});
    before.push_back(nop);
    before.push_back({{"name", "sem_release"}, {"semaphore_ids", {0}}});
    first[0] = {{"name", "sem_acquire"}, {"semaphore_ids", {0}}};
  }
  SECTION("barrier") {
    const nlohmann::json barrier{{"name", "barrier"}, {"barrier_id", 0}, {"num_threadblocks", 2}};
    before.push_back(barrier);
    first[0] = barrier;
  }
  gpu["threadblocks"].push_back(
      {{"id", 1}, {"ops", before}, {"channels", nlohmann::json::array()}});
  CHECK(test::mscclpp_problem(plan.dump(), 2).empty());
}

TEST_CASE("schedules of families add up as execution plans", "[export][mscclpp]") {
  for (const topology::Topology& cluster :
       {test::boxes(1, 2), test::boxes(2, 2), test::rails_with_slow_nic(2, 10)}) {
    for (const Collective what :
         {Collective::kAllReduce, Collective::kAllGather, Collective::kReduceScatter}) {
      CAPTURE(cluster.name(), cluster.rank_count(), static_cast<int>(what));
      const Families families = families_of(cluster, what);
      for (const auto& [family, problem] : families.run) {
        CAPTURE(family);
        CHECK(problem.empty());
      }
      CHECK(families.run.contains("ring"));
      CHECK(families.run.contains("forest"));
      CHECK((cluster.rank_count() == 8 || families.run.contains("hierarchical")));
      // Its chunks are too unequal.
      for (const auto& [family, reason] : families.refused) {
        CHECK(family == "parameter-server");
      }
    }
  }
}

TEST_CASE("execution plans have no operation too many", "[export][mscclpp]") {
  for (const std::size_t ranks_per_host : {4U, 2U}) {
    const nlohmann::json plan = nlohmann::json::parse(written(all_pairs(4), ranks_per_host));
    REQUIRE(test::mscclpp_problem(plan.dump(), 8).empty());
    const std::size_t operations = plan["gpus"][0]["threadblocks"][0]["ops"].size();
    for (std::size_t i = 0; i < operations; ++i) {
      nlohmann::json without = plan;
      without["gpus"][0]["threadblocks"][0]["ops"].erase(i);
      CAPTURE(ranks_per_host, i, plan["gpus"][0]["threadblocks"][0]["ops"][i].dump());
      CHECK_FALSE(test::mscclpp_problem(without.dump(), 8).empty());
    }
  }
}

TEST_CASE("direct exchanges fit into thread blocks", "[export][mscclpp]") {
  CHECK(test::mscclpp_problem(written(all_pairs(8), 8), 3).empty());
  CHECK(test::mscclpp_problem(written(all_pairs(16), 8), 3).empty());
  CHECK_THROWS_WITH(written(all_pairs(32), 8),
                    Catch::Contains("24 channels in a thread block of rank 0") &&
                        Catch::Contains("at most 16") && Catch::Contains("--schedule"));
}

TEST_CASE("what execution plans do not have is refused", "[export][mscclpp]") {
  SECTION("codecs") {
    TransferGraph graph = all_pairs(2);
    graph.add_codec({.kind = plan::CodecKind::kFp16});
    CHECK_THROWS_WITH(written(graph, 2), Catch::Contains("--error-budget 0"));
  }
  SECTION("more operations than a block takes") {
    TransferGraph graph("there-and-back", Collective::kAllReduce, 2, {1});
    std::vector<TransferId> last;
    for (int i = 0; i < 40; ++i) {
      last = {graph.add_transfer({.src = Rank(i % 2), .dst = Rank(1 - i % 2)}, last)};
    }
    CHECK_THROWS_WITH(
        written(graph, 2),
        Catch::Contains("operations in a thread block of rank 0") && Catch::Contains("at most 64"));
  }
  SECTION("chunks of unequal sizes") {
    const TransferGraph graph("uneven", Collective::kAllReduce, 2, {1, 5000});
    CHECK_THROWS_WITH(written(graph, 2), Catch::Contains("5001 units"));
  }
  SECTION("a cluster alone") {
    CHECK_THROWS_AS(exporter_of("mscclpp").write({test::boxes(1, 2)}, {}), ConfigError);
  }
  SECTION("hosts with unequal numbers of ranks") {
    plan::Plan plan;
    plan.schedules.push_back(all_pairs(13));
    CHECK_THROWS_WITH(exporter_of("mscclpp").write({test::uneven_hosts(), &plan}, {}),
                      Catch::Contains("as many on each host"));
  }
}

TEST_CASE("each schedule is a file, named as the program in it", "[export][mscclpp]") {
  plan::Plan plan;
  plan.schedules = {all_pairs(8), all_pairs(8)};
  const std::vector<ExportedFile> files =
      exporter_of("mscclpp").write({test::boxes(1, 2), &plan}, {});
  REQUIRE(files.size() == 2);
  CHECK(files[1].name == "all-pairs-1.json");
  CHECK(nlohmann::json::parse(files[1].content)["name"] == "all-pairs-1");
}

}  // namespace rackrail::exporting
