// The bucket algorithm for an all-reduce and either half of it: right on every grid, and all links
// busy alike.
#include "planner/algorithms/torus_exchange.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdint>
#include <random>
#include <string>
#include <variant>
#include <vector>

#include "plan/alpha_beta.hpp"
#include "plan/verifier.hpp"
#include "planner/algorithms/grid_shares.hpp"
#include "planner/algorithms/schedule_family.hpp"
#include "tests/support/clusters.hpp"
#include "tests/support/grids.hpp"
#include "topology/queries.hpp"

namespace rackrail::planner::torus_exchange_test {
namespace {

using plan::Collective;
using test::Side;
using topology::Topology;

constexpr Collective kAll[] = {Collective::kAllGather, Collective::kReduceScatter,
                               Collective::kAllReduce};

Topology shuffled_grid(const std::vector<Side>& sides) {
  constexpr std::uint32_t kSeed = 11;
  std::mt19937 random(kSeed);
  return test::grid(sides, random);
}

RankGrid grid_of(const Topology& topology) { return std::get<RankGrid>(find_rank_grid(topology)); }

const std::vector<std::vector<Side>> kGrids = {{{2, false}},
                                               {{6, false}},
                                               {{5, true}},
                                               {{4, true}, {8, true}},
                                               {{3, true}, {7, true}},
                                               {{5, true}, {3, false}},
                                               {{4, false}, {3, false}},
                                               {{9, false}, {3, false}},
                                               {{3, true}, {2, false}, {5, true}}};

/// Bytes of a buffer of one byte that a link carries, at most, over its bytes in a second.
double busiest(const plan::TransferGraph& graph, const Topology& topology) {
  const auto rate = static_cast<double>(topology.link(LinkId(0U)).bandwidth.bytes_per_second());
  return plan::alpha_beta(graph, topology).seconds_per_element / 4 * rate;
}

TEST_CASE("halves of the bucket algorithm are right on every grid, whatever the blocks") {
  for (const std::vector<Side>& sides : kGrids) {
    const Topology topology = shuffled_grid(sides);
    topology::Router router(topology);
    const RankGrid grid = grid_of(topology);
    for (const Collective what : kAll) {
      for (const std::uint32_t growth : {0U, 4U, 2U}) {
        for (const char* codec : {"none", "fp16"}) {
          INFO(topology.rank_count() << " ranks, " << static_cast<int>(what) << ", blocks grow by "
                                     << growth << ", " << codec);
          const plan::Codec used = plan::parse_codec(codec);
          const Exchange exchange = torus_exchange(grid, bucket_weights(grid, topology), growth);
          const auto graph = make_exchange(exchange, what, {topology, router, {used, used}});
          CHECK(plan::verify(graph, &topology).problems == std::vector<std::string>{});
          CHECK(graph.transfers().size() == exchange_transfers(exchange, what));
        }
      }
    }
  }
}

TEST_CASE("halves of the bucket algorithm load links of unlike dimensions as little as can be") {
  // An all-gather brings all but its own range to every rank over each of its links, on a mesh over
  // two at a corner.
  struct Case {
    Topology topology;
    double links;
  };
  for (const auto& [topology, links] : {Case{shuffled_grid({{3, true}, {7, true}}), 4},
                                        Case{shuffled_grid({{4, true}, {8, true}}), 4},
                                        Case{shuffled_grid({{3, true}, {5, true}, {7, true}}), 6},
                                        Case{shuffled_grid({{9, false}, {3, false}}), 2},
                                        Case{shuffled_grid({{4, false}, {4, false}}), 2},
                                        Case{shuffled_grid({{3, true}, {5, false}}), 3}}) {
    const auto ranks = static_cast<double>(topology.rank_count());
    const RankGrid grid = grid_of(topology);
    topology::Router router(topology);
    for (const Collective what : {Collective::kAllGather, Collective::kReduceScatter}) {
      for (const std::uint32_t growth : {0U, 2U}) {
        const auto graph =
            make_exchange(torus_exchange(grid, bucket_weights(grid, topology), growth), what,
                          {topology, router, {}});
        CAPTURE(ranks, links, growth);
        CHECK(busiest(graph, topology) == Approx((ranks - 1) / ranks / links).epsilon(1e-3));
      }
    }
  }
}

TEST_CASE("slow dimensions have less to carry") {
  const Topology topology = shuffled_grid({{2, false, 10_GBps}, {2, false, 5_GBps}});
  const RankGrid grid = grid_of(topology);
  topology::Router router(topology);
  const auto time = [&](const std::vector<std::uint32_t>& weights) {
    const auto graph = make_exchange(torus_exchange(grid, weights), Collective::kAllGather,
                                     {topology, router, {}});
    return plan::alpha_beta(graph, topology).seconds_per_element / 4;
  };
  // Half of the buffer must enter each side of the slow cables, and they have a quarter of it each.
  CHECK(time({1, 1}) == Approx(0.375 / 5e9).epsilon(1e-3));
  CHECK(time(bucket_weights(grid, topology)) == Approx(0.25 / 5e9).epsilon(1e-3));
  // So all of it takes them last, and what would take them first is not sent at all.
  for (const Collective what : kAll) {
    const Exchange exchange = torus_exchange(grid, bucket_weights(grid, topology));
    const auto graph = make_exchange(exchange, what, {topology, router, {}});
    CHECK(std::ranges::count(graph.chunk_weights(), 0U) == 0);
    CHECK(graph.transfers().size() == exchange_transfers(exchange, what));
    CHECK(graph.transfers().size() == (what == Collective::kAllReduce ? 16 : 8));
    CHECK(plan::verify(graph, &topology).problems == std::vector<std::string>{});
  }
}

TEST_CASE("shares that keep dimensions equally busy are found, by some of the parts if need be") {
  CHECK(balanced_shares({{1, 1}, {1, 1}}) == std::vector<double>{0.5, 0.5});
  const auto shares = balanced_shares({{3, 1}, {1, 2}});
  const auto of_nanoseconds = balanced_shares({{3e-13, 1e-13}, {1e-13, 2e-13}});
  CHECK(of_nanoseconds[0] == Approx(shares[0]));
  CHECK(shares[0] == Approx(1.0 / 3));
  CHECK(shares[1] == Approx(2.0 / 3));
  CHECK(balanced_shares({{4, 3}, {1, 2}}) == std::vector<double>{0, 1});
  const auto three = balanced_shares({{5, 1, 1}, {1, 5, 1}, {1, 1, 5}});
  CHECK(three[2] == Approx(1.0 / 3));
  // More parts than dimensions, of which the first ones do.
  CHECK(balanced_shares({{1, 1}, {1, 1}, {1, 1}}) == std::vector<double>{0.5, 0.5, 0});
  CHECK(balanced_shares({{4, 3}, {3, 4}, {1, 2}, {2, 1}}) == std::vector<double>{0, 0, 0.5, 0.5});
}

TEST_CASE("the torus family offers halves, and blocks only where dimensions are unlike") {
  const auto forms_of = [](const Topology& topology, Collective what, std::size_t most) {
    topology::Router router(topology);
    const auto forms = schedule_family("torus").collectives(
        what, {.topology = topology, .router = router, .codecs = {}, .most_transfers = most});
    for (const CollectiveForm& form : forms) {
      CHECK(form.graph().collective() == what);
    }
    return forms.size();
  };
  for (const Collective what : {Collective::kAllGather, Collective::kReduceScatter}) {
    CHECK(forms_of(shuffled_grid({{5, true}, {5, true}}), what, 100'000) == 1);
    CHECK(forms_of(shuffled_grid({{5, true}, {7, true}}), what, 100'000) == 3);
    CHECK(forms_of(shuffled_grid({{5, true}, {7, true}}), what, 1'000) == 1);
  }
  // A side of four is two dimensions of two, or a ring.
  CHECK(forms_of(shuffled_grid({{4, true}, {4, true}}), Collective::kAllGather, 100'000) == 1);
  CHECK(forms_of(shuffled_grid({{4, true}, {8, true}}), Collective::kAllGather, 100'000) == 6);
  CHECK(forms_of(shuffled_grid({{5, true}, {5, true}}), Collective::kAllReduce, 100'000) == 1);
  CHECK(forms_of(shuffled_grid({{5, true}, {7, true}}), Collective::kAllReduce, 100'000) == 4);
}

}  // namespace
}  // namespace rackrail::planner::torus_exchange_test
