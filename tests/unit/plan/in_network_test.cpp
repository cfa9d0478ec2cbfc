// Which groups are one operation of switches: what the verifier refuses, and what it does not.
#include "plan/in_network.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "base/digest.hpp"
#include "base/error.hpp"
#include "plan/format.hpp"
#include "plan/verifier.hpp"
#include "topology/queries.hpp"

namespace rackrail::in_network_test {
namespace {

using plan::TransferGraph;
using plan::TransferOp;
using topology::Topology;

NodeId add_switch(Topology& t, const std::string& name, bool multicasts, bool reduces) {
  return t.add_node({.name = name,
                     .kind = topology::NodeKind::kSwitch,
                     .multicasts = multicasts,
                     .reduces = reduces});
}

void add_rank(Topology& t, NodeId at) {
  const NodeId gpu = t.add_node(
      {.name = "gpu" + std::to_string(t.rank_count()), .kind = topology::NodeKind::kGpu});
  t.add_rank(gpu);
  topology::Link link;
  link.from = gpu;
  link.to = at;
  link.bandwidth = Bandwidth(1'000'000'000);
  link.latency = Duration(1'000'000);
  t.add_duplex_link(link);
}

Topology star(int ranks, bool multicasts, bool reduces) {
  Topology t("star");
  const NodeId hub = add_switch(t, "hub", multicasts, reduces);
  for (int r = 0; r < ranks; ++r) add_rank(t, hub);
  return t;
}

/// Copies of one chunk out of rank 0, or additions into it, of all others.
TransferGraph one_group(const Topology& t, TransferOp op) {
  topology::Router router(t);
  const bool copies = op == TransferOp::kCopy;
  TransferGraph graph("one",
                      copies ? plan::Collective::kAllGather : plan::Collective::kReduceScatter,
                      t.rank_count(), {1});
  graph.set_owners({Rank(0)});
  for (std::uint32_t r = 1; r < t.rank_count(); ++r) {
    const Rank src = copies ? Rank(0) : Rank(r);
    const Rank dst = copies ? Rank(r) : Rank(0);
    graph.add_transfer(
        {.src = src, .dst = dst, .op = op, .route = graph.add_route(router.route(src, dst))}, {});
  }
  graph.add_group(TransferId(0), static_cast<std::uint32_t>(t.rank_count() - 1));
  return graph;
}

std::string problem(const TransferGraph& graph, const Topology* t) {
  const plan::VerifyReport report = plan::verify(graph, t);
  return report.ok() ? "" : report.problems.front();
}

TEST_CASE("A group needs switches that can do it where its routes part") {
  for (const bool able : {false, true}) {
    CAPTURE(able);
    const Topology multicasts = star(4, able, !able);
    CHECK(
        problem(one_group(multicasts, TransferOp::kCopy), &multicasts) ==
        (able ? "" : "group 0 (transfers 0 to 2): 'hub' would have to multicast, which it cannot"));
    CHECK(problem(one_group(multicasts, TransferOp::kReduce), &multicasts) ==
          (able ? "group 0 (transfers 0 to 2): 'hub' would have to reduce, which it cannot" : ""));
    CHECK(
        plan::InNetwork(one_group(multicasts, TransferOp::kCopy), multicasts).operations().size() ==
        (able ? 1 : 0));
  }
  // Without a topology nobody knows.
  const Topology plain = star(4, false, false);
  CHECK(problem(one_group(plain, TransferOp::kCopy), nullptr).empty());
}

TEST_CASE("An operation occupies each link of its tree once") {
  const Topology t = star(4, true, true);
  const TransferGraph graph = one_group(t, TransferOp::kReduce);
  const plan::InNetwork in_network(graph, t);
  REQUIRE(in_network.operations().size() == 1);
  CHECK(in_network.links(TransferId(0)).size() == 4);
  CHECK(in_network.links(TransferId(1)).empty());
  CHECK(!in_network.is_counted_elsewhere(TransferId(0)));
  CHECK(in_network.is_counted_elsewhere(TransferId(2)));
  CHECK(in_network.trees()[0].latency == Duration(2'000'000));
}

/// Ranks on a leaf that passes on only, under a spine that multicasts and reduces.
Topology under_a_spine(int ranks) {
  Topology t("under a spine");
  const NodeId leaf = add_switch(t, "leaf", false, false);
  for (int r = 0; r < ranks; ++r) add_rank(t, leaf);
  topology::Link cable;
  cable.from = leaf;
  cable.to = add_switch(t, "spine", true, true);
  cable.bandwidth = Bandwidth(1'000'000'000);
  t.add_duplex_link(cable);
  return t;
}

TEST_CASE("A switch works on what comes through others that only pass it on, link by link") {
  const Topology t = under_a_spine(4);
  const LinkId cable(8);  // and back: 9
  for (const TransferOp op : {TransferOp::kCopy, TransferOp::kReduce}) {
    const bool copies = op == TransferOp::kCopy;
    TransferGraph graph(
        "one", copies ? plan::Collective::kAllGather : plan::Collective::kReduceScatter, 4, {1});
    graph.set_owners({Rank(0)});
    for (std::uint32_t r = 1; r < 4; ++r) {
      const std::uint32_t src = copies ? 0 : r;
      const std::uint32_t dst = copies ? r : 0;
      const RouteId route =
          graph.add_route({LinkId(2 * src), cable, LinkId(9), LinkId(2 * dst + 1)});
      graph.add_transfer({.src = Rank(src), .dst = Rank(dst), .op = op, .route = route}, {});
    }
    graph.add_group(TransferId(0), 3);
    CHECK(problem(graph, &t).empty());
    const plan::InNetwork in_network(graph, t);
    REQUIRE(in_network.operations().size() == 1);
    const auto links = in_network.links(TransferId(0));
    // Three go up for a sum, and one comes down; the other way round for copies.
    CHECK(std::ranges::count(links, cable) == (copies ? 1 : 3));
    CHECK(std::ranges::count(links, LinkId(9)) == (copies ? 3 : 1));
    CHECK(links.size() == 8);
    CHECK(in_network.trees()[0].has_meeting_edges);
  }
  const Topology plain = star(4, true, true);
  CHECK_FALSE(
      plan::InNetwork(one_group(plain, TransferOp::kCopy), plain).trees()[0].has_meeting_edges);
}

TEST_CASE("Routes of a group are a tree with one link at the root, and not through ranks") {
  // Two switches that can do everything, both joined to every rank.
  Topology t("two");
  const NodeId a = add_switch(t, "a", true, true);
  const NodeId b = add_switch(t, "b", true, true);
  for (int r = 0; r < 3; ++r) add_rank(t, a);
  std::vector<LinkId> up;
  for (int r = 0; r < 3; ++r) {
    topology::Link link;
    link.from = t.node_of(Rank(r));
    link.to = b;
    link.bandwidth = Bandwidth(1'000'000'000);
    up.push_back(t.add_duplex_link(link));
  }
  const auto opposite = [](LinkId link) { return LinkId(link.value() + 1); };
  const auto over_a = [&](int r) { return LinkId(2 * r); };
  const auto graph_of = [&](std::vector<LinkId> to1, std::vector<LinkId> to2) {
    TransferGraph graph("g", plan::Collective::kAllGather, 3, {1});
    graph.set_owners({Rank(0)});
    graph.add_transfer({.src = Rank(0), .dst = Rank(1), .route = graph.add_route(to1)}, {});
    graph.add_transfer({.src = Rank(0), .dst = Rank(2), .route = graph.add_route(to2)}, {});
    graph.add_group(TransferId(0), 2);
    return graph;
  };
  const std::vector<LinkId> a1 = {over_a(0), opposite(over_a(1))};
  const std::vector<LinkId> a2 = {over_a(0), opposite(over_a(2))};
  const std::vector<LinkId> b2 = {up[0], opposite(up[2])};
  CHECK(problem(graph_of(a1, a2), &t).empty());
  CHECK(problem(graph_of(a1, b2), &t) ==
        "group 0 (transfers 0 to 1): 'gpu0' has more than one link of the tree");
  const std::vector<LinkId> through1 = {over_a(0), opposite(over_a(1)), up[1], opposite(up[2])};
  CHECK(problem(graph_of(a1, through1), &t) ==
        "group 0 (transfers 0 to 1): a route leads through 'gpu1', which is a rank");
}

TEST_CASE("Members of a group are of one kind, range and root, and wait for nothing in it") {
  const Topology t = star(4, true, true);
  topology::Router router(t);
  TransferGraph graph("g", plan::Collective::kAllReduce, 4, {1, 1});
  const auto route = [&](int src, int dst) {
    return graph.add_route(router.route(Rank(src), Rank(dst)));
  };
  const auto first = graph.add_transfer({.src = Rank(0), .dst = Rank(1), .route = route(0, 1)}, {});
  const auto check = [&](const plan::Transfer& second, std::vector<TransferId> after,
                         const std::string& expected) {
    TransferGraph other = graph;
    other.add_transfer(second, after);
    other.add_group(first, 2);
    CAPTURE(expected);
    const auto found = plan::problem_of(other, other.groups()[0]);
    CHECK(found.value_or("") == expected);
    CHECK(plan::InNetwork(other, t).operations().empty() == !expected.empty());
  };
  const RouteId to2 = route(0, 2);
  const RouteId from2 = route(2, 1);
  const std::string differs =
      "transfer 1 is not of the same kind, codec, range and root as transfer 0";
  check({.src = Rank(0), .dst = Rank(2), .route = to2}, {}, "");
  check({.src = Rank(0), .dst = Rank(2), .op = TransferOp::kReduce, .route = to2}, {}, differs);
  check({.src = Rank(0), .dst = Rank(2), .chunk_begin = 1, .route = to2}, {}, differs);
  check({.src = Rank(2), .dst = Rank(1), .route = from2}, {}, differs);
  check({.src = Rank(0), .dst = Rank(1), .route = to2}, {}, "rank 1 is in it twice");
  check({.src = Rank(0), .dst = Rank(2)}, {}, "transfer 1 has no pinned route");
  check({.src = Rank(0), .dst = Rank(2), .route = to2}, {first},
        "transfer 1 waits for transfer 0 of the same group");
}

TEST_CASE("A lossy code is multicast, but not added") {
  const Topology t = star(3, true, true);
  for (const TransferOp op : {TransferOp::kCopy, TransferOp::kReduce}) {
    topology::Router router(t);
    TransferGraph graph("g", plan::Collective::kAllReduce, 3, {1});
    const std::uint8_t fp16 = graph.add_codec({.kind = plan::CodecKind::kFp16});
    for (std::uint32_t r = 1; r < 3; ++r) {
      const Rank src = op == TransferOp::kCopy ? Rank(0) : Rank(r);
      const Rank dst = op == TransferOp::kCopy ? Rank(r) : Rank(0);
      graph.add_transfer({.src = src,
                          .dst = dst,
                          .op = op,
                          .codec = fp16,
                          .route = graph.add_route(router.route(src, dst))},
                         {});
    }
    graph.add_group(TransferId(0), 2);
    CHECK(plan::problem_of(graph, graph.groups()[0]).value_or("") ==
          (op == TransferOp::kCopy ? "" : "switches cannot add fp16"));
  }
}

plan::Plan plan_with_groups() {
  const Topology t = star(4, true, true);
  topology::Router router(t);
  TransferGraph graph("groups", plan::Collective::kAllReduce, 4, {1});
  std::vector<TransferId> sums;
  for (std::uint32_t r = 1; r < 4; ++r) {
    sums.push_back(graph.add_transfer({.src = Rank(r),
                                       .dst = Rank(0),
                                       .op = TransferOp::kReduce,
                                       .route = graph.add_route(router.route(Rank(r), Rank(0)))},
                                      {}));
  }
  for (std::uint32_t r = 1; r < 4; ++r) {
    graph.add_transfer(
        {.src = Rank(0), .dst = Rank(r), .route = graph.add_route(router.route(Rank(0), Rank(r)))},
        sums);
  }
  graph.add_group(TransferId(1), 2);  // one addition is outside
  graph.add_group(TransferId(3), 3);
  plan::Plan plan;
  plan.name = "groups";
  plan.cluster_name = t.name();
  plan.cluster_digest = t.digest();
  plan.rank_names = {"gpu0", "gpu1", "gpu2", "gpu3"};
  plan.workload_name = "w";
  plan.workload_digest = sha256_hex("w");
  plan.schedules = {graph};
  plan::Bucket bucket;
  bucket.tensors = {0};
  bucket.elements = 1000;
  bucket.slice_elements = 1024;
  plan.buckets = {bucket};
  plan.batch.local_batch.assign(4, 1);
  return plan;
}

TEST_CASE("Groups come back from both forms of a file") {
  const plan::Plan plan = plan_with_groups();
  for (const std::string& form : {plan::to_binary(plan), plan::to_json(plan)}) {
    const plan::Plan again = plan::parse_plan(form, "p");
    const auto groups = again.schedules[0].groups();
    REQUIRE(groups.size() == 2);
    CHECK(groups[0].first == TransferId(1));
    CHECK(groups[0].count == 2);
    CHECK(groups[1].first == TransferId(3));
    CHECK(groups[1].count == 3);
    CHECK(plan::to_binary(again) == plan::to_binary(plan));
  }
}

TEST_CASE("A file with groups that are none is refused with their place") {
  const std::string json = plan::to_json(plan_with_groups());
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string text = json;
    const std::size_t at = text.find(from);
    REQUIRE(at != std::string::npos);
    return text.replace(at, from.size(), to);
  };
  INFO(json);
  CHECK_THROWS_WITH(
      plan::parse_plan(with("\"group_counts\": [2, 3]", "\"group_counts\": [2, 4]"), "p"),
      Catch::Contains("group_counts[1]") && Catch::Contains("at least two of 6"));
  CHECK_THROWS_WITH(
      plan::parse_plan(with("\"group_counts\": [2, 3]", "\"group_counts\": [2]"), "p"),
      Catch::Contains("group_counts") && Catch::Contains("as of group_skips"));
}

TEST_CASE("Groups are made of transfers that exist, one after the other") {
  TransferGraph graph = one_group(star(5, true, true), TransferOp::kCopy);
  CHECK_THROWS_AS(graph.add_group(TransferId(3), 2), PlanError);
  graph.add_transfer({.src = Rank(0), .dst = Rank(1)}, {});
  CHECK_THROWS_AS(graph.add_group(TransferId(4), 1), PlanError);
  CHECK_THROWS_AS(graph.add_group(TransferId(4), 2), PlanError);
  graph.add_transfer({.src = Rank(0), .dst = Rank(2)}, {});
  CHECK_NOTHROW(graph.add_group(TransferId(4), 2));
  CHECK(graph.groups().size() == 2);
}

}  // namespace
}  // namespace rackrail::in_network_test
