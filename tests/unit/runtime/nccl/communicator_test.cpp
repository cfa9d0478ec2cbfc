#include "runtime/nccl/communicator.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <mutex>
#include <thread>
#include <vector>

#include "tests/support/fake_nccl.hpp"
#include "tests/support/rank_threads.hpp"

namespace rackrail::runtime::communicator_test {
namespace {

using Calls = std::vector<std::string>;

/// What threads found wrong; Catch2's own checks are for one thread.
class Findings {
 public:
  void expect(bool is_so, const std::string& what) {
    const std::lock_guard lock(mutex_);
    if (!is_so) {
      wrong_.push_back(what);
    }
  }
  /// The message of the NcclError that `body` throws.
  template <typename Body>
  std::string error_of(const Body& body) {
    try {
      body();
    } catch (const NcclError& error) {
      return error.what();
    }
    expect(false, "nothing was thrown");
    return {};
  }
  const Calls& wrong() const { return wrong_; }

 private:
  std::mutex mutex_;
  Calls wrong_;
};

NcclCommunicator join(const test::FakeNccl& nccl, const NcclId& id, Rank rank, int ranks,
                      Duration deadline = 20_s) {
  return NcclCommunicator::join(nccl.functions(), id, ranks, static_cast<int>(rank.value()),
                                {.deadline = deadline});
}

/// Sums one float over all ranks.
float sum(NcclCommunicator& communicator, float value) {
  const NcclFunctions& f = communicator.functions();
  communicator.check(f.all_reduce(&value, &value, 1, NcclType::kFloat32, NcclOperator::kSum,
                                  communicator.handle(), nullptr),
                     "ncclAllReduce");
  return value;
}

TEST_CASE("communicator: ranks join, split by tier, sum and end in order") {
  test::FakeNccl nccl;
  const NcclId id = NcclCommunicator::make_id(nccl.functions());
  std::array<float, 4> all{};
  std::array<float, 4> pairs{};
  std::array<Calls, 4> calls;
  Findings findings;
  on_every_rank(4, [&](Rank rank) {
    NcclCommunicator world = join(nccl, id, rank, 4);
    const int number = static_cast<int>(rank.value());
    NcclCommunicator pair = world.split(number / 2, number % 2, 2);
    findings.expect(pair.size() == 2 && pair.rank() == number % 2, "place in the pair");
    all[rank.index()] = sum(world, static_cast<float>(number + 1));
    pairs[rank.index()] = sum(pair, static_cast<float>(number + 1));
    findings.expect(pair.close(20_s) && world.close(20_s), "an orderly end");
    calls[rank.index()] = nccl.calls();
  });
  CHECK(findings.wrong() == Calls{});
  CHECK(all == std::array{10.0F, 10.0F, 10.0F, 10.0F});
  CHECK(pairs == std::array{3.0F, 3.0F, 7.0F, 7.0F});
  CHECK(nccl.open() == 0);
  CHECK(calls[3] == Calls{"comm_init_rank_config 3 of 4", "comm_split 1 1",
                          "all_reduce 1 float root 0", "all_reduce 1 float root 0", "comm_finalize",
                          "comm_destroy", "comm_finalize", "comm_destroy"});
}

TEST_CASE("communicator: messages of a group go together") {
  test::FakeNccl nccl;
  const NcclId id = NcclCommunicator::make_id(nccl.functions());
  std::array<float, 3> received{};
  Findings findings;
  on_every_rank(3, [&](Rank rank) {
    NcclCommunicator world = join(nccl, id, rank, 3);
    const int self = static_cast<int>(rank.value());
    const float own = static_cast<float>(10 * self);
    const NcclFunctions& f = world.functions();
    // Around a ring: without the group, everyone would wait for everyone.
    NcclGroup group(world);
    group.add(f.send(&own, 1, NcclType::kFloat32, (self + 1) % 3, world.handle(), nullptr), "send");
    group.add(f.recv(&received[rank.index()], 1, NcclType::kFloat32, (self + 2) % 3, world.handle(),
                     nullptr),
              "recv");
    group.end();
    findings.expect(world.close(20_s), "an orderly end");
  });
  CHECK(findings.wrong() == Calls{});
  CHECK(received == std::array{20.0F, 0.0F, 10.0F});
}

TEST_CASE("communicator: who waits for a rank that does not come is told at the deadline") {
  test::FakeNccl nccl;
  const NcclId id = NcclCommunicator::make_id(nccl.functions());
  CHECK_THROWS_WITH(join(nccl, id, Rank(0), 2, 20_ms),
                    Catch::Contains("ncclCommInitRankConfig: not all ranks came within 0.02 s"));
  CHECK(nccl.open() == 0);
}

TEST_CASE("communicator: who waits for others is told when the job is over") {
  test::FakeNccl nccl;
  const NcclId id = NcclCommunicator::make_id(nccl.functions());
  std::atomic<bool> is_over = false;
  std::thread job([&is_over] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    is_over = true;
  });
  const auto start = std::chrono::steady_clock::now();
  CHECK_THROWS_WITH(
      NcclCommunicator::join(nccl.functions(), id, 2, 0,
                             {.deadline = 30_s, .is_over = [&is_over] { return is_over.load(); }}),
      "NCCL: ncclCommInitRankConfig: given up before all ranks came");
  CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(10));
  job.join();
  CHECK(nccl.open() == 0);
}

