// Exchanges between groups in several rounds: right on every grouping with every codec, and known
// before they are made.
#include "planner/algorithms/group_exchange.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "plan/alpha_beta.hpp"
#include "plan/verifier.hpp"
#include "tests/support/clusters.hpp"

namespace rackrail::planner::group_exchange_test {
namespace {

using topology::Topology;

std::vector<Topology> groupings() {
  return {test::clos({3, 1}, 2), test::clos({4, 2, 2}, 1), test::boxes(3, 2),
          test::pods({{{2, 1}, {2}}, {{2}, {1, 2}}})};
}

TierCodecs codecs_of(const char* inside, const char* across) {
  return {plan::parse_codec(inside), plan::parse_codec(across)};
}

const std::vector<std::pair<const char*, const char*>> kCodecPairs = {
    {"none", "none"}, {"none", "int8"}, {"int8", "int8"}};

/// Of 4 lines and 3 groups; the second group owns nothing.
const std::vector<std::uint32_t> kUnlikeWeights = {1, 0, 3, 1, 0, 3, 2, 0, 1, 2, 0, 1};

void check_sums(const plan::TransferGraph& graph, const Topology& topology) {
  const plan::VerifyReport report = plan::verify(graph, &topology);
  INFO((report.ok() ? std::string() : report.problems.front()));
  CHECK(report.ok());
}

TEST_CASE("groups exchange in any number of rounds") {
  for (const Topology& topology : groupings()) {
    topology::Router router(topology);
    for (const auto& [inside, across] : kCodecPairs) {
      const ScheduleRequest request{topology, router, codecs_of(inside, across)};
      const std::size_t transfers = make_group_exchange(request).transfers().size();
      for (const std::size_t rounds : {1, 2, 3, 5, 8}) {
        INFO(topology.name() << ", " << inside << ", " << across << ", " << rounds << " rounds");
        const plan::TransferGraph graph = make_group_exchange(request, {}, rounds);
        check_sums(graph, topology);
        CHECK(graph.transfers().size() == rounds * transfers);
      }
    }
  }
}

TEST_CASE("the first and the last rounds exchange less than those between") {
  const Topology topology = test::clos({2, 2}, 1);
  topology::Router router(topology);
  const ScheduleRequest request{topology, router, codecs_of("int8", "int8")};
  const std::vector<std::vector<std::uint32_t>> parts = {
      {1}, {1, 1}, {1, 2, 1}, {1, 2, 2, 1}, {1, 2, 4, 4, 4, 4, 2, 1}};
  for (const std::vector<std::uint32_t>& of_rounds : parts) {
    const std::size_t rounds = of_rounds.size();
    const plan::TransferGraph graph = make_group_exchange(request, {}, rounds);
    const std::size_t chunks = graph.chunk_count() / rounds;
    for (std::size_t chunk = 0; chunk < graph.chunk_count(); ++chunk) {
      INFO(rounds << " rounds, chunk " << chunk);
      CHECK(graph.chunk_weights()[chunk] == of_rounds[chunk / chunks]);
    }
  }
}

TEST_CASE("chunks of no weight are left out of every round") {
  const Topology topology = test::clos({4, 2, 2}, 1);
  topology::Router router(topology);
  for (const auto& [inside, across] : kCodecPairs) {
    const ScheduleRequest request{topology, router, codecs_of(inside, across)};
    const plan::TransferGraph graph = make_group_exchange(request, kUnlikeWeights, 3);
    check_sums(graph, topology);
    CHECK(graph.chunk_weights().size() == 3 * 8);
    CHECK(std::ranges::count(graph.chunk_weights(), 0U) == 0);
  }
}

/// Of chunks of these weights, all alike if none.
void check_forms(const ScheduleRequest& request, const std::vector<std::uint32_t>& weights) {
  const CollectiveForm one(make_group_exchange(request, weights), request.topology);
  const auto forms = group_exchange_forms(request, one.shape(), weights);
  REQUIRE_FALSE(forms.empty());
  std::int64_t last = one.shape().transfers;
  for (const CollectiveForm& form : forms) {
    const CollectiveForm made(form.graph(), request.topology);
    CHECK(form.shape().transfers == 2 * last);
    CHECK(form.shape().transfers == made.shape().transfers);
    CHECK(form.shape().largest_share == Approx(made.shape().largest_share));
    for (const std::int64_t elements : {10, 1'000, 1'000'000, 1'000'000'000}) {
      const Duration exact = made.shape().bound->at_least(elements);
      CHECK(form.shape().bound->at_least(elements) <= exact);
      CHECK(form.shape().bound->at_least(elements).seconds() >= 0.99 * exact.seconds() - 1e-6);
    }
    last = form.shape().transfers;
  }
}

TEST_CASE("what exchanges in rounds are like is known before they are made") {
  for (const Topology& topology : groupings()) {
    topology::Router router(topology);
    for (const auto& [inside, across] : kCodecPairs) {
      INFO(topology.name() << ", " << inside << ", " << across);
      check_forms({.topology = topology,
                   .router = router,
                   .codecs = codecs_of(inside, across),
                   .most_rounds = 8,
                   .most_transfers = 20'000},
                  {});
    }
  }
}

TEST_CASE("so are those of chunks of unlike weights") {
  const Topology topology = test::clos({4, 2, 2}, 1);
  topology::Router router(topology);
  for (const auto& [inside, across] : kCodecPairs) {
    INFO(inside << ", " << across);
    check_forms({.topology = topology,
                 .router = router,
                 .codecs = codecs_of(inside, across),
                 .most_rounds = 8,
                 .most_transfers = 20'000},
                kUnlikeWeights);
  }
}

TEST_CASE("no more rounds than a request allows, nor more transfers") {
  const Topology topology = test::boxes(3, 2);
  topology::Router router(topology);
  ScheduleRequest request{.topology = topology, .router = router, .codecs = {}};
  const FormShape one = CollectiveForm(make_group_exchange(request), topology).shape();
  request.most_rounds = 4;
  CHECK(group_exchange_forms(request, one).size() == 2);
  request.most_rounds = 1;
  CHECK(group_exchange_forms(request, one).empty());
  request.most_rounds = 256;
  request.most_transfers = static_cast<std::size_t>(2 * one.transfers);
  CHECK(group_exchange_forms(request, one).size() == 1);
}

}  // namespace
}  // namespace rackrail::planner::group_exchange_test
