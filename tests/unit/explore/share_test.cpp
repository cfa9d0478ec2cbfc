#include "explore/share.hpp"

#include <catch2/catch.hpp>
#include <map>
#include <string>
#include <vector>

#include "base/error.hpp"

namespace rackrail::explore::share_test {
namespace {

Share share_of(const std::map<std::string, std::string>& variables) {
  return share_from_environment([&](const char* name) {
    const auto it = variables.find(name);
    return it == variables.end() ? nullptr : it->second.c_str();
  });
}

TEST_CASE("launchers say which process this is") {
  const auto [rank, count] =
      GENERATE(table<std::string, std::string>({{"SLURM_PROCID", "SLURM_NTASKS"},
                                                {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
                                                {"PMI_RANK", "PMI_SIZE"}}));
  INFO(rank);
  const auto share_of = [](std::map<std::string, std::string> variables) {
    variables["SLURM_STEP_ID"] = "0";
    return share_test::share_of(variables);
  };
  const Share share = share_of({{rank, "3"}, {count, "8"}});
  CHECK(share.rank == 3);
  CHECK(share.count == 8);
  CHECK(share.own_file("out/results.jsonl") == "out/results.rank3.jsonl");
  CHECK(share_of({{rank, "3"}}).count == 1);
  CHECK(share_of({{count, "8"}}).count == 1);
  CHECK_THROWS_AS(share_of({{rank, "8"}, {count, "8"}}), ConfigError);
  CHECK_THROWS_AS(share_of({{rank, "-1"}, {count, "8"}}), ConfigError);
  CHECK_THROWS_AS(share_of({{rank, "0"}, {count, "0"}}), ConfigError);
  CHECK_THROWS_AS(share_of({{rank, "1"}, {count, "8x"}}), ConfigError);
}

TEST_CASE("without a launcher a process is alone") {
  const Share share = share_of({});
  CHECK(share.count == 1);
  CHECK(share.own_file("results.jsonl") == "results.jsonl");
}

TEST_CASE("a batch script is one process, whatever it may start") {
  std::map<std::string, std::string> variables{{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "2"}};
  CHECK(share_of(variables).count == 1);
  variables["SLURM_STEP_ID"] = "batch";
  CHECK(share_of(variables).count == 1);
  variables["SLURM_STEP_ID"] = "3";
  CHECK(share_of(variables).count == 2);
}

TEST_CASE("mpirun within an allocation counts its own processes") {
  const Share share = share_of({{"SLURM_PROCID", "0"},
                                {"SLURM_NTASKS", "2"},
                                {"OMPI_COMM_WORLD_RANK", "5"},
                                {"OMPI_COMM_WORLD_SIZE", "16"}});
  CHECK(share.rank == 5);
  CHECK(share.count == 16);
}

TEST_CASE("shares are disjoint and complete") {
  for (const std::size_t count : {1U, 2U, 3U, 7U, 64U}) {
    for (std::size_t cell = 0; cell < 200; ++cell) {
      std::size_t owners = 0;
      for (std::size_t rank = 0; rank < count; ++rank) {
        owners += Share{rank, count}.has(cell) ? 1 : 0;
      }
      INFO(cell << " of " << count);
      CHECK(owners == 1);
    }
  }
}

}  // namespace
}  // namespace rackrail::explore::share_test