TEST_CASE("communicator: a split that a rank does not join ends in an abort") {
  test::FakeNccl nccl;
  const NcclId id = NcclCommunicator::make_id(nccl.functions());
  std::atomic<bool> is_over = false;
  std::string first;
  std::string later;
  Findings findings;
  on_every_rank(2, [&](Rank rank) {
    NcclCommunicator world = join(nccl, id, rank, 2, rank == Rank(0) ? 1_s : 20_s);
    if (rank == Rank(0)) {
      first = findings.error_of([&] { static_cast<void>(world.split(0, 0, 2)); });
      findings.expect(!world.is_open() && world.has_failed(), "the parent is aborted");
      later = findings.error_of([&] { world.check_health(); });
      findings.expect(nccl.calls().back() == "comm_abort", "an abort");
      is_over = true;
    }
    while (!is_over) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  });
  CHECK(findings.wrong() == Calls{});
  CHECK(first == "NCCL: ncclCommSplit: not all ranks came within 1 s");
  CHECK(later == first);  // what happened first is what later calls say
  CHECK(nccl.open() == 0);
}

using ChangedState = NcclResult (*)(bool is_parent, NcclResult state);

/// Has NCCL say another state of communicators: of this one, the parent, and of all others.
void change_states(test::FakeNccl& nccl, const NcclCommunicator& of, ChangedState by) {
  static auto ask = nccl.functions().comm_get_async_error;  // for what has no place for a capture
  static NcclHandle parent;
  static ChangedState changed;
  ask = nccl.functions().comm_get_async_error;
  parent = of.handle();
  changed = by;
  nccl.functions().comm_get_async_error = [](NcclHandle asked, NcclResult* state) {
    const NcclResult result = ask(asked, state);
    *state = changed(asked == parent, *state);
    return result;
  };
}

TEST_CASE("communicator: where only the child of a split or shrink fails, its parent is aborted") {
  test::FakeNccl nccl;
  const NcclId id = NcclCommunicator::make_id(nccl.functions());
  NcclCommunicator world = join(nccl, id, Rank(0), 1);
  change_states(nccl, world, [](bool is_parent, NcclResult state) {
    return is_parent ? state : NcclResult::kInternalError;
  });
  std::string first;
  SECTION("a split") {
    first = Findings().error_of([&] { static_cast<void>(world.split(0, 0, 1)); });
    CHECK_THAT(first, Catch::Contains("ncclCommSplit"));
  }
  SECTION("a shrink") {
    first = Findings().error_of([&] { static_cast<void>(world.shrink({})); });
    CHECK_THAT(first, Catch::Contains("ncclCommShrink"));
  }
  CHECK_FALSE(world.is_open());
  CHECK(world.has_failed());
  CHECK(Findings().error_of([&] { world.check_health(); }) == first);
  CHECK(nccl.open() == 0);
}

TEST_CASE("communicator: a child is made although the parent hears of a lost rank meanwhile") {
  test::FakeNccl nccl;
  const NcclId id = NcclCommunicator::make_id(nccl.functions());
  NcclCommunicator world = join(nccl, id, Rank(0), 1);
  change_states(nccl, world, [](bool is_parent, NcclResult state) {
    return is_parent && state == NcclResult::kSuccess ? NcclResult::kRemoteError : state;
  });
  NcclCommunicator rest = world.shrink({});
  CHECK(sum(rest, 3) == 3);
  CHECK_FALSE(world.is_open());
}

TEST_CASE("communicator: a shrink waits for what is still being launched") {
  test::FakeNccl nccl;
  const NcclId id = NcclCommunicator::make_id(nccl.functions());
  NcclCommunicator world = join(nccl, id, Rank(0), 1);
  static int turns;
  static decltype(nccl.functions().comm_shrink) shrink;
  turns = 300;
  shrink = nccl.functions().comm_shrink;
  change_states(nccl, world, [](bool is_parent, NcclResult state) {
    return is_parent && turns > 0 && turns-- > 0 ? NcclResult::kInProgress : state;
  });
  nccl.functions().comm_shrink = [](auto... arguments) {
    return turns > 0 ? NcclResult::kInvalidArgument : shrink(arguments...);
  };
  NcclCommunicator rest = world.shrink({});
  CHECK(sum(rest, 3) == 3);
}

TEST_CASE("communicator: who has met a failure cannot shrink, and is aborted") {
  test::FakeNccl nccl;
  const NcclId id = NcclCommunicator::make_id(nccl.functions());
  Findings findings;
  on_every_rank(2, [&](Rank rank) {
    NcclCommunicator world = join(nccl, id, rank, 2);
    if (rank == Rank(1)) {
      nccl.kill(1);
      return;
    }
    const std::string heard = findings.error_of([&] { sum(world, 1); });
    findings.expect(heard.find("remote process exited") != std::string::npos, heard);
    const int lost = 1;
    const std::string refused = findings.error_of([&] {
      static_cast<void>(world.shrink({&lost, 1}));
    });
    findings.expect(refused.find("ncclCommShrink: remote process exited") != std::string::npos,
                    refused);
    findings.expect(!world.is_open(), "it is aborted");
  });
  CHECK(findings.wrong() == Calls{});
  CHECK(nccl.open() == 0);
}

