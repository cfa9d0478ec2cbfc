#include "sim/nccl/schedules.hpp"

#include <catch2/catch.hpp>

#include <map>
#include <set>

#include "plan/verifier.hpp"

namespace rackrail::sim::nccl::schedules_test {
namespace {

/// All repetitions of a schedule as one graph, for the verifier: with its own dependencies, and the
/// order of additions by id that the graph's rules add.
plan::TransferGraph unrolled(const plan::RegularSchedule& schedule) {
  const std::vector<plan::ListedStep> steps = plan::list_steps(schedule);
  const std::vector<plan::RegularSchedule::Lane> lanes = schedule.lanes();
  plan::TransferGraph graph(schedule.name(), plan::Collective::kAllReduce, schedule.rank_count(),
                            std::vector<std::uint32_t>(schedule.chunk_count(), 1));
  for (const plan::ListedStep& one : steps) {
    std::vector<TransferId> after;
    for (const std::uint32_t before : one.dependencies) {
      after.emplace_back(before);
    }
    graph.add_transfer({.src = lanes[one.place.lane].src,
                        .dst = lanes[one.place.lane].dst,
                        .chunk_begin = one.step.chunk_begin,
                        .chunk_count = one.step.chunk_count,
                        .op = one.step.op,
                        .codec = 0,
                        .route = {}},
                       after);
  }
  return graph;
}

void require_right(const plan::TransferGraph& graph) {
  const plan::VerifyReport report = plan::verify(graph, nullptr);
  for (const std::string& problem : report.problems) {
    UNSCOPED_INFO(problem);
  }
  REQUIRE(report.ok());
}

/// Bytes out of and into each host per byte of the buffer, for a loop of equal chunks.
std::map<std::size_t, std::pair<double, double>> host_traffic(const plan::TransferGraph& loop,
                                                              std::size_t gpus) {
  std::map<std::size_t, std::pair<double, double>> traffic;
  for (const plan::Transfer& transfer : loop.transfers()) {
    const std::size_t from = transfer.src.index() / gpus;
    const std::size_t to = transfer.dst.index() / gpus;
    if (from != to) {
      traffic[from].first += 1 / static_cast<double>(loop.chunk_count());
      traffic[to].second += 1 / static_cast<double>(loop.chunk_count());
    }
  }
  return traffic;
}

}  // namespace

TEST_CASE("one loop of every NCCL algorithm is an all-reduce", "[nccl]") {
  for (const std::size_t hosts : {1U, 2U, 3U, 4U, 5U, 7U, 12U}) {
    for (const std::size_t gpus : {1U, 2U, 3U, 8U}) {
      CAPTURE(hosts, gpus);
      if (hosts * gpus > 1) {
        require_right(tree_loop(hosts, gpus));
      }
      if (hosts > 1) {
        require_right(nvls_tree_loop(hosts, gpus));
      } else if (gpus > 1) {
        require_right(nvls_loop(gpus));
      }
    }
  }
}

TEST_CASE("repeated loops are an all-reduce with any number of buffers", "[nccl]") {
  for (const std::uint32_t steps : {1U, 2U, 5U}) {
    CAPTURE(steps);
    const auto schedule = repeat(nvls_tree_loop(3, 2), 20, steps);
    REQUIRE(schedule->chunk_count() == std::size_t{20} * 2 * 2);
    require_right(unrolled(*schedule));
    require_right(unrolled(*repeat(tree_loop(4, 2), 20, steps)));
  }
}

TEST_CASE("a dependency at the sender cannot be repeated", "[nccl]") {
  plan::TransferGraph graph("odd", plan::Collective::kAllReduce, 3, {1});
  const plan::Transfer first{.src = Rank(0), .dst = Rank(1)};
  const TransferId one[] = {graph.add_transfer(first, {})};
  graph.add_transfer({.src = Rank(0), .dst = Rank(2)}, one);
  REQUIRE_THROWS(repeat(graph, 2));
}

TEST_CASE("inner hosts of one tree are leaves of the other", "[nccl]") {
  for (std::size_t hosts = 2; hosts < 70; ++hosts) {
    CAPTURE(hosts);
    std::vector<int> trees_inner(hosts, 0);
    for (int tree = 0; tree < 2; ++tree) {
      const auto parents = tree_parents(hosts, tree);
      std::set<std::uint32_t> inner;
      std::size_t roots = 0;
      for (std::uint32_t h = 0; h < hosts; ++h) {
        roots += parents[h] == h ? 1 : 0;
        // The way up ends at a root within the depth of a balanced tree.
        std::uint32_t at = h;
        std::size_t steps = 0;
        while (parents[at] != at) {
          at = parents[at];
          REQUIRE(++steps <= tree_depth(hosts));
        }
        if (parents[h] != h) {
          inner.insert(parents[h]);
        }
      }
      REQUIRE(roots == 1);
      for (const std::uint32_t h : inner) {
        ++trees_inner[h];
      }
    }
    // Odd numbers of hosts above 1 leave one host inner in both (the first tree's last one).
    const auto twice = std::count(trees_inner.begin(), trees_inner.end(), 2);
    REQUIRE(twice <= 1 + static_cast<long>(hosts % 2));
  }
}

TEST_CASE("an NVLS tree takes the buffer in and out of an inner host twice, of two hosts once",
          "[nccl]") {
  for (const auto& [host, traffic] : host_traffic(nvls_tree_loop(2, 8), 8)) {
    CAPTURE(host);
    CHECK(traffic.first == Approx(1));
    CHECK(traffic.second == Approx(1));
  }
  double most = 0;
  for (const auto& [host, traffic] : host_traffic(nvls_tree_loop(4, 8), 8)) {
    most = std::max({most, traffic.first, traffic.second});
  }
  CHECK(most == Approx(2));
}

TEST_CASE("ring chunks cover the buffer in NCCL's loops", "[nccl]") {
  constexpr std::int64_t kMebi = 1 << 20;
  SECTION("one loop below channels * ranks * 2 MiB") {
    const Chunking chunking = ring_chunking(96 * kMebi, 4, 24, Protocol::kSimple);
    CHECK(chunking.loops == 1);
    CHECK(chunking.chunk_bytes == kMebi);
    CHECK(chunking.rest_bytes == 0);
    CHECK(chunking.slices == 2);
  }
  SECTION("whole loops and a rest above") {
    const Chunking chunking = ring_chunking(480 * kMebi, 4, 24, Protocol::kSimple);
    CHECK(chunking.loops == 2);
    CHECK(chunking.chunk_bytes == 2 * kMebi);
    CHECK(chunking.rest_bytes == kMebi);
  }
  SECTION("never less than the buffer, and less than a float per part more") {
    for (const std::int64_t bytes : {4L, 1000L, 8191L, 1L << 20, (1L << 30) + 12, 1L << 34}) {
      for (const Protocol protocol : {Protocol::kLl, Protocol::kLl128, Protocol::kSimple}) {
        const Chunking chunking = ring_chunking(bytes, 5, 24, protocol);
        const std::int64_t covered =
            (chunking.loops * chunking.chunk_bytes + chunking.rest_bytes) * 5 * 24;
        CAPTURE(bytes, to_string(protocol));
        CHECK(covered >= bytes);
        CHECK(covered < bytes + 5 * 24);
      }
    }
  }
}

TEST_CASE("an unfilled pass costs its share", "[nccl]") {
  constexpr std::int64_t kPass = 64 * 1024;
  CHECK(block_bytes(kPass, 0.25, Protocol::kSimple) == Approx(kPass));
  CHECK(block_bytes(kPass + kPass / 2, 0.25, Protocol::kSimple) == Approx(1.625 * kPass));
  CHECK(block_bytes(kPass + 16, 1, Protocol::kSimple) == Approx(2 * kPass));
  CHECK(block_bytes(kPass + 16, 1, Protocol::kLl128) == Approx(kPass + 16));
}

}  // namespace rackrail::sim::nccl::schedules_test
