#include "runtime/rails.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <deque>
#include <map>
#include <vector>

#include "runtime/peer_pulses.hpp"
#include "runtime/slice_engine.hpp"
#include "tests/support/rank_threads.hpp"

namespace rackrail::runtime::rails_test {
namespace {

/// Ranks 0 and 1 of two adapters each, a leaf for either. Links: 0 and 1 out of rank 0's and in, 2
/// and 3 of its second adapter, 4 to 7 of rank 1's.
std::vector<topology::Adapter> two_each() {
  std::vector<topology::Adapter> adapters;
  for (int i = 0; i < 4; ++i) {
    adapters.push_back({.host = i < 2 ? "host0" : "host1",
                        .name = i % 2 == 0 ? "nic0" : "nic1",
                        .devices = i % 2 == 0 ? "eth0" : "eth1",
                        .out = {LinkId(2 * i)},
                        .in = {LinkId(2 * i + 1)}});
  }
  return adapters;
}

/// Both send each other half of a buffer by each of their adapters, and rank 0 the last chunk from
/// its second adapter to the first one of rank 1; a chunk has no route.
plan::Plan plan_over_rails(std::int64_t elements) {
  plan::TransferGraph graph("halves", plan::Collective::kAllReduce, 2, {1, 1, 1, 1});
  const RouteId there[] = {graph.add_route({LinkId(0), LinkId(5)}),
                           graph.add_route({LinkId(2), LinkId(7)}),
                           graph.add_route({LinkId(2), LinkId(5)}), RouteId(0)};
  const RouteId back[] = {graph.add_route({LinkId(4), LinkId(1)}),
                          graph.add_route({LinkId(6), LinkId(3)}),
                          graph.add_route({LinkId(4), LinkId(3)}), RouteId(0)};
  for (std::uint32_t chunk = 0; chunk < 4; ++chunk) {
    plan::Transfer t;
    t.src = Rank(0);
    t.dst = Rank(1);
    t.chunk_begin = chunk;
    t.op = plan::TransferOp::kReduce;
    t.route = there[chunk];
    const TransferId sum = graph.add_transfer(t, {});
    t.src = Rank(1);
    t.dst = Rank(0);
    t.op = plan::TransferOp::kCopy;
    t.route = back[chunk];
    graph.add_transfer(t, std::vector<TransferId>{sum});
  }
  plan::Plan plan = plan_of(std::move(graph), {elements}, 1024);
  plan.adapters = two_each();
  return plan;
}

/// Says by which rail it was told to send, and completes when it is told to.
class ByRail final : public Transport {
 public:
  std::string_view name() const override { return "by-rail"; }
  std::vector<std::byte> address() const override { return {}; }
  void set_key(std::uint64_t /*key*/) override {}
  void connect(Rank /*self*/, std::span<const std::vector<std::byte>> /*addresses*/) override {}
  void set_handlers(ReceiveHandler on_receive, PeerErrorHandler /*on_error*/) override {
    on_receive_ = std::move(on_receive);
  }
  std::vector<std::string> use_rails(std::span<const Rail> rails) override {
    told.assign(rails.begin(), rails.end());
    return {"a note"};
  }
  void send(Rank /*destination*/, const SliceHeader& header, std::span<const std::byte> /*payload*/,
            SendCompletion done) override {
    open[header.rail].push_back(std::move(done));
    ++sent[header.rail];
  }
  std::size_t progress() override { return 0; }
  void sleep(Duration /*at_most*/) override {}
  void wake() override {}
  void close(Duration /*deadline*/) noexcept override {}

  std::vector<Rail> told;
  std::map<std::uint32_t, std::deque<SendCompletion>> open;
  std::map<std::uint32_t, int> sent;

