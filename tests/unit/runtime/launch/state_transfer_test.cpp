#include "runtime/launch/state_transfer.hpp"

#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <numeric>
#include <thread>

#include "base/error.hpp"
#include "runtime/missed_peer.hpp"
#include "tests/support/rank_threads.hpp"

namespace rackrail::runtime::state_transfer_test {
namespace {

constexpr std::size_t kParameters = 300'001;  // several pieces, and not a whole number of them
constexpr std::uint32_t kEpoch = 7;

struct State {
  explicit State(float first) : parameters(kParameters), momentum(kParameters) {
    std::iota(parameters.begin(), parameters.end(), first);
    std::iota(momentum.begin(), momentum.end(), -first);
  }
  trainer::TrainingState view() const {
    trainer::TrainingState state;
    state.info.step = 41;
    state.info.position = 41 * 128;
    state.info.epoch = 3;
    state.info.skipped_steps = 2;
    state.parameters = parameters;
    state.momentum = momentum;
    return state;
  }
  std::vector<float> parameters;
  std::vector<float> momentum;
};

}  // namespace

TEST_CASE("every newcomer has one giver, and givers take turns") {
  const std::vector<Rank> newcomers = {Rank(0), Rank(2), Rank(3)};
  CHECK(giver_of(Rank(0), newcomers, 5) == Rank(1));
  CHECK(giver_of(Rank(2), newcomers, 5) == Rank(4));
  CHECK(giver_of(Rank(3), newcomers, 5) == Rank(1));
  CHECK(receivers_of(Rank(1), newcomers, 5) == std::vector{Rank(0), Rank(3)});
  CHECK(receivers_of(Rank(4), newcomers, 5) == std::vector{Rank(2)});
  CHECK_THROWS_AS(giver_of(Rank(0), {Rank(0)}, 1), RuntimeFailure);
}

TEST_CASE("newcomers get to a bit what those have who went on") {
  const auto transports = joined_transports("in-process", 4);
  const std::vector<Rank> newcomers = {Rank(1), Rank(2), Rank(3)};
  const State state(5.0F);
  std::vector<trainer::LoadedCheckpoint> got(4);
  on_every_rank(4, [&](Rank rank) {
    StateTransfer transfer(*transports[rank.index()], kEpoch, [] {});
    if (rank == Rank(0)) {
      transfer.give(receivers_of(rank, newcomers, 4), state.view());
    } else {
      got[rank.index()] = transfer.receive(giver_of(rank, newcomers, 4), kParameters);
    }
  });
  for (const Rank rank : newcomers) {
    const trainer::LoadedCheckpoint& own = got[rank.index()];
    CHECK((own.parameters == state.parameters));
    CHECK((own.momentum == state.momentum));
    CHECK(own.info.step == 41);
    CHECK(own.info.position == 41 * 128);
    CHECK(own.info.epoch == 3);
    CHECK(own.info.skipped_steps == 2);
  }
}

TEST_CASE("a giver progresses its transport until its receiver has everything") {
  const auto transports = joined_transports("in-process", 2);
  const State state(5.0F);
  std::atomic<bool> is_receiving = false;
  on_every_rank(2, [&](Rank rank) {
    StateTransfer transfer(*transports[rank.index()], kEpoch, [] {});
    if (rank == Rank(0)) {
      transfer.give({Rank(1)}, state.view());
      CHECK(is_receiving.load());
    } else {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      is_receiving = true;
      transfer.receive(Rank(0), kParameters);
    }
  });
}

TEST_CASE("a state of another size is refused before it takes memory") {
  const auto transports = joined_transports("in-process", 2);
  const State state(1.0F);
  StateTransfer giver(
      *transports[0], kEpoch, [] {}, 100_ms);
  CHECK_THROWS_AS(giver.give({Rank(1)}, state.view()), MissedPeerError);  // it is in the mailbox
  StateTransfer receiver(*transports[1], kEpoch, [] {});
  CHECK_THROWS_WITH(receiver.receive(Rank(0), 1000), Catch::Contains("another state"));
}

TEST_CASE("a transfer ends with its giver, with the epoch, and where nothing moves") {
  const auto transports = joined_transports("in-process", 2);
  SECTION("the giver goes") {
    transports[0]->close(Duration());
    StateTransfer transfer(*transports[1], kEpoch, [] {});
    CHECK_THROWS_AS(transfer.receive(Rank(0), kParameters), MissedPeerError);
  }
  SECTION("the epoch ends") {
    StateTransfer transfer(*transports[1], kEpoch, [] { throw PeerLostError("it is over"); });
    CHECK_THROWS_WITH(transfer.receive(Rank(0), kParameters), "it is over");
  }
  SECTION("nothing moves") {
    StateTransfer transfer(
        *transports[1], kEpoch, [] {}, 100_ms);
    try {
      transfer.receive(Rank(0), kParameters);
      FAIL("something came");
    } catch (const MissedPeerError& error) {
      CHECK(error.peer().rank == Rank(0));
      CHECK(error.peer().silence.value() >= 100_ms);
    }
  }
}

}  // namespace rackrail::runtime::state_transfer_test
