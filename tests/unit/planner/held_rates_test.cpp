#include "planner/search/held_rates.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <set>
#include <vector>

#include "planner/algorithms/schedule_family.hpp"
#include "tests/support/clusters.hpp"
#include "topology/queries.hpp"

namespace rackrail::planner::held_rates_test {
namespace {

TEST_CASE("at proportional rates no link is asked for more than it has, and one is full") {
  const topology::Topology racks = test::racks({{5, 5}, {5, 5}}, {2, 2});
  topology::Router router(racks);
  for (const char* family : {"forest", "hierarchical", "ring"}) {
    for (const char* codec : {"none", "int8"}) {
      CAPTURE(family, codec);
      const plan::Codec across = plan::parse_codec(codec);
      const ScheduleFamily& of = schedule_family(family);
      if (of.refusal(racks, {plan::Codec{}, across})) {
        continue;
      }
      const plan::TransferGraph graph =
          of.all_reduce({.topology = racks, .router = router, .codecs = {plan::Codec{}, across}});
      REQUIRE_FALSE(graph.has_rates());
      const plan::TransferGraph rated = with_proportional_rates(graph, racks);
      REQUIRE(rated.transfers().size() == graph.transfers().size());
      std::map<LinkId, double> asked;
      std::set<std::vector<LinkId>> seen;
      for (std::size_t i = 1; i < rated.routes().size(); ++i) {
        CHECK(rated.rate(RouteId(i)) > Bandwidth());
        if (seen.insert(rated.routes()[i]).second) {
          for (const LinkId link : rated.routes()[i]) {
            asked[link] += rated.rate(RouteId(i)) / racks.link(link).bandwidth;
          }
        }
      }
      double fullest = 0;
      for (const auto& [link, share] : asked) {
        CHECK(share <= 1 + 1e-6);
        fullest = std::max(fullest, share);
      }
      CHECK(fullest > 1 - 1e-6);
    }
  }
}

TEST_CASE("rates are worth something where ranks are alike and values keep 16 bits") {
  const auto gains = [](const topology::Topology& cluster, const char* codec) {
    topology::Router router(cluster);
    const plan::Codec of_all = plan::parse_codec(codec);
    return gains_from_rates(
        schedule_family("hierarchical")
            .all_reduce({.topology = cluster, .router = router, .codecs = {of_all, of_all}}),
        cluster);
  };
  const topology::Topology even = test::racks({{5, 5}, {5, 5}}, {2, 2});
  CHECK(gains(even, "none"));
  CHECK(gains(even, "fp16"));
  CHECK_FALSE(gains(even, "int8"));
  CHECK_FALSE(gains(test::racks({{5, 10}, {5, 5}}, {2, 2}), "none"));
}

TEST_CASE("a link is crowded where it is the busiest and four streams meet there") {
  const auto crowds = [](const topology::Topology& cluster, const char* family) {
    topology::Router router(cluster);
    return is_crowded(
        schedule_family(family).all_reduce({.topology = cluster, .router = router, .codecs = {}}),
        cluster);
  };
  const topology::Topology four = test::racks({{5, 5, 5, 5}, {5, 5, 5, 5}}, {2, 2});
  CHECK(crowds(four, "hierarchical"));
  CHECK_FALSE(crowds(four, "ring"));  // one sends out of each rack
  CHECK_FALSE(crowds(test::racks({{5, 5}, {5, 5}}, {2, 2}), "hierarchical"));
  // Six ranks send into a rack, over three links that are as busy; then ten, over five.
  CHECK_FALSE(crowds(test::racks({{5, 5}, {5, 5}, {5, 5}, {5, 5}}, {2, 2, 2, 2}), "hierarchical"));
  CHECK(crowds(test::racks({{5, 5}, {5, 5}, {5, 5}, {5, 5}, {5, 5}, {5, 5}}, {2, 2, 2, 2, 2, 2}),
               "hierarchical"));
}

TEST_CASE("what may gain from rates and has none is judged to take longer") {
  const topology::Topology four = test::racks({{5, 5, 5, 5}, {5, 5, 5, 5}}, {2, 2});
  topology::Router router(four);
  const plan::TransferGraph free =
      schedule_family("hierarchical")
          .all_reduce({.topology = four, .router = router, .codecs = {}});
  const plan::TransferGraph rated = with_proportional_rates(free, four);
  const std::int64_t fits = kMostAtOnce.count() / 4;
  const Duration longer = scaled(kLongForRates, kMostForSharedRates);
  CHECK(judged_by_rates(kLongForRates, free, fits, four) == longer);
  CHECK(judged_by_rates(kLongForRates, rated, fits, four) == kLongForRates);
  CHECK(judged_by_rates(kLongForRates, rated, fits + 1, four) ==
        scaled(scaled(kLongForRates, kMostForShortMessages), kMostForSharedRates));
  const Duration brief = kLongForRates - Duration(1);
  CHECK(judged_by_rates(brief, free, fits + 1, four) == brief);
}

TEST_CASE("what all others send to one at once without rates is judged to take longer") {
  const std::int64_t fits = kMostAtOnce.count() / 4;
  const auto judged = [&](const topology::Topology& cluster, const char* family, bool is_rated) {
    topology::Router router(cluster);
    const plan::TransferGraph graph =
        schedule_family(family).all_reduce({.topology = cluster, .router = router, .codecs = {}});
    return judged_by_rates(100_ms, is_rated ? with_proportional_rates(graph, cluster) : graph, fits,
                           cluster);
  };
  // Uneven racks, where rates are worth nothing else.
  const topology::Topology four = test::racks({{5, 5, 5}, {10}}, {5, 5});
  CHECK(judged(four, "parameter-server", false) == scaled(100_ms, kMostForRates));
  CHECK(judged(four, "parameter-server", true) == 100_ms);
  CHECK(judged(four, "ring", false) == 100_ms);
  const topology::Topology three = test::racks({{5, 5}, {10}}, {5, 5});
  CHECK(judged(three, "parameter-server", false) == 100_ms);  // two others
}

TEST_CASE("judged are messages as long as they are sent, and what gains from rates only") {
  const auto judge = [](const topology::Topology& cluster, const char* codec, bool is_rated,
                        std::int64_t elements) {
    topology::Router router(cluster);
    const plan::Codec used = plan::parse_codec(codec);
    const plan::TransferGraph graph =
        schedule_family("hierarchical")
            .all_reduce({.topology = cluster, .router = router, .codecs = {used, used}});
    return judged_by_rates(100_ms, is_rated ? with_proportional_rates(graph, cluster) : graph,
                           elements, cluster);
  };
  const std::int64_t fits = kMostAtOnce.count() / 2;  // in FP16
  const topology::Topology four = test::racks({{5, 5, 5, 5}, {5, 5, 5, 5}}, {2, 2});
  CHECK(judge(four, "fp16", true, fits) == 100_ms);
  CHECK(judge(four, "fp16", true, fits + 1) == scaled(100_ms, 1.005 * 1.05));
  // Of those that gain nothing from rates short messages are preferred, too.
  CHECK(judge(four, "int8", false, 4 * fits) == scaled(100_ms, kMostForShortMessages));
  CHECK(judge(four, "int8", false, fits) == 100_ms);
  // Where no link is crowded, all are judged alike, rates or not.
  const topology::Topology two = test::racks({{5, 5}, {5, 5}}, {2, 2});
  CHECK(judge(two, "none", false, fits) == judge(two, "none", true, fits));
  CHECK(judge(test::racks({{5, 5, 5, 2}, {5, 5, 5, 5}}, {2, 2}), "none", false, fits / 2) ==
        100_ms);
}

TEST_CASE("many senders are all others, four at least, that wait for nothing") {
  const auto has_many = [](const topology::Topology& cluster, const char* family) {
    topology::Router router(cluster);
    return has_many_senders(
        schedule_family(family).all_reduce({.topology = cluster, .router = router, .codecs = {}}));
  };
  const topology::Topology five = test::racks({{5, 5, 5, 5, 5}}, {5});
  CHECK(has_many(five, "parameter-server"));
  CHECK_FALSE(has_many(five, "ring"));
  CHECK_FALSE(has_many(test::racks({{5, 5, 5, 5}}, {5}), "parameter-server"));
  CHECK_FALSE(has_many(test::racks({{5, 5, 5, 5}, {5, 5, 5, 5}}, {5, 5}), "hierarchical"));
}

}  // namespace
}  // namespace rackrail::planner::held_rates_test
