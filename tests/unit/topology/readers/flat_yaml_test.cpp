#include <catch2/catch.hpp>
#include <string>

#include "tests/unit/topology/graphs.hpp"
#include "topology/reader.hpp"

namespace rackrail::flat_yaml_test {

using namespace rackrail;
using namespace rackrail::topology;
using topology::test::error_of;
using topology::test::TextFile;

namespace {

Topology read_text(const std::string& text) {
  return read_cluster(TextFile("flat.yaml", text).path()).topology;
}

const std::string kNodes =
    "nodes:\n- {name: a, kind: gpu}\n- {name: b, kind: gpu}\n- {name: s, kind: tor}\n";

}  // namespace

TEST_CASE("every shipped cluster survives the flat form to the digest") {
  for (const std::string& name : shipped_clusters()) {
    CAPTURE(name);
    const Topology original = read_cluster(name).topology;
    const Topology again = read_text(to_flat_yaml(original));
    CHECK(again.digest() == original.digest());
    CHECK(again.name() == original.name());
  }
}

TEST_CASE("odd names, ranks out of order, processors and one-way links survive the flat form") {
  Topology t("a name: with # oddities \"quoted\" \\ and\ttabs");
  std::vector<NodeId> ids;
  for (const char* name : {"yes", "null", "~", "1.5", "a→b", "[x]", "- y", " z ", "q'\"", "true"}) {
    Node node;
    node.name = name;
    node.kind = NodeKind::kGpu;
    node.host = "host: #1";
    node.rack = "";
    node.device_class = "A 100";
    node.memory = Bytes((1LL << 53) + 1);
    node.host_staging = Bandwidth(24'000'000'001);
    node.multicasts = ids.size() % 2 == 0;
    node.reduces = ids.size() % 3 == 0;
    ids.push_back(t.add_node(node));
  }
  for (std::size_t i = ids.size(); i-- > 0;) t.add_rank(ids[i]);
  for (std::size_t i = 0; i < ids.size(); ++i) {
    Link link;
    link.from = ids[i];
    link.to = ids[(i + 1) % ids.size()];
    link.bandwidth = Bandwidth(999'999'999'999 + static_cast<std::int64_t>(i));
    link.latency = Duration(static_cast<std::int64_t>(i));
    link.kind = LinkKind::kOther;
    link.tier = "tier, {" + std::to_string(i) + "}";
    link.overhead = Duration(7);
    link.burst = Bytes(65'536 + static_cast<std::int64_t>(i));
    link.cpu_share = 0.1 + 0.2;
    t.add_link(link);
    link.kind = LinkKind::kShared;
    if (i == 3) t.add_duplex_link(link);
  }
  t.set_processor(Rank(2), LinkId(1));
  const Topology again = read_text(to_flat_yaml(t));
  CHECK(again.digest() == t.digest());
  CHECK(again.name() == t.name());
  CHECK(again.node_of(Rank(0)) == ids.back());
}

TEST_CASE("without rank numbers all GPUs and hosts are ranks") {
  const Topology t = read_text(
      kNodes +
      "links:\n- {from: a, to: s, bandwidth: 1 GB/s, latency: 1 us, duplex: true}\n"
      "- {from: b, to: s, bandwidth: 8 Gbit/s, latency: 1 us, kind: host-link, tier: nic, "
      "overhead: 2 us, cpu_share: 35 %, duplex: true}\n");
  CHECK(t.rank_count() == 2);
  CHECK(t.link_count() == 4);
  CHECK(t.link(LinkId(3)).bandwidth == 1_GBps);
  CHECK(t.link(LinkId(3)).cpu_share == Approx(0.35));
  CHECK(t.link(LinkId(3)).kind == LinkKind::kHostLink);
}

TEST_CASE("a link class cannot build upon itself, except on a preset of its name") {
  const auto read = [](const std::string& name) {
    return read_text("link_classes:\n  " + name + ": { link: " + name +
                     ", bandwidth: 50 Gbit/s }\nnode_types:\n  a: { rank: host, nics: { link: " +
                     name + " } }\nracks: { hosts: 2 }\nname: c\n");
  };
  CHECK_THAT(error_of([&] { read("slow"); }),
             Catch::Contains("flat.yaml: ") &&
                 Catch::Contains("line 2, link_classes.slow.link: found 'slow' itself, expected "
                                 "another link class"));
  CHECK(read("tcp").rank_count() == 2);
}

TEST_CASE("mistakes in the flat form are named with their line") {
  const auto [text, expected] = GENERATE(table<std::string, std::string>({
      {"nodes:\n- {name: a, kind: gpu}\n- {name: a, kind: gpu}\n", "line 3"},
      {"nodes:\n- {name: a, kind: toaster}\n", "found 'toaster', expected one of gpu"},
      {"nodes:\n- {kind: gpu}\n", "no 'name'"},
      {"nodes:\n- {name: a, kind: gpu, colour: red}\n", "unknown key 'colour'"},
      {"nodes:\n- {name: a, kind: gpu, rank: 1}\n", "ranks from 0 without a gap"},
      {"nodes:\n- {name: a, kind: gpu, rank: 0}\n- {name: b, kind: gpu, rank: 0}\n",
       "each rank once"},
      {"nodes:\n- {name: a, kind: gpu, memory: 16}\n", "found '16', expected a size with a unit"},
      {"nodes:\n- {name: s, kind: tor}\n", "no rank"},
      {"nodes: []\n", "no rank"},
      {"nodes: 3\n", "found '3', expected a list"},
      {"links: []\n", "no 'nodes'"},
      {kNodes + "links:\n- {from: a, to: x, bandwidth: 1 GB/s, latency: 1 us}\n",
       "line 6, links[0].to: found 'x'"},
      {kNodes + "links:\n- {from: a, to: a, bandwidth: 1 GB/s, latency: 1 us}\n", "line 6"},
      {kNodes + "links:\n- {from: a, to: b, bandwidth: 100, latency: 1 us}\n",
       "found '100', expected a rate with a unit"},
      {kNodes + "links:\n- {from: a, to: b, bandwidth: 0 GB/s, latency: 1 us}\n", "above 0"},
      {kNodes + "links:\n- {from: a, to: b, bandwidth: 1 GB/s, latency: -1 us}\n", "'-1 us'"},
      {kNodes + "links:\n- {from: a, to: b, bandwidth: 1 GB/s, latency: 1 us}\n", "a | b"},
      {"nodes:\n- {name: a, kind: gpu, processor: 0}\n", "no links"},
  }));
  CAPTURE(text);
  CHECK_THAT(error_of([&, t = text] { read_text(t); }),
             Catch::Contains("flat.yaml: ") && Catch::Contains(expected));
}

}  // namespace rackrail::flat_yaml_test
