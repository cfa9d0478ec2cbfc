// The in-network family on random clusters whose switches have random abilities: right, as fast as
// it says, and never faster than the bound.
#include <algorithm>
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "base/random.hpp"
#include "plan/alpha_beta.hpp"
#include "plan/in_network.hpp"
#include "plan/verifier.hpp"
#include "planner/algorithms/schedule_family.hpp"
#include "sim/simulator.hpp"
#include "tests/property/topology/random_topology.hpp"
#include "tests/support/tree_loads.hpp"
#include "topology/linear_program.hpp"
#include "topology/queries.hpp"

namespace rackrail::planner::in_network_property_test {
namespace {

using topology::Topology;

constexpr std::int64_t kElements = 3 * 5 * 7 * 8 * 1024;
constexpr std::int64_t kMostTransfers =
    5000;  // of forms that are looked at; others are finer alike

class Dice {
 public:
  explicit Dice(std::uint64_t seed) : seed_(seed) {}
  int below(int limit) {
    return static_cast<int>(random_bits(seed_, counter_++) % static_cast<std::uint64_t>(limit));
  }

 private:
  std::uint64_t seed_;
  std::uint64_t counter_ = 1'000'000;
};

/// Two of three switches multicast, and two reduce; or all do.
void give_abilities(Topology& t, Dice& dice, bool all = false) {
  for (std::size_t v = 0; v < t.node_count(); ++v) {
    topology::Node node = t.node(NodeId(v));
    if (!t.rank_of(NodeId(v))) {
      node.multicasts = all || dice.below(3) > 0;
      node.reduces = all || dice.below(3) > 0;
      t.set_node_properties(NodeId(v), node);
    }
  }
}

void join(Topology& t, NodeId a, NodeId b, int rate) {
  topology::Link link;
  link.from = a;
  link.to = b;
  link.bandwidth = Bandwidth(std::int64_t{1'000'000'000} * rate);
  link.latency = Duration(1'000'000);
  link.overhead = Duration(300'000);
  t.add_duplex_link(link);
}

/// Hosts of up to three ranks on a switch of their own, each rank also under one of up to three
/// leaves, which are under up to three spines.
Topology random_clos(std::uint64_t seed, Dice& dice) {
  Topology t("random clos " + std::to_string(seed));
  const auto add = [&](const std::string& name, topology::NodeKind kind, const std::string& host) {
    return t.add_node({.name = name, .kind = kind, .host = host});
  };
  std::vector<NodeId> leaves;
  const int spines = 1 + dice.below(3);
  for (int l = 1 + dice.below(3); l > 0; --l) {
    leaves.push_back(add("leaf" + std::to_string(l), topology::NodeKind::kTor, ""));
  }
  for (int s = 0; s < spines; ++s) {
    const NodeId spine = add("spine" + std::to_string(s), topology::NodeKind::kSpine, "");
    for (const NodeId leaf : leaves) join(t, leaf, spine, 1 + dice.below(10));
  }
  const int ranks = 1 + dice.below(3);
  const int hosts = 2 + dice.below(3);
  for (int h = 0; h < hosts; ++h) {
    const std::string host = "host" + std::to_string(h);
    const NodeId inside = add(host + ".switch", topology::NodeKind::kNvSwitch, host);
    for (int r = 0; r < ranks; ++r) {
      const NodeId gpu = t.add_node({.name = host + ".gpu" + std::to_string(r),
                                     .kind = topology::NodeKind::kGpu,
                                     .host = host,
                                     .device_class = "H100"});
      t.add_rank(gpu);
      join(t, gpu, inside, 10);
      join(t, gpu, leaves[static_cast<std::size_t>(dice.below(static_cast<int>(leaves.size())))],
           1 + dice.below(10));
    }
  }
  return t;
}

/// Bytes per second of the buffer that the fullest link leaves room for.
double rate_by_links(const plan::TransferGraph& graph, const Topology& t) {
  const plan::InNetwork operations(graph, t);
  std::vector<double> load(t.link_count());
  for (std::size_t i = 0; i < graph.transfers().size(); ++i) {
    const double share =
        static_cast<double>(graph.range(graph.transfers()[i], kElements).size()) / kElements;
    for (const LinkId link : operations.links(TransferId(i))) load[link.index()] += share;
  }
  return test::rate_of_worst_link(t, load);
}

/// How many graphs the family made, and what share of the optimum the links leave room for.
struct Made {
  std::size_t graphs = 0;
  double share = 0;
};

/// Checks each graph.
Made check(const Topology& t) {
  const ScheduleFamily& family = schedule_family("in-network");
  Made made;
  if (family.refusal(t, {})) {
    return made;
  }
  topology::Router router(t);
  const auto bound =
      static_cast<double>(topology::joint_allreduce_bound(t, true).algbw.bytes_per_second());
  for (const CollectiveForm& form :
       family.collectives(plan::Collective::kAllReduce, {t, router, {}})) {
    if (form.shape().transfers > kMostTransfers) continue;
    const plan::TransferGraph& graph = form.graph();
    ++made.graphs;
    made.share = std::max(made.share, rate_by_links(graph, t) / bound);
    CHECK(!graph.groups().empty());
    CHECK(plan::verify(graph, &t).problems == std::vector<std::string>{});
    const Duration time = sim::simulate_collective(graph, kElements, 8192, t, {}).time;
    // The bound is exact to about 1e-6.
    CHECK(time.seconds() * bound >= kElements * 4 * (1 - 1e-5));
    CHECK(plan::alpha_beta(graph, t).at_least(kElements) <= time);
  }
  CHECK(made.share <= 1 + 1e-5);
  return made;
}

TEST_CASE("in-network all-reduces on random graphs are right and not faster than the bound") {
  std::size_t checked = 0;
  for (std::uint64_t seed = 0; seed < 500; ++seed) {
    CAPTURE(seed);
    Topology t = topology::test::random_topology(seed, 7, 5);
    Dice dice(seed);
    give_abilities(t, dice);
    checked += check(t).graphs;
  }
  CHECK(checked > 40);
}

TEST_CASE("in-network all-reduces on random Clos networks are right and not faster than the bound",
          "[slow]") {
  std::size_t checked = 0;
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    CAPTURE(seed);
    Dice dice(seed);
    Topology t = random_clos(seed, dice);
    give_abilities(t, dice);
    checked += check(t).graphs;
  }
  CHECK(checked > 150);
}

/// Racks of up to five hosts with as many NICs of one rate each as there are planes, each plane
/// with a spine and a leaf for each rack, oversubscribed or not. All switches reduce and multicast.
Topology random_planes(std::uint64_t seed, Dice& dice) {
  Topology t("random planes " + std::to_string(seed));
  const auto add = [&](const std::string& name, topology::NodeKind kind) {
    return t.add_node({.name = name, .kind = kind, .multicasts = true, .reduces = true});
  };
  const int spines = 1 + dice.below(4);
  const int nic = 1 + dice.below(10);
  std::vector<NodeId> all_spines;
  for (int s = 0; s < spines; ++s) {
    all_spines.push_back(add("spine" + std::to_string(s), topology::NodeKind::kSpine));
  }
  for (int rack = 3 + dice.below(3); rack > 0; --rack) {
    const NodeId leaf = add("leaf" + std::to_string(rack), topology::NodeKind::kTor);
    const int uplink = 1 + dice.below(10);
    for (const NodeId spine : all_spines) join(t, leaf, spine, uplink);
    for (int host = 1 + dice.below(5); host > 0; --host) {
      const std::string name = "host" + std::to_string(rack) + "." + std::to_string(host);
      const NodeId gpu = t.add_node({.name = name, .kind = topology::NodeKind::kGpu, .host = name});
      t.add_rank(gpu);
      join(t, gpu, leaf, nic);
    }
  }
  return t;
}

TEST_CASE("where all switches of a Clos network add and copy, trees have the optimum") {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    CAPTURE(seed);
    Dice dice(seed);
    const Made made = check(random_planes(seed, dice));
    CHECK(made.graphs > 0);
    CHECK(made.share >= 0.98);
  }
}

/// Racks of unlike numbers of hosts with NICs of unlike rates, some with a second one in another
/// rack. Cables between leaves and spines are of unlike rates, some double, some missing. All
/// switches reduce and multicast.
Topology random_irregular(std::uint64_t seed, Dice& dice) {
  Topology t("random irregular " + std::to_string(seed));
  const auto add = [&](const std::string& name, topology::NodeKind kind) {
    return t.add_node({.name = name, .kind = kind, .multicasts = true, .reduces = true});
  };
  std::vector<NodeId> spines;
  for (int s = 1 + dice.below(4); s > 0; --s) {
    spines.push_back(add("spine" + std::to_string(s), topology::NodeKind::kSpine));
  }
  std::vector<NodeId> leaves;
  for (int l = 2 + dice.below(3); l > 0; --l) {
    leaves.push_back(add("leaf" + std::to_string(l), topology::NodeKind::kTor));
    for (const NodeId spine : spines) {
      const bool is_missing = spine != spines[0] && dice.below(5) == 0;
      for (int cable = is_missing ? 0 : 1 + dice.below(8) / 7; cable > 0; --cable) {
        join(t, leaves.back(), spine, 1 + dice.below(5));
      }
    }
  }
  for (std::size_t rack = 0; rack < leaves.size(); ++rack) {
    for (int host = 1 + dice.below(4); host > 0; --host) {
      const std::string name = "host" + std::to_string(rack) + "." + std::to_string(host);
      const NodeId gpu = t.add_node({.name = name, .kind = topology::NodeKind::kGpu, .host = name});
      t.add_rank(gpu);
      join(t, gpu, leaves[rack], 5 + dice.below(6));
      if (dice.below(4) == 0) {
        join(t, gpu, leaves[(rack + 1) % leaves.size()], 1 + dice.below(5));
      }
    }
  }
  return t;
}

/// What share of the optimum the links leave room for; where what ranks send one by one is best, it
/// is a forest.
double best_share(const Topology& t) {
  const Made made = check(t);
  if (made.share >= 0.995) return made.share;
  topology::Router router(t);
  const auto bound =
      static_cast<double>(topology::joint_allreduce_bound(t, true).algbw.bytes_per_second());
  double share = made.share;
  for (const CollectiveForm& form :
       schedule_family("forest").collectives(plan::Collective::kAllReduce, {t, router, {}})) {
    if (form.shape().transfers <= kMostTransfers) {
      share = std::max(share, rate_by_links(form.graph(), t) / bound);
    }
  }
  return share;
}

bool has_no_solver() {
  if (topology::LinearProgram::is_available()) return false;
  WARN("skipped: built without a solver for linear programs");
  return true;
}

TEST_CASE("on irregular Clos networks of switches that add and copy trees have the optimum",
          "[slow]") {
  if (has_no_solver()) return;
  std::size_t checked = 0;
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    CAPTURE(seed);
    Dice dice(seed);
    const Topology t = random_irregular(seed, dice);
    if (t.rank_count() < 3) continue;
    CHECK(best_share(t) >= 0.995);
    ++checked;
  }
  CHECK(checked > 150);
}

TEST_CASE("over unlike links of hosts whose switches all add and copy trees have the optimum",
          "[slow]") {
  if (has_no_solver()) return;
  std::size_t checked = 0;
  for (std::uint64_t seed = 0; seed < 120; ++seed) {
    CAPTURE(seed);
    Dice dice(seed);
    Topology t = random_clos(seed, dice);
    give_abilities(t, dice, true);
    if (t.rank_count() < 3) continue;
    CHECK(best_share(t) >= 0.995);
    ++checked;
  }
  CHECK(checked > 90);
}

// A spine adds what its only leaf passes on one by one, whose cable then has it all.
TEST_CASE("where some switches cannot, trees mostly have the optimum all the same", "[slow]") {
  if (has_no_solver()) return;
  std::size_t checked = 0;
  std::size_t good = 0;
  for (std::uint64_t seed = 0; seed < 120; ++seed) {
    CAPTURE(seed);
    Dice dice(seed);
    Topology t = random_clos(seed, dice);
    give_abilities(t, dice);
    if (t.rank_count() < 3) continue;
    if (schedule_family("in-network").refusal(t, {})) continue;
    const double share = best_share(t);
    CHECK(share >= 0.95);
    good += share >= 0.98 ? 1 : 0;
    ++checked;
  }
  CHECK(checked > 90);
  CHECK(good * 100 >= checked * 96);
}

}  // namespace
}  // namespace rackrail::planner::in_network_property_test
