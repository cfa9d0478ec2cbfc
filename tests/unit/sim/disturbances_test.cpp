// What goes wrong with links, and what other traffic takes of them, against closed forms.
#include "sim/disturbances.hpp"

#include <catch2/catch.hpp>
#include <cmath>

#include "base/error.hpp"
#include "sim/simulator.hpp"
#include "tests/unit/sim/pair_job.hpp"

namespace rackrail::sim::disturbances_test {
namespace {

using test::four_megabytes;
using test::Job;
using test::kForth;
using test::network_only;
using test::pair;
using topology::NodeKind;
using topology::Topology;

TEST_CASE("a link that gets slower in the middle of a message") {
  SimulationOptions options = network_only();
  options.network = GENERATE(NetworkLevel::kFlow, NetworkLevel::kPacket);
  // 2 ms at the full rate, then the other 2 MB at half of it: 4 ms.
  options.disturbances.capacity = {{2_ms, kForth, Bandwidth(500'000'000)}};
  CHECK(four_megabytes(options).time.seconds() == Approx(6e-3).epsilon(1e-3));
}

TEST_CASE("a link that is cut for a while delays by that while") {
  SimulationOptions options = network_only();
  options.network = GENERATE(NetworkLevel::kFlow, NetworkLevel::kPacket);
  options.disturbances.capacity = {{1_ms, kForth, Bandwidth(0)},
                                   {8_ms, kForth, Bandwidth(1'000'000'000)}};
  CHECK(four_megabytes(options).time.seconds() == Approx(11e-3).epsilon(1e-3));
}

// What a link carries in the time that 4 MB take, at either level, and for senders of every kind.
struct Changing {
  const char* what;
  std::vector<CapacityChange> capacity;
  double seconds;
};

Changing flapping() {
  Changing changing{"up for 2 us of every 10", {}, 20e-3 - 8e-6};
  for (int i = 0; i < 4000; ++i) {
    changing.capacity.push_back({10_us * i, kForth, Bandwidth(1'000'000'000)});
    changing.capacity.push_back({10_us * i + 2_us, kForth, Bandwidth(0)});
  }
  return changing;
}

TEST_CASE("packets, too, take what a link carries while it changes, no less and no more") {
  const Changing changing = GENERATE(
      flapping(),
      Changing{"hardly anything for a millisecond",
               {{1_ms, kForth, Bandwidth(1000)}, {2_ms, kForth, Bandwidth(1'000'000'000)}},
               5e-3},
      Changing{
          "slow from the beginning on",
          {{Duration(), kForth, Bandwidth(1'000'000)}, {5_ms, kForth, Bandwidth(1'000'000'000)}},
          9e-3 - 5e-6},
      Changing{"four times as fast", {{Duration(), kForth, Bandwidth(4'000'000'000)}}, 1e-3},
      Changing{"faster later", {{2_ms, kForth, Bandwidth(4'000'000'000)}}, 2.5e-3},
      Changing{"half, then cut, then full",
               {{1_ms, kForth, Bandwidth(500'000'000)},
                {3_ms, kForth, Bandwidth(0)},
                {4_ms, kForth, Bandwidth(1'000'000'000)}},
               6e-3});
  SimulationOptions options = network_only();
  options.disturbances.capacity = changing.capacity;
  SECTION("flows") { options.network = NetworkLevel::kFlow; }
  SECTION("DCQCN") { options.network = NetworkLevel::kPacket; }
  SECTION("without rate control") {
    options.network = NetworkLevel::kPacket;
    options.packets.rate_control = RateControl::kNone;
  }
  SECTION("trimming") {
    options.network = NetworkLevel::kPacket;
    options.packets.overload = Overload::kTrim;
  }
  CAPTURE(changing.what);
  const CollectiveResult result = four_megabytes(options);
  CHECK(result.time.seconds() >= changing.seconds * (1 - 1e-6));
  CHECK(result.time.seconds() == Approx(changing.seconds).epsilon(1e-3).margin(5e-6));
  REQUIRE(result.links.size() == 1);
  CHECK(result.links[0].utilization <= 1 + 1e-9);
}

TEST_CASE("a sender that a slow link held back is at full rate soon after") {
  // Host a sends to b over a switch whose link to b carries a megabyte a second for a millisecond.
  Topology topology("three");
  const NodeId hub = topology.add_node({.name = "hub", .kind = NodeKind::kTor});
  LinkId down;
  for (const char* name : {"a", "b"}) {
    const NodeId host = topology.add_node({.name = name, .kind = NodeKind::kHost, .host = name});
    topology.add_rank(host);
    topology.add_link({.from = host, .to = hub, .bandwidth = Bandwidth(1'000'000'000)});
    down = topology.add_link({.from = hub, .to = host, .bandwidth = Bandwidth(1'000'000'000)});
  }
  plan::TransferGraph graph("one way", plan::Collective::kAllReduce, 2, {1});
  graph.add_transfer({.src = Rank(0), .dst = Rank(1), .route = graph.add_route({})}, {});
  SimulationOptions options = network_only();
  options.disturbances.capacity = {{1_ms, down, Bandwidth(1'000'000)},
                                   {2_ms, down, Bandwidth(1'000'000'000)}};
  const auto seconds = [&](NetworkLevel network) {
    options.network = network;
    return simulate_collective(graph, 4'000'000, 4'000'000, topology, options).time.seconds();
  };
  CHECK(seconds(NetworkLevel::kFlow) == Approx(17e-3).epsilon(1e-3));
  CHECK(seconds(NetworkLevel::kPacket) == Approx(17e-3).epsilon(0.05));
}

TEST_CASE("a link may carry hardly anything for a while") {
  SimulationOptions options = network_only();
  options.network = GENERATE(NetworkLevel::kFlow, NetworkLevel::kPacket);
  // At a byte per second 200 MB would take more than six years.
  options.disturbances.background = {
      {.src = Rank(0), .dst = Rank(1), .message = Bytes(200'000'000), .start = 1_us}};
  options.disturbances.capacity = {{1_ms, kForth, Bandwidth(1)},
                                   {1000_ms, kForth, Bandwidth(1'000'000'000)}};
  CHECK(four_megabytes(options).time.seconds() == Approx(1.006).epsilon(2e-3));
  options.disturbances.capacity.pop_back();
  options.disturbances.capacity[0].bandwidth = Bandwidth(0);
  CHECK_THROWS_WITH(four_megabytes(options), Catch::Contains("a→b"));
}

TEST_CASE("what would take months says so, whatever else moves") {
  SimulationOptions options = network_only();
  options.disturbances.capacity = {{Duration(), LinkId(1), Bandwidth(1'000'000'000)},
                                   {1_ms, kForth, Bandwidth(1)}};
  options.disturbances.background = {
      {.src = Rank(0), .dst = Rank(1), .message = Bytes(200'000'000), .start = 1_us},
      {.src = Rank(1), .dst = Rank(0), .message = Bytes(10'000)}};
  plan::TransferGraph graph("one way", plan::Collective::kAllReduce, 2, {1});
  graph.add_transfer({.src = Rank(0), .dst = Rank(1), .route = graph.add_route({})}, {});
  CHECK_THROWS_WITH(simulate_collective(graph, 10'000'000, 10'000'000, pair(), options),
                    Catch::Contains("a→b would take more than 104 days"));
}

// At the packet level a packet of 4 KiB takes 68 minutes at a byte per second, in which others send
// a thousand million of them; at the flow level a message of others takes 10 us.
TEST_CASE("a link that carries hardly anything beside traffic back to back ends with an error") {
  SimulationOptions options = network_only();
  options.disturbances.capacity = {{1_ms, kForth, Bandwidth(1)}};
  options.disturbances.background = {{.src = Rank(1), .dst = Rank(0), .message = Bytes(1'000'000)}};
  options.network = NetworkLevel::kPacket;
  CHECK_THROWS_WITH(four_megabytes(options),
                    Catch::Contains("take too long") && Catch::Contains("rank 0 → rank 1 on a→b") &&
                        Catch::Contains("1.00 B/s") && Catch::Contains("flow level"));
  options.network = NetworkLevel::kFlow;
  options.disturbances.background[0].message = Bytes(10'000);
  CHECK_THROWS_WITH(four_megabytes(options),
                    Catch::Contains("take too long") && Catch::Contains("rank 0 → rank 1 on a→b"));
}

TEST_CASE("a slow link beside traffic back to back is waited for where that can be seen") {
  SimulationOptions options = network_only();
  options.network = GENERATE(NetworkLevel::kFlow, NetworkLevel::kPacket);
  options.disturbances.background = {{.src = Rank(1), .dst = Rank(0), .message = Bytes(1'000'000)}};
  // 3 MB at 10 MB/s: 0.3 s, for which others take 0.15 million packets at two events a link.
  options.disturbances.capacity = {{1_ms, kForth, Bandwidth(10'000'000)}};
  CHECK(four_megabytes(options).time.seconds() == Approx(0.301).epsilon(2e-3));
  // At a byte per second, but not for long: in these seconds it is looked more than once.
  options.disturbances.capacity = {{1_ms, kForth, Bandwidth(1)},
                                   {3000_ms, kForth, Bandwidth(1'000'000'000)}};
  options.disturbances.background[0].message = Bytes(10'000);
  CHECK(four_megabytes(options).time.seconds() == Approx(3.003).epsilon(2e-3));
}

TEST_CASE("a link that is cut before the message starts and comes back") {
  SimulationOptions options = network_only();
  options.disturbances.capacity = {{Duration(), kForth, Bandwidth(0)},
                                   {3_ms, kForth, Bandwidth(2'000'000'000)}};
  CHECK(four_megabytes(options).time.seconds() == Approx(5e-3).epsilon(1e-3));
}

TEST_CASE("a link that stays cut is an error that names it, whatever else moves") {
  SimulationOptions options = network_only();
  options.network = GENERATE(NetworkLevel::kFlow, NetworkLevel::kPacket);
  options.disturbances.capacity = {{1_ms, kForth, Bandwidth(0)}};
  if (GENERATE(false, true)) {
    options.disturbances.background = {{.src = Rank(1), .dst = Rank(0), .message = Bytes(100'000)}};
  }
  CHECK_THROWS_AS(four_megabytes(options), SimulationError);
  CHECK_THROWS_WITH(four_megabytes(options), Catch::Contains("rank 0 → rank 1 on a→b"));
}

/// Ranks 0, 1 and 2 on a switch; link 2 r is of rank r to the switch, 2 r + 1 from there.
Topology star() {
  Topology topology("star");
  const NodeId hub = topology.add_node({.name = "hub", .kind = NodeKind::kTor});
  for (const char* name : {"a", "b", "c"}) {
    const NodeId host = topology.add_node({.name = name, .kind = NodeKind::kHost, .host = name});
    topology.add_rank(host);
    topology.add_duplex_link(
        {.from = host, .to = hub, .bandwidth = Bandwidth(1'000'000'000), .latency = 1_us});
  }
  return topology;
}

// 4 MB from rank 0 over the star.
void send_over_star(std::uint32_t dst, const SimulationOptions& options) {
  plan::TransferGraph graph("one way", plan::Collective::kAllReduce, 3, {1});
  graph.add_transfer({.src = Rank(0), .dst = Rank(dst), .route = graph.add_route({})}, {});
  (void)simulate_collective(graph, 1'000'000, 250'000, star(), options);
}

TEST_CASE("packets over a link that would take months end with an error") {
  SimulationOptions options = network_only();
  options.network = NetworkLevel::kPacket;
  // The sender's own link, and one behind a switch.
  plan::TransferGraph graph("one way", plan::Collective::kAllReduce, 2, {1});
  graph.add_transfer({.src = Rank(0), .dst = Rank(1), .route = graph.add_route({})}, {});
  options.disturbances.capacity = {{1_ms, kForth, Bandwidth(1)}};
  CHECK_THROWS_WITH(simulate_collective(graph, 10'000'000, 10'000'000, pair(), options),
                    Catch::Contains("days of simulated time"));
  options.disturbances.capacity = {{1_ms, LinkId(3), Bandwidth(1)}};
  plan::TransferGraph behind("one way", plan::Collective::kAllReduce, 3, {1});
  behind.add_transfer({.src = Rank(0), .dst = Rank(1), .route = behind.add_route({})}, {});
  CHECK_THROWS_WITH(simulate_collective(behind, 10'000'000, 250'000, star(), options),
                    Catch::Contains("hub→b") && Catch::Contains("104 days"));
}

TEST_CASE("a cut link further on is named, though packets stand before it and others go on") {
  SimulationOptions options = network_only();
  SECTION("flows") {}
  SECTION("DCQCN") { options.network = NetworkLevel::kPacket; }
  SECTION("without rate control") {
    options.network = NetworkLevel::kPacket;
    options.packets.rate_control = RateControl::kNone;
  }
  SECTION("trimming") {
    options.network = NetworkLevel::kPacket;
    options.packets.overload = Overload::kTrim;
  }
  constexpr LinkId kToB(3);
  for (const Duration since : {Duration(), 1_ms}) {
    options.disturbances.capacity = {{since, kToB, Bandwidth(0)}};
    for (const bool goes_on : {false, true}) {
      options.disturbances.background.clear();
      if (goes_on) {
        options.disturbances.background = {
            {.src = Rank(1), .dst = Rank(0), .message = Bytes(10'000)}};
      }
      CHECK_THROWS_WITH(send_over_star(1, options),
                        Catch::Contains("rank 0 → rank 1 on hub→b stands still"));
    }
  }
}

TEST_CASE("what a pause holds back for good is said to stand before the cut link behind it") {
  // Bytes for b fill the switch, which pauses a: so nothing goes to c either.
  SimulationOptions options = network_only();
  options.network = NetworkLevel::kPacket;
  options.packets.rate_control = RateControl::kNone;
  options.disturbances.capacity = {{1_ms, LinkId(3), Bandwidth(0)}};
  options.disturbances.background = {{.src = Rank(0), .dst = Rank(1), .message = Bytes(50'000'000)},
                                     {.src = Rank(2), .dst = Rank(0), .message = Bytes(10'000)}};
  CHECK_THROWS_WITH(send_over_star(2, options),
                    Catch::Contains("rank 0 → rank 2 on hub→b stands still"));
}

TEST_CASE("utilisation is of what a link can carry meanwhile, and waiting of what others take") {
  SimulationOptions options = network_only();
  // All bytes at a quarter of the rate from the beginning, or from the middle on.
  const bool from_the_middle = GENERATE(false, true);
  options.disturbances.capacity = {
      {from_the_middle ? 2_ms : Duration(), kForth, Bandwidth(250'000'000)}};
  const CollectiveResult result = four_megabytes(options);
  CHECK(result.time.seconds() == Approx(from_the_middle ? 10e-3 : 16e-3).epsilon(1e-6));
  REQUIRE(result.links.size() == 1);
  CHECK(result.links[0].utilization == Approx(1).epsilon(1e-6));

  const Job job(1'000'000);
  options.disturbances.capacity = {{Duration(), kForth, Bandwidth(250'000'000)}};
  const StepResult step = job.run(options);
  Duration waited;
  for (const PathPiece& piece : step.records.critical_path) {
    waited += piece.waited;
  }
  CHECK(waited.seconds() < 1e-6);
}

TEST_CASE("of a message from before the step, no more of it was waiting than is in the step") {
  // From 30 ms on two messages of 20 MB from rank 0 to 1, one after the other, of which others take
  // half of the way: until 110 ms. Rank 2, which has no part in them, begins its next step at 93
  // ms.
  Job job(10'000'000);
  job.topology = star();
  job.plan.rank_names = {"a", "b", "c"};
  job.plan.batch.local_batch = {1, 1, 1};
  plan::TransferGraph graph("one way", plan::Collective::kAllReduce, 3, {1, 1});
  const RouteId route = graph.add_route({});
  for (const std::uint32_t chunk : {0U, 1U}) {
    graph.add_transfer({.src = Rank(0), .dst = Rank(1), .chunk_begin = chunk, .route = route}, {});
  }
  job.plan.schedules = {graph};
  SimulationOptions options = network_only();
  options.steps = 2;
  options.disturbances.slow_devices = {{.ranks = {Rank(2)}, .factor = 3}};
  options.disturbances.background = {{.src = Rank(0), .dst = Rank(1), .message = Bytes(1'000'000)}};
  const StepResult result = job.run(options);
  REQUIRE_FALSE(result.records.critical_path.empty());
  const PathPiece& first = result.records.critical_path.front();
  CHECK(first.kind == "wire");
  CHECK(first.start == Duration());
  CHECK(first.end.seconds() == Approx(17e-3).epsilon(0.01));
  CHECK(first.waited.seconds() == Approx(8.5e-3).epsilon(0.01));
}

TEST_CASE("background traffic that no link could carry is refused") {
  SimulationOptions options = network_only();
  BackgroundTraffic traffic{.src = Rank(0), .dst = Rank(1), .message = Bytes(2'000'000)};
  traffic.every = 1_ms;  // 2 GB/s over 1 GB/s
  options.disturbances.background = {traffic};
  CHECK_THROWS_WITH(four_megabytes(options), Catch::Contains("1.00 GB/s"));
  traffic = {.src = Rank(0), .dst = Rank(1), .message = Bytes(1)};
  options.disturbances.background = {traffic};
  CHECK_THROWS_WITH(four_megabytes(options), Catch::Contains("million a second"));
}

TEST_CASE("background streams that together ask for more than a link ever carries are refused") {
  SimulationOptions options = network_only();
  options.network = GENERATE(NetworkLevel::kFlow, NetworkLevel::kPacket);
  const BackgroundTraffic two_thirds{
      .src = Rank(0), .dst = Rank(1), .message = Bytes(1'000'000), .start = {}, .every = 1500_us};
  options.disturbances.background = {two_thirds};
  SECTION("two of them") { options.disturbances.background.push_back(two_thirds); }
  SECTION("one over a link that is slow from the beginning on") {
    options.disturbances.capacity = {{Duration(), kForth, Bandwidth(400'000'000)}};
  }
  CHECK_THROWS_AS(four_megabytes(options), ConfigError);
  CHECK_THROWS_WITH(four_megabytes(options),
                    Catch::Contains("a→b") && Catch::Contains("every 1.50 ms from 0 to 1"));
}

TEST_CASE("background streams that a link no longer keeps up with end with an error", "[slow]") {
  SimulationOptions options = network_only();
  options.disturbances.background = {
      {.src = Rank(0), .dst = Rank(1), .message = Bytes(100'000), .start = {}, .every = 150_us}};
  // Two thirds of the link; the plan's 4 MB would never be through.
  SECTION("slow for good") {
    options.disturbances.capacity = {{1_ms, kForth, Bandwidth(1'000'000)}};
  }
  SECTION("up for a thousandth of the time") {
    for (int i = 0; i < 10'000; ++i) {
      const Duration at = 1_ms * i;
      options.disturbances.capacity.push_back({at, kForth, Bandwidth(0)});
      options.disturbances.capacity.push_back({at + 999_us, kForth, Bandwidth(1'000'000'000)});
    }
  }
  CHECK_THROWS_AS(four_megabytes(options), ConfigError);
  CHECK_THROWS_WITH(four_megabytes(options),
                    Catch::Contains("a→b") && Catch::Contains("under way"));
}

TEST_CASE("a background stream whose way is cut for good is no overload") {
  SimulationOptions options = network_only();
  options.network = GENERATE(NetworkLevel::kFlow, NetworkLevel::kPacket);
  options.disturbances.capacity = {{1_ms, LinkId(3), Bandwidth(0)}};
  const auto stream = [&](std::uint32_t src) {
    options.disturbances.background = {
        {.src = Rank(src), .dst = Rank(1), .message = Bytes(1000), .start = {}, .every = 2_us}};
  };
  // The plan's own messages are stuck too.
  stream(2);
  CHECK_THROWS_WITH(send_over_star(1, options),
                    Catch::Contains("rank 0 → rank 1 on hub→b stands still"));
  // They are not: 20,000 messages' time passes until all is there.
  plan::TransferGraph graph("one way", plan::Collective::kAllReduce, 3, {1});
  graph.add_transfer({.src = Rank(0), .dst = Rank(2), .route = graph.add_route({})}, {});
  CHECK(simulate_collective(graph, 10'000'000, 250'000, star(), options).time.seconds() ==
        Approx(40e-3).epsilon(0.01));
}

TEST_CASE("background streams may ask for more than a link carries for a while") {
  SimulationOptions options = network_only();
  options.disturbances.background = {
      {.src = Rank(0), .dst = Rank(1), .message = Bytes(100'000), .start = {}, .every = 200_us}};
  // Half of the link. Until 10 ms, 5 MB of it are behind; then all and the plan's 4 MB share it.
  options.disturbances.capacity = {{Duration(), kForth, Bandwidth(0)},
                                   {10_ms, kForth, Bandwidth(1'000'000'000)}};
  const double seconds = four_megabytes(options).time.seconds();
  CHECK(seconds > 14e-3);
  CHECK(seconds < 10e-3 + 2 * (4e-3 + 5e-3) + 1e-3);
}

TEST_CASE("background traffic takes its share of the links it uses") {
  SimulationOptions options = network_only();
  const bool same_way = GENERATE(true, false);
  options.disturbances.background = {
      {.src = Rank(same_way ? 0 : 1), .dst = Rank(same_way ? 1 : 0), .message = Bytes(1'000'000)}};
  CHECK(four_megabytes(options).time.seconds() == Approx(same_way ? 8e-3 : 4e-3).epsilon(1e-3));
}

TEST_CASE("background traffic with a cap or a pace takes that much") {
  SimulationOptions options = network_only();
  BackgroundTraffic traffic{.src = Rank(0), .dst = Rank(1), .message = Bytes(250'000)};
  SECTION("a cap of a quarter of the link") { traffic.cap = Bandwidth(250'000'000); }
  SECTION("250 kB each millisecond") { traffic.every = 1_ms; }
  options.disturbances.background = {traffic};
  CHECK(four_megabytes(options).time.seconds() == Approx(4e-3 / 0.75).epsilon(0.05));
}

}  // namespace
}  // namespace rackrail::sim::disturbances_test