 private:
  ReceiveHandler on_receive_;
};

}  // namespace

TEST_CASE("rails: a pair has one for each pair of adapters, which both ends number alike") {
  const plan::Plan plan = plan_over_rails(4096);
  const PlanRails of0(plan, Rank(0));
  const PlanRails of1(plan, Rank(1));
  REQUIRE(of0.all().size() == 3);
  REQUIRE(of1.all().size() == 3);
  for (std::size_t i = 0; i < 3; ++i) {
    CHECK(of0.all()[i].number == i + 1);
    CHECK(of1.all()[i].number == i + 1);
    CHECK(of0.all()[i].peer == Rank(1));
    CHECK(of0.all()[i].adapter == of1.all()[i].peer_adapter);
    CHECK(of0.all()[i].peer_adapter == of1.all()[i].adapter);
  }
  CHECK(of0.all()[1].adapter == "nic1");
  CHECK(of0.all()[1].devices == "eth1");
  CHECK(of0.all()[1].peer_adapter == "nic0");
  const plan::TransferGraph& graph = plan.schedules[0];
  std::vector<std::uint32_t> numbers;
  for (const plan::Transfer& transfer : graph.transfers()) {
    CHECK(of0.number_of(graph, transfer) == of1.number_of(graph, transfer));
    numbers.push_back(of0.number_of(graph, transfer));
  }
  CHECK(numbers == std::vector<std::uint32_t>{1, 1, 3, 3, 2, 2, 0, 0});
}

TEST_CASE("rails: none where the plan names no adapters, nor of schedules that no bucket has") {
  plan::Plan plan = plan_over_rails(4096);
  plan.adapters.clear();
  CHECK(PlanRails(plan, Rank(0)).all().empty());
  CHECK(PlanRails(plan, Rank(0)).number_of(plan.schedules[0], plan.schedules[0].transfers()[0]) ==
        0);
  plan = plan_over_rails(4096);
  plan.schedules.push_back(ring(2));
  plan.buckets[0].schedule = 1;
  CHECK(PlanRails(plan, Rank(0)).all().empty());
}

TEST_CASE("rails: slices go by the rail of their route, each with a window of its own") {
  const plan::Plan plan = plan_over_rails(4 * 8 * 1024);  // 8 slices a chunk
  ByRail wire;
  ExecutionLedger ledger(Rank(0), false);
  ExecutorOptions options;
  options.send_window = 3;
  SliceEngine engine(plan, Rank(0), wire, options, ledger);
  CHECK(wire.told.size() == 3);
  CHECK(engine.notes() == std::vector<std::string>{"a note"});
  std::vector<float> data(4 * 8 * 1024, 1.0F);
  engine.begin_step(0);
  engine.start(BucketId(0), data);
  engine.drain();
  CHECK(wire.sent == std::map<std::uint32_t, int>{{0, 3}, {1, 3}, {2, 3}, {3, 3}});
  // One rail stands still; the others come to their ends.
  for (bool goes_on = true; goes_on;) {
    goes_on = false;
    for (const std::uint32_t rail : {0U, 2U, 3U}) {
      for (; !wire.open[rail].empty(); goes_on = true) {
        const SendCompletion done = std::move(wire.open[rail].front());
        wire.open[rail].pop_front();
        done();
      }
    }
    engine.drain();
  }
  CHECK(wire.sent == std::map<std::uint32_t, int>{{0, 8}, {1, 3}, {2, 8}, {3, 8}});
  engine.halt();
}

TEST_CASE("rails: a peer is missed when one of its rails is silent, though the others are not") {
  ByRail wire;
  const std::vector<Rail> rails = {{.peer = Rank(1), .number = 1}, {.peer = Rank(1), .number = 2}};
  PeerPulses pulses(wire, Rank(0), 2, 7, 0,
                    PulseOptions{.period = 20_ms, .patience = 200_ms, .first_patience = 60_s},
                    rails);
  const auto start = std::chrono::steady_clock::now();
  const auto listen = [&](std::chrono::milliseconds time, std::vector<std::uint32_t> heard) {
    const auto end = std::chrono::steady_clock::now() + time;
    while (std::chrono::steady_clock::now() < end) {
      for (const std::uint32_t rail : heard) {
        pulses.heard(Rank(1), rail);
      }
      pulses.beat();
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  };
  CHECK_NOTHROW(listen(std::chrono::milliseconds(300), {0, 1, 2}));
  CHECK(wire.sent == std::map<std::uint32_t, int>{{0, 1}, {1, 1}, {2, 1}});  // none came through
  CHECK_THROWS_WITH(listen(std::chrono::seconds(20), {0, 2}), Catch::Contains("by rail 1"));
  CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(15));
}

}  // namespace rackrail::runtime::rails_test
