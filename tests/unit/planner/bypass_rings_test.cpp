// Rings of groups past slow members: right, links full for all of the time, and only where some are
// slow.
#include "planner/algorithms/bypass_rings.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstddef>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "plan/alpha_beta.hpp"
#include "plan/codec.hpp"
#include "planner/algorithms/bypass_trees.hpp"
#include "tests/support/clusters.hpp"
#include "tests/support/forms.hpp"
#include "tests/support/graphs.hpp"
#include "topology/linear_program.hpp"
#include "topology/queries.hpp"

namespace rackrail::planner::bypass_rings_test {
namespace {

using topology::Topology;

template <typename... Limits>
std::vector<CollectiveForm> forms_of(const Topology& topology, topology::Router& router,
                                     const Limits&... limits) {
  return bypass_ring_forms(test::request_of(topology, router, limits...));
}

/// By line, then group, in bytes per second.
LineRates rates_of(const std::vector<std::vector<int>>& lines) {
  LineRates rates;
  for (const std::vector<int>& line : lines) {
    auto& of_line = rates.emplace_back();
    for (const int rate : line) of_line.emplace_back(rate);
  }
  return rates;
}

/// As many lines of groups, of 25 but for some.
LineRates rates_with(std::size_t lines, std::size_t groups,
                     const std::vector<test::SlowNic>& slow) {
  std::vector<std::vector<int>> rates(lines, std::vector<int>(groups, 25));
  for (const test::SlowNic& nic : slow) rates[nic.gpu][nic.box] = nic.rate;
  return rates_of(rates);
}

TEST_CASE("rings past slow members are right, and known before they are made") {
  const std::vector<int> whole(4, 25);
  const std::vector<int> slow(4, 10);
  const auto of = [](int rate) { return std::vector<int>(3, rate); };
  const Topology cases[] = {
      test::boxes_with_slow_nics(3, {{0, 3, 5}}),
      test::boxes_with_slow_nics(6, {{2, 0, 10}, {2, 3, 5}}),
      test::boxes_with_slow_nics(7, {{1, 1, 12}, {4, 1, 5}}),
      test::boxes_with_slow_nics(5, {{1, 1, 12}, {2, 1, 5}, {3, 1, 12}}),  // one past another
      test::boxes_with_nics({{0, 25, 25, 25}, whole, whole, {25, 25, 0, 25}}, 4),
      test::boxes_with_nics({whole, whole, {10, 10, 10, 12}, whole, whole}, 1),
      test::boxes_with_nics({{25, 25}, {25, 25}, {25, 25, 25, 5}, {25, 25}, {25, 25}}, 1),
      // Whole ones are no roots. In the second, by that links take less than twice what sums take.
      test::boxes_with_nics({slow, whole, slow, whole, slow, whole}, 4),
      test::boxes_with_nics({of(12), of(25), of(10), of(25), of(12), of(25), of(10), of(25)}, 3),
  };
  const std::string codec = GENERATE("none", "fp16");
  for (const Topology& topology : cases) {
    INFO(topology.rank_count() << " ranks, " << codec);
    topology::Router router(topology);
    const auto forms = forms_of(topology, router, plan::parse_codec(codec));
    REQUIRE(forms.size() > 2);
    for (const CollectiveForm& form : forms) {
      test::check_known_before_made(form, topology);
    }
  }
}

TEST_CASE("links carry what the joint optimum has them carry") {
  const Topology topology = test::boxes_with_slow_nics(9, {{0, 0, 12}, {3, 3, 12}, {6, 2, 12}});
  topology::Router router(topology);
  const auto forms = forms_of(topology, router);
  REQUIRE(!forms.empty());
  // All NICs together over the 16 times that boxes send each byte.
  const double optimum = (9 * 100 - 3 * 13) * 1e9 / 16;
  if (topology::LinearProgram::is_available()) {
    CHECK(static_cast<double>(topology::joint_allreduce_bound(topology).algbw.bytes_per_second()) ==
          Approx(optimum).epsilon(1e-3));
  }
  const plan::TransferGraph& graph = forms.back().graph();
  CHECK(4 / plan::alpha_beta(graph, topology).seconds_per_element > 0.98 * optimum);
  // Else 13 of 25 GB/s are idle beside each slow NIC.
  const bool passes_by = std::ranges::any_of(graph.transfers(), [](const plan::Transfer& transfer) {
    return transfer.src.index() / 4 == 8 && transfer.dst.index() / 4 == 1;
  });
  CHECK(passes_by);
}

TEST_CASE("where one size is looked at rings past slow members have as much as a plan may") {
  const Topology topology = test::boxes_with_slow_nics(9, {{0, 0, 12}});
  topology::Router router(topology);
  ScheduleRequest request = test::request_of(topology, router);
  request.most_transfers = 10;
  CHECK(bypass_ring_forms(request).empty());
  request.most_of_pipelines = kMostPlannedTransfers;
  CHECK_FALSE(bypass_ring_forms(request).empty());
}

TEST_CASE("past a member that is slower by little goes what a rate leaves it") {
  // 15 of 25: what passes it by has 10, of a NIC that two flows share.
  const Topology topology = test::boxes_with_slow_nics(9, {{0, 0, 15}});
  topology::Router router(topology);
  const auto passes_by = [](const plan::Transfer& transfer) {
    return transfer.src.index() == 4 * 8 && transfer.dst.index() == 4 * 1;
  };
  for (const bool may_have_rates : {true, false}) {
    ScheduleRequest request = test::request_of(topology, router);
    request.may_have_rates = may_have_rates;
    const auto forms = bypass_ring_forms(request);
    REQUIRE(!forms.empty());
    const plan::TransferGraph& graph = forms.back().graph();
    CHECK(graph.has_rates() == may_have_rates);
    CHECK(std::ranges::any_of(graph.transfers(), passes_by) == may_have_rates);
    for (const plan::Transfer& transfer : graph.transfers()) {
      CHECK(graph.rate(transfer.route) == Bandwidth(passes_by(transfer) ? 10'000'000'000 : 0));
    }
    const double optimum = (9 * 100 - 10) * 1e9 / 16;
    const double rate = 4 / plan::alpha_beta(graph, topology).seconds_per_element;
    CHECK(rate <= optimum * (1 + 1e-6));
    if (may_have_rates) {
      CHECK(rate > 0.985 * optimum);
    } else {  // what the group before the slow one sends is as little as what that does
      CHECK(rate <= 880.0 / 890 * optimum * (1 + 1e-6));
    }
    for (const CollectiveForm& form : forms) {
      test::check_known_before_made(form, topology);
    }
  }
}

TEST_CASE("a group of less rate is the root of more") {
  // 11 of 12 parts leave each group but the root: T = 11 / (12 * 100 - 15).
  const std::vector<double> shares = shares_of_roots(rates_with(4, 12, {{5, 2, 10}}));
  for (std::size_t group = 0; group < shares.size(); ++group) {
    CHECK(shares[group] == Approx(1 - (group == 5 ? 85 : 100) * 11 / 1185.0));
  }
  // With 20 of 25 nothing passes it by: the group before it sends no more either.
  const std::vector<double> near = shares_of_roots(rates_with(4, 12, {{5, 2, 20}}));
  for (std::size_t group = 0; group < near.size(); ++group) {
    CHECK(near[group] == Approx(1 - (group == 4 || group == 5 ? 95 : 100) * 11 / 1190.0));
  }
  // With a rate of its own a hop past it has the other 5.
  const std::vector<double> rated =
      shares_of_roots(rates_with(4, 12, {{5, 2, 20}}), PassingHops::kRated);
  for (std::size_t group = 0; group < rated.size(); ++group) {
    CHECK(rated[group] == Approx(1 - (group == 5 ? 95 : 100) * 11 / 1195.0));
  }
  // Two slow groups bind: the others are no roots.
  const std::vector<double> bound = shares_of_roots(rates_of({{10, 25, 25, 10}, {10, 25, 25, 10}}));
  CHECK(bound == std::vector<double>{0.5, 0, 0, 0.5});
  CHECK(seconds_of_sums(rates_of({{10, 25, 25, 10}, {10, 25, 25, 10}})).value() ==
        Approx(0.5 / 20));
  // Nobody reaches the next group where they have no line in common.
  CHECK(!seconds_of_sums(rates_of({{25, 0, 25}, {25, 0, 25}})));
  CHECK(!seconds_of_sums(rates_of({{25, 0, 25}, {0, 25, 25}})));
}

/// Each piece is sent once by each group but its root, when all that comes to it is there. Returns
/// the sum of shares.
double check_trees(const std::vector<BypassTree>& trees, std::size_t groups) {
  double share = 0;
  for (const BypassTree& tree : trees) {
    share += tree.share;
    std::vector<int> sent(groups);
    std::vector<double> here(groups);
    for (const BypassArc& arc : tree.arcs) {
      ++sent[arc.from];
      CHECK(sent[arc.to] == 0);
      CHECK(arc.start >= here[arc.from]);
      here[arc.to] = std::max(here[arc.to], arc.end);
    }
    for (std::size_t group = 0; group < groups; ++group) {
      CHECK(sent[group] == (group == tree.root ? 0 : 1));
    }
    CHECK(tree.end == here[tree.root]);
  }
  return share;
}

TEST_CASE("all groups send for all of the time, and each piece once") {
  constexpr std::size_t kGroups = 9;
  const LineRates rates = rates_with(4, kGroups, {{0, 0, 12}, {3, 3, 12}, {4, 3, 5}});
  const auto trees = bypass_trees(rates, bypass_pieces(rates, 24));
  CHECK(check_trees(trees, kGroups) == Approx(1));
  std::map<std::pair<std::size_t, std::size_t>, double> passed_by;  // by first and last group
  for (const BypassTree& tree : trees) {
    for (const BypassArc& arc : tree.arcs) {
      if ((arc.from + 1) % kGroups != arc.to) passed_by[{arc.from, arc.to}] += tree.share;
    }
    CHECK(tree.end < 1.03);
  }
  // Past one slow member, past the slower of two and past both: in proportion to what is above.
  const double time = seconds_of_sums(rates).value();
  CHECK(passed_by[{8, 1}] == Approx(13 * time).epsilon(0.1));
  CHECK(passed_by[{3, 5}] == Approx(7 * time).epsilon(0.1));
  CHECK(passed_by[{2, 5}] == Approx(13 * time).epsilon(0.1));
  CHECK(passed_by.size() == 3);
}

TEST_CASE("slow members side by side on several lines wait for what passed others by") {
  for (const LineRates& rates :
       {rates_with(2, 4, {{1, 0, 12}, {0, 1, 10}, {2, 1, 5}}),
        rates_with(2, 5, {{4, 0, 12}, {0, 1, 5}, {3, 1, 5}}),
        rates_with(4, 9, {{3, 3, 12}, {4, 2, 12}}),
        rates_with(3, 7, {{2, 0, 5}, {3, 1, 10}, {4, 2, 5}}),
        rates_with(4, 8, {{1, 0, 12}, {2, 1, 5}, {3, 2, 10}, {4, 3, 5}})}) {
    for (const std::size_t pieces : {4, 16}) {
      const auto trees = bypass_trees(rates, bypass_pieces(rates, pieces));
      // A root of less than half a piece has none.
      CHECK(check_trees(trees, rates.front().size()) == Approx(1).epsilon(0.02));
    }
  }
}

TEST_CASE("the same rings past slow members each time") {
  const Topology topology = test::boxes_with_slow_nics(5, {{0, 1, 12}});
  test::check_same_each_time(
      topology, [](const Topology& of, topology::Router& by) { return forms_of(of, by); });
}

TEST_CASE("rings past slow members are in as many pieces as the request allows") {
  const Topology topology = test::boxes_with_slow_nics(5, {{0, 1, 12}});
  topology::Router router(topology);
  const auto all = forms_of(topology, router);
  REQUIRE(all.size() == 6);  // 4, 8, 12, 16, 24 and 32
  CHECK(forms_of(topology, router, plan::Codec{}, 16U).size() == 4);
  CHECK(forms_of(topology, router, plan::Codec{}, 15U).size() == 3);
  CHECK(forms_of(topology, router, plan::Codec{}, 3U).empty());
  const auto third = static_cast<std::size_t>(all[2].shape().transfers);
  CHECK(forms_of(topology, router, plan::Codec{}, 256U, third).size() == 3);
  CHECK(forms_of(topology, router, plan::Codec{}, 256U, third - 1).size() == 2);
}

TEST_CASE("no rings past members where none is slow, or groups are two") {
  for (const Topology& topology : {test::boxes(3, 8), test::boxes(1, 8), test::grid(4, 4, true),
                                   test::boxes_with_nics({{25, 10}, {25, 25}}, 2),
                                   test::boxes_with_nics({{25, 10}, {25, 10}, {25, 10}}, 2)}) {
    topology::Router router(topology);
    CHECK(forms_of(topology, router).empty());
  }
}

}  // namespace
}  // namespace rackrail::planner::bypass_rings_test
