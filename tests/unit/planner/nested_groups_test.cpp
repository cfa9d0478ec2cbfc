#include "planner/algorithms/nested_groups.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <iterator>
#include <map>
#include <numeric>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "plan/verifier.hpp"
#include "tests/support/clusters.hpp"

namespace rackrail::planner::nested_groups_test {
namespace {

using topology::Topology;

Topology regular(std::size_t pods, std::size_t racks, std::size_t hosts, int gpus) {
  return test::pods({pods, std::vector(racks, std::vector(hosts, gpus))});
}

std::vector<plan::TransferGraph> graphs_of(const Topology& topology, const TierCodecs& codecs = {},
                                           std::size_t most_transfers = 130'000) {
  topology::Router router(topology);
  return nested_all_reduces(
      {.topology = topology, .router = router, .codecs = codecs, .most_transfers = most_transfers});
}

// Share of the buffer that each link carries whose name starts so.
std::set<double> carried(const plan::TransferGraph& graph, const Topology& topology,
                         const std::string& from) {
  const auto weights = graph.chunk_weights();
  // As many as make every chunk a whole number of them.
  const auto elements = std::accumulate(weights.begin(), weights.end(), std::int64_t{0});
  std::map<LinkId, std::int64_t> by_link;
  for (const plan::Transfer& transfer : graph.transfers()) {
    for (const LinkId link : graph.routes()[transfer.route.index()]) {
      by_link[link] += graph.range(transfer, elements).size();
    }
  }
  std::set<double> shares;
  for (const auto& [link, sum] : by_link) {
    if (topology.link_name(link).starts_with(from)) {
      shares.insert(static_cast<double>(sum) / static_cast<double>(elements));
    }
  }
  return shares;
}

TEST_CASE("racks of hosts of GPUs: an uplink carries 2(k-1)/k of the buffer") {
  const Topology topology = regular(1, 4, 4, 4);
  const auto graphs = graphs_of(topology);
  REQUIRE(!graphs.empty());
  for (const plan::TransferGraph& graph : graphs) {
    const std::size_t rounds = graph.chunk_count() / 64;
    CHECK(graph.transfers().size() == rounds * 64 * 2 * (3 + 3 + 3));
    CHECK(plan::verify(graph, &topology).problems == std::vector<std::string>{});
    CHECK(carried(graph, topology, "spine0→") == std::set{1.5});
  }
}

TEST_CASE("pods of racks: their uplinks carry 2(k-1)/k each of what is below them") {
  const Topology topology = regular(4, 2, 3, 2);
  const auto graphs = graphs_of(topology);
  REQUIRE(!graphs.empty());
  const plan::TransferGraph& graph = graphs[0];
  CHECK(graph.transfers().size() == 48 * 2 * (1 + 2 + 1 + 3));
  CHECK(plan::verify(graph, &topology).problems == std::vector<std::string>{});
  CHECK(carried(graph, topology, "core→") == std::set{1.5});
  // Half of the buffer for the pod's other racks in each direction, of what is theirs the same for
  // the other pods.
  CHECK(carried(graph, topology, "rack0.0-tor→spine0") == std::set{1.0 + 1.5 / 2});
}

TEST_CASE("an all-gather is half of an all-reduce, a reduce-scatter the other half") {
  const Topology topology = regular(2, 2, 2, 4);
  topology::Router router(topology);
  const ScheduleRequest request{topology, router, {}};
  const auto whole = nested_all_reduces(request);
  for (const auto what : {plan::Collective::kAllGather, plan::Collective::kReduceScatter}) {
    const auto graphs = nested_collectives(what, request);
    REQUIRE(graphs.size() == whole.size());
    for (std::size_t i = 0; i < graphs.size(); ++i) {
      CHECK(plan::verify(graphs[i], &topology).problems == std::vector<std::string>{});
      CHECK(2 * graphs[i].transfers().size() == whole[i].transfers().size());
      CHECK(carried(graphs[i], topology, "core→") == std::set{0.5});
    }
  }
  // Of hosts of 4 and 2 GPUs no digit makes owners of equal shares.
  const Topology uneven = test::pods({{{4, 2}, {4, 4}}});
  topology::Router other(uneven);
  CHECK(nested_collectives(plan::Collective::kAllGather, {uneven, other, {}}).empty());
}

TEST_CASE("of one size alone also in rounds that grow and shrink again") {
  const Topology topology = regular(2, 2, 2, 4);
  topology::Router router(topology);
  ScheduleRequest request{topology, router, {}};
  request.most_rounds = 256;
  const std::size_t alike = nested_all_reduces(request).size();
  request.is_of_one_size = true;
  for (const auto what : {plan::Collective::kAllGather, plan::Collective::kReduceScatter,
                          plan::Collective::kAllReduce}) {
    const auto graphs = nested_collectives(what, request);
    REQUIRE(graphs.size() >= alike + 3);
    std::size_t rounds = 24;
    for (std::size_t i = 0; i < 3; ++i, rounds *= 2) {
      CHECK(plan::verify(graphs[i], &topology).problems == std::vector<std::string>{});
      CHECK(carried(graphs[i], topology, "core→").size() == 1);
      const auto weights = graphs[i].chunk_weights();
      const std::size_t chunks = graphs[i].chunk_count() / rounds;
      REQUIRE(graphs[i].chunk_count() == chunks * rounds);
      std::vector<std::uint32_t> sizes;
      for (std::size_t round = 0; round < rounds; ++round) {
        sizes.push_back(weights[round * chunks]);
      }
      CHECK(std::vector(sizes.rbegin(), sizes.rend()) == sizes);
      CHECK(std::is_sorted(sizes.begin(), sizes.begin() + static_cast<std::ptrdiff_t>(rounds / 2)));
      CHECK(sizes[rounds / 2] == 16 * sizes[0]);
    }
  }
  // Sums and copies of an all-reduce take turns: a copy in the first half of the transfers.
  const plan::TransferGraph whole = nested_all_reduces(request).front();
  const auto first_copy = std::ranges::find_if(
      whole.transfers(), [](const plan::Transfer& t) { return t.op == plan::TransferOp::kCopy; });
  CHECK(4 * std::distance(whole.transfers().begin(), first_copy) < std::ssize(whole.transfers()));
}

TEST_CASE("ranks exchange with those at the same place in other groups") {
  const Topology topology = regular(2, 2, 2, 4);
  const auto graphs = graphs_of(topology);
  REQUIRE(!graphs.empty());
  for (const plan::Transfer& transfer : graphs[0].transfers()) {
    const auto src = transfer.src.value();
    const auto dst = transfer.dst.value();
    CHECK((src / 4 == dst / 4 || src % 4 == dst % 4));
  }
}

TEST_CASE("with two levels there is nothing to add, nor with codecs that add up their errors") {
  CHECK(graphs_of(regular(1, 1, 4, 4)).empty());
  CHECK(graphs_of(regular(1, 4, 4, 1)).empty());
  CHECK(graphs_of(regular(1, 4, 1, 4)).empty());
  const Topology topology = regular(1, 2, 2, 2);
  const plan::Codec int8 = plan::parse_codec("int8");
  const plan::Codec fp16 = plan::parse_codec("fp16");
  CHECK(graphs_of(topology, {{}, int8}).empty());
  CHECK(graphs_of(topology, {int8, int8}).empty());
  CHECK_FALSE(graphs_of(topology, {{}, fp16}).empty());
  CHECK_FALSE(graphs_of(topology, {fp16, fp16}).empty());
}

TEST_CASE("there are no more rounds than transfers are allowed") {
  const Topology topology = regular(1, 4, 4, 4);
  constexpr std::size_t kOnce = 2 * 64 * (3 + 3 + 3);
  CHECK(graphs_of(topology, {}, kOnce - 1).empty());
  for (const std::size_t most : {kOnce, 4 * kOnce, 9 * kOnce}) {
    const auto graphs = graphs_of(topology, {}, most);
    CHECK_FALSE(graphs.empty());
    for (const plan::TransferGraph& graph : graphs) {
      CHECK(graph.transfers().size() <= most);
    }
  }
}

TEST_CASE("groups of several sizes share what they carry evenly") {
  // Hosts of 2 and 3 GPUs, racks of 1 and 2 hosts: digits of 6, 2 and 2 values.
  const Topology topology = test::pods({{{2}, {3, 2}}});
  const auto graphs = graphs_of(topology);
  REQUIRE(!graphs.empty());
  CHECK(graphs[0].chunk_count() == 6 * 2 * 2);
  CHECK(plan::verify(graphs[0], &topology).problems == std::vector<std::string>{});
  CHECK(carried(graphs[0], topology, "spine0→") == std::set{1.0});
  CHECK(carried(graphs[0], topology, "rack0.1-host1-gpu") == std::set{1.0 + 0.5 + 0.5 / 2});
}

TEST_CASE("groups of many sizes do not multiply chunks without end") {
  const Topology topology =
      test::pods({{{1, 2, 3, 4, 5}, {7, 8}, {5, 6, 7}}, {{3}}, {{2, 5, 7}, {8, 1}}});
  const auto graphs = graphs_of(topology);
  REQUIRE(!graphs.empty());
  const std::size_t ranks = topology.rank_count();
  CHECK(graphs[0].chunk_count() * 2 * ranks <= std::size_t{1} << 24U);
  CHECK(plan::verify(graphs[0], &topology).problems == std::vector<std::string>{});
}

}  // namespace
}  // namespace rackrail::planner::nested_groups_test