TEST_CASE("communicator: survivors of a lost rank shrink and go on") {
  test::FakeNccl nccl;
  const NcclId id = NcclCommunicator::make_id(nccl.functions());
  std::array<float, 4> after{};
  std::array<Calls, 4> calls;
  Findings findings;
  on_every_rank(4, [&](Rank rank) {
    NcclCommunicator world = join(nccl, id, rank, 4);
    findings.expect(sum(world, 1) == 4, "a sum before");
    if (rank == Rank(1)) {
      nccl.kill(1);
      return;  // its end aborts, as that of a process would
    }
    const int lost = 1;
    NcclCommunicator rest = world.shrink({&lost, 1});
    const int number = static_cast<int>(rank.value());
    findings.expect(!world.is_open(), "the parent is aborted");
    findings.expect(rest.size() == 3 && rest.rank() == std::max(number - 1, 0), "a new number");
    after[rank.index()] = sum(rest, static_cast<float>(number));
    findings.expect(rest.close(20_s), "an orderly end");
    calls[rank.index()] = nccl.calls();
  });
  CHECK(findings.wrong() == Calls{});
  CHECK(after == std::array{5.0F, 0.0F, 5.0F, 5.0F});
  CHECK(nccl.open() == 0);
  // The parent is aborted and never destroyed, which would wait for the one that is gone.
  CHECK(calls[2] == Calls{"comm_init_rank_config 2 of 4", "all_reduce 1 float root 0",
                          "comm_shrink without 1 flags 1", "comm_abort",
                          "all_reduce 1 float root 0", "comm_finalize", "comm_destroy"});
}

TEST_CASE("communicator: an NCCL without shrink says so and is aborted") {
  test::FakeNccl nccl;
  nccl.functions().comm_shrink = nullptr;
  const NcclId id = NcclCommunicator::make_id(nccl.functions());
  NcclCommunicator world = join(nccl, id, Rank(0), 1);
  const int lost = 0;
  CHECK_THROWS_WITH(world.shrink({&lost, 1}), Catch::Contains("takes version 2.27"));
  CHECK(nccl.open() == 0);
}

TEST_CASE("communicator: a call that is refused inside a group closes the group") {
  test::FakeNccl nccl;
  const NcclId id = NcclCommunicator::make_id(nccl.functions());
  NcclCommunicator world = join(nccl, id, Rank(0), 1);
  float value = 1;
  nccl.fail_next("send", NcclResult::kInvalidArgument);
  {
    NcclGroup group(world);
    const NcclFunctions& f = world.functions();
    const NcclResult result = f.send(&value, 1, NcclType::kFloat32, 0, world.handle(), nullptr);
    CHECK_THROWS_WITH(group.add(result, "ncclSend"),
                      Catch::Contains("ncclSend") && Catch::Contains("was told to fail"));
  }
  const Calls calls = nccl.calls();
  CHECK(std::count(calls.begin(), calls.end(), "group_start") == 1);
  CHECK(std::count(calls.begin(), calls.end(), "group_end") == 1);
  CHECK_FALSE(world.close(1_s));
  CHECK(nccl.calls().back() == "comm_abort");
}

TEST_CASE("communicator: several are aborted in one group") {
  test::FakeNccl nccl;
  NcclCommunicator a = join(nccl, NcclCommunicator::make_id(nccl.functions()), Rank(0), 1);
  NcclCommunicator b = join(nccl, NcclCommunicator::make_id(nccl.functions()), Rank(0), 1);
  const std::array<NcclCommunicator*, 2> both{&a, &b};
  NcclCommunicator::abort_all(both);
  Calls calls = nccl.calls();
  CHECK(Calls(calls.end() - 4, calls.end()) ==
        Calls{"group_start", "comm_abort", "comm_abort", "group_end"});
  NcclCommunicator::abort_all(both);  // nothing is open any more
  CHECK(nccl.calls() == calls);
}

TEST_CASE("communicator: what cannot be made is an error with NCCL's words") {
  test::FakeNccl nccl;
  nccl.fail_next("get_unique_id", NcclResult::kSystemError);
  CHECK_THROWS_WITH(NcclCommunicator::make_id(nccl.functions()),
                    Catch::Contains("ncclGetUniqueId") && Catch::Contains("told to fail"));
  nccl.fail_next("comm_init_rank_config", NcclResult::kUnhandledCudaError);
  CHECK_THROWS_WITH(join(nccl, {}, Rank(0), 1), Catch::Contains("ncclCommInitRankConfig"));
  CHECK(nccl.open() == 0);
}

}  // namespace
}  // namespace rackrail::runtime::communicator_test
