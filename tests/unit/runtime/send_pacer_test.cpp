#include "runtime/send_pacer.hpp"

#include <algorithm>
#include <catch2/catch.hpp>

#include "tests/support/rank_threads.hpp"

namespace rackrail::runtime::send_pacer_test {
namespace {

using namespace std::chrono_literals;
using Clock = SendPacer::Clock;

constexpr Clock::time_point kBegin = Clock::time_point(1h);

TEST_CASE("a lane is what goes to one rank over the same links") {
  SendPacer pacer;
  const std::vector<LinkId> one = {LinkId(3), LinkId(4)};
  const std::vector<LinkId> other = {LinkId(3)};
  const std::uint32_t lane = pacer.lane(Rank(1), one);
  CHECK(pacer.lane(Rank(1), one) == lane);
  CHECK(pacer.lane(Rank(2), one) != lane);
  CHECK(pacer.lane(Rank(1), other) != lane);
}

TEST_CASE("the next slice waits for what the last one takes at its rate") {
  SendPacer pacer;
  const std::uint32_t lane = pacer.lane(Rank(1), {});
  const std::uint32_t other = pacer.lane(Rank(2), {});
  CHECK(pacer.may_send(lane, kBegin));
  for (int i = 0; i < 10; ++i) {  // more than may be made up for
    pacer.charge(lane, 1'000'000, 1_GBps, kBegin);
  }
  // 10 ms, of which kCatchUp is granted as to one that came late.
  const Clock::time_point due = kBegin + 10ms - SendPacer::kCatchUp;
  CHECK_FALSE(pacer.may_send(lane, due - 1us));
  CHECK(pacer.may_send(lane, due));
  CHECK(pacer.may_send(other, kBegin));
}

TEST_CASE("who comes late makes up for a little, and no more") {
  SendPacer pacer;
  const std::uint32_t lane = pacer.lane(Rank(1), {});
  pacer.charge(lane, 1'000'000, 1_GBps, kBegin);
  const Clock::time_point late = kBegin + 1s;
  pacer.charge(lane, 20'000'000, 1_GBps, late);
  CHECK(pacer.may_send(lane, late + 20ms - SendPacer::kCatchUp));
  CHECK_FALSE(pacer.may_send(lane, late + 20ms - SendPacer::kCatchUp - 1us));
}

TEST_CASE("what is made up for is a few slices at most, however fast the lane") {
  SendPacer pacer;
  const std::uint32_t lane = pacer.lane(Rank(1), {});
  const auto slice = 10us;
  int sent = 0;
  for (; pacer.may_send(lane, kBegin); ++sent) {
    pacer.charge(lane, 10'000, 1_GBps, kBegin);
  }
  CHECK(sent == plan::kSlicesToCatchUp + 1);
  CHECK(pacer.may_send(lane, kBegin + slice));
}

TEST_CASE("lanes that wait are named once, when they may send") {
  SendPacer pacer;
  const std::uint32_t slow = pacer.lane(Rank(1), {});
  const std::uint32_t fast = pacer.lane(Rank(2), {});
  CHECK_FALSE(pacer.next_due().has_value());
  pacer.charge(slow, 30'000'000, 1_GBps, kBegin);
  pacer.charge(fast, 10'000'000, 1_GBps, kBegin);
  pacer.wait(slow);
  pacer.wait(fast);
  pacer.wait(fast);
  CHECK(pacer.next_due() == kBegin + 10ms - SendPacer::kCatchUp);
  CHECK(pacer.take_due(kBegin).empty());
  CHECK(pacer.take_due(kBegin + 10ms) == std::vector{Rank(2)});
  CHECK(pacer.next_due() == kBegin + 30ms - SendPacer::kCatchUp);
  CHECK(pacer.take_due(kBegin + 1s) == std::vector{Rank(1)});
  CHECK_FALSE(pacer.next_due().has_value());
}

/// Rank 0 adds what rank 1 has; at `rate`, which is 0 for none.
plan::TransferGraph addition_at(Bandwidth rate) {
  plan::TransferGraph graph("addition", plan::Collective::kAllReduce, 2, {1});
  const RouteId there = graph.add_route({LinkId(0)}, rate);
  const TransferId sum = graph.add_transfer(
      {.src = Rank(1), .dst = Rank(0), .op = plan::TransferOp::kReduce, .route = there}, {});
  graph.add_transfer({.src = Rank(0), .dst = Rank(1)}, std::vector{sum});
  return graph;
}

TEST_CASE("executor: what leaves over a route with a rate is no faster") {
  // 400 KB in slices of 4 KB: 200 ms at 2 MB/s, in which a busy machine may well be late.
  const plan::Plan plan = plan_of(addition_at(Bandwidth(2'000'000)), {100'000}, 1024);
  Ranks job(plan);
  std::vector<std::vector<float>> values(2, std::vector<float>(100'000, 1.5F));
  const auto begin = Clock::now();
  on_every_rank(2, [&](Rank rank) {
    job[rank].begin_step(0);
    job[rank].launch(BucketId(0), values[rank.index()]);
    job[rank].wait_all();
  });
  const auto taken = Clock::now() - begin;
  CHECK(taken > 190ms);
  CHECK(std::all_of(values[0].begin(), values[0].end(), [](float v) { return v == 3; }));
  CHECK(values[0] == values[1]);
}

}  // namespace
}  // namespace rackrail::runtime::send_pacer_test
