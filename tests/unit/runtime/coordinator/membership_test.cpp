#include "runtime/coordinator/membership.hpp"

#include <catch2/catch.hpp>
#include <chrono>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace rackrail::runtime::membership_test {
namespace {

using namespace std::chrono_literals;

/// A membership whose time only the test moves.
class Story {
 public:
  explicit Story(std::size_t world_size, Duration rendezvous = Duration(60'000'000'000'000))
      : membership({.world_size = world_size,
                    .rendezvous_deadline = rendezvous,
                    .heartbeat_timeout = 3_s,
                    .suspicion_grace = 500_ms,
                    .leave_grace = 3_s,
                    .plan_digest = "plan-a",
                    .version = "1.0"},
                   now) {}

  std::variant<MemberId, Refusal> join(std::optional<Rank> rank) {
    JoinRequest request = request_of(rank);
    return membership.join(request, now);
  }

  JoinRequest request_of(std::optional<Rank> rank) {
    JoinRequest request;
    request.rank = rank;
    request.host = "host-a";
    request.pid = 100 + next_pid++;
    request.version = "1.0";
    request.address = {std::byte(request.pid & 0xff)};
    return request;
  }

  void join_all(std::size_t count) {
    for (std::size_t rank = 0; rank < count; ++rank) {
      ids.push_back(std::get<MemberId>(join(Rank(rank))));
    }
    REQUIRE(membership.state() == MembershipState::kRunning);
    REQUIRE(std::holds_alternative<AllJoined>(membership.take_events().at(0)));
  }

  /// Lets time pass with ticks as the server makes them.
  void pass(std::chrono::milliseconds time, const std::vector<Rank>& alive) {
    const TimePoint end = now + time;
    while (now < end) {
      now = std::min(end, membership.next_deadline(now));
      for (const Rank rank : alive) {
        membership.heartbeat(rank, {}, now);
      }
      membership.tick(now);
    }
  }

  std::optional<Aborted> aborted() {
    for (const MembershipEvent& event : membership.take_events()) {
      if (const auto* found = std::get_if<Aborted>(&event)) {
        return *found;
      }
    }
    return std::nullopt;
  }
  std::string abort_line() {
    const std::optional<Aborted> found = aborted();
    return found ? found->reason.line : "";
  }

  TimePoint now{1000h};
  Membership membership;
  std::vector<MemberId> ids;
  std::int64_t next_pid = 0;
};

std::string refusal(const std::variant<MemberId, Refusal>& joined) {
  return std::get<Refusal>(joined).reason;
}

const std::vector<Rank> kAllFour = {Rank(0), Rank(1), Rank(2), Rank(3)};

}  // namespace

TEST_CASE("a membership starts when the last member has come") {
  Story story(3);
  CHECK(story.membership.next_deadline(story.now) > story.now);
  REQUIRE(std::holds_alternative<MemberId>(story.join(Rank(2))));
  REQUIRE(std::holds_alternative<MemberId>(story.join(Rank(0))));
  CHECK(story.membership.state() == MembershipState::kGathering);
  CHECK(story.membership.epoch() == 0);
  CHECK(story.membership.take_events().empty());
  REQUIRE(std::holds_alternative<MemberId>(story.join(Rank(1))));
  CHECK(story.membership.state() == MembershipState::kRunning);
  CHECK(story.membership.epoch() == 1);
  REQUIRE(story.membership.take_events().size() == 1);
  CHECK(story.membership.take_events().empty());

  // By rank, not by the order of coming: pids are 100, 101, 102.
  const auto addresses = story.membership.addresses();
  REQUIRE(addresses.size() == 3);
  CHECK(addresses[2][0] == std::byte(100));
  CHECK(addresses[0][0] == std::byte(101));
  CHECK(addresses[1][0] == std::byte(102));
}

TEST_CASE("members without a rank get the free ones in the order of coming") {
  Story story(4);
  const auto first = std::get<MemberId>(story.join(std::nullopt));
  const auto second = std::get<MemberId>(story.join(Rank(0)));
  const auto third = std::get<MemberId>(story.join(std::nullopt));
  const auto fourth = std::get<MemberId>(story.join(Rank(2)));
  CHECK(story.membership.rank_of(first) == Rank(1));
  CHECK(story.membership.rank_of(second) == Rank(0));
  CHECK(story.membership.rank_of(third) == Rank(3));
  CHECK(story.membership.rank_of(fourth) == Rank(2));
  CHECK(story.membership.member_of(Rank(3)) == third);
}

TEST_CASE("a join that does not fit is refused with its reason and changes nothing") {
  Story story(2);
  REQUIRE(std::holds_alternative<MemberId>(story.join(Rank(1))));

  CHECK_THAT(refusal(story.join(Rank(1))), Catch::Contains("rank 1 (pid 101 on host-a) came twice: "
                                                           "pid 100 on host-a has the same rank"));
  CHECK_THAT(refusal(story.join(Rank(2))), Catch::Contains("the job has ranks 0 to 1"));

  JoinRequest request = story.request_of(std::nullopt);
  request.version = "0.9";
  CHECK_THAT(refusal(story.membership.join(request, story.now)),
             Catch::Contains("runs rackrail 0.9, expected 1.0"));
  request.version = "1.0";
  request.world_size = 3;
  CHECK_THAT(refusal(story.membership.join(request, story.now)),
             Catch::Contains("expects 3 workers, the job has 2"));
  request.world_size = 2;
  request.plan_digest = "plan-b";
  CHECK_THAT(refusal(story.membership.join(request, story.now)),
             Catch::Contains("has the plan plan-b, the job runs the plan plan-a"));

  request.plan_digest = "plan-a";
  REQUIRE(std::holds_alternative<MemberId>(story.membership.join(request, story.now)));
  CHECK(story.membership.state() == MembershipState::kRunning);

  const auto late = story.join(std::nullopt);
  CHECK(std::get<Refusal>(late).too_late);
  CHECK_THAT(refusal(late), Catch::Contains("came too late"));
}

TEST_CASE("the rendezvous ends at its deadline and says who is missing") {
  Story story(4, 10_s);
  REQUIRE(std::holds_alternative<MemberId>(story.join(Rank(0))));
  REQUIRE(std::holds_alternative<MemberId>(story.join(Rank(2))));
  story.pass(9999ms, {});
  CHECK(story.membership.state() == MembershipState::kGathering);
  story.pass(1ms, {});
  CHECK(story.membership.state() == MembershipState::kAborted);
  CHECK(story.abort_line() == "2 of 4 workers came within 10.0 s; missing: rank 1, 3");
  CHECK(story.membership.is_over(story.now));
}

TEST_CASE("the rendezvous names nobody when ranks are not named") {
  Story story(3, 1_s);
  REQUIRE(std::holds_alternative<MemberId>(story.join(std::nullopt)));
  story.pass(1s, {});
  CHECK(story.abort_line() == "1 of 3 workers came within 1.00 s");
}

TEST_CASE("a member whose heart stops is lost exactly at the timeout") {
  Story story(4);
  story.join_all(4);
  story.pass(5s, kAllFour);
  CHECK(story.membership.state() == MembershipState::kRunning);
  story.pass(2999ms, {Rank(0), Rank(1), Rank(3)});
  CHECK(story.membership.state() == MembershipState::kRunning);
  story.pass(1ms, {Rank(0), Rank(1), Rank(3)});
  CHECK(story.membership.state() == MembershipState::kAborted);
  CHECK(story.abort_line() == "rank 2 (pid 102 on host-a) was lost: no heartbeat for 3.00 s");
}

TEST_CASE("a broken stream is a lost member at once, and only the first reason counts") {
  Story story(3);
  story.join_all(3);
  story.membership.stream_closed(story.ids[2], story.now);
  CHECK(story.abort_line() == "rank 2 (pid 102 on host-a) was lost: connection closed");
  story.membership.stream_closed(story.ids[1], story.now);
  story.membership.stop({"interrupted", false}, story.now);
  CHECK(story.membership.take_events().empty());
  CHECK(story.membership.abort_reason().line ==
        "rank 2 (pid 102 on host-a) was lost: connection closed");

  CHECK_FALSE(story.membership.is_over(story.now));
  story.membership.leave(Rank(0), false, {"told to", false}, story.now);
  CHECK(story.membership.is_over(story.now));
}

TEST_CASE("a member that is lost before all have come aborts the job") {
  Story story(3);
  const auto id = std::get<MemberId>(story.join(std::nullopt));
  story.membership.stream_closed(id, story.now);
  CHECK(story.abort_line() == "a worker (pid 100 on host-a) was lost: connection closed");
  CHECK(story.membership.is_over(story.now));
}

TEST_CASE("members that do not leave after the end are given up") {
  Story story(2);
  story.join_all(2);
  story.membership.stop({"interrupted", false}, story.now);
  story.pass(2999ms, {});
  CHECK_FALSE(story.membership.is_over(story.now));
  story.pass(1ms, {});
  CHECK(story.membership.is_over(story.now));
  CHECK(story.membership.next_deadline(story.now) > story.now);
}

TEST_CASE("a transport error waits for a better reason") {
  Story story(3);
  story.join_all(3);
  const std::vector<Rank> all = {Rank(0), Rank(1), Rank(2)};
  story.membership.report_transport_error(Rank(0), Rank(2), "Connection reset", {}, story.now);
  SECTION("which comes") {
    story.pass(300ms, all);
    story.membership.stream_closed(story.ids[2], story.now);
    CHECK(story.abort_line() == "rank 2 (pid 102 on host-a) was lost: connection closed");
  }
  SECTION("which does not come") {
    story.pass(499ms, all);
    CHECK(story.membership.state() == MembershipState::kRunning);
    story.pass(1ms, all);
    CHECK(story.abort_line() ==
          "rank 2 (pid 102 on host-a) was lost: rank 0 cannot reach it: Connection reset");
  }
}

TEST_CASE("a transport error without a name blames the connection of the one who says it") {
  Story story(2);
  story.join_all(2);
  story.membership.report_transport_error(Rank(1), std::nullopt, "no route", {}, story.now);
  story.pass(500ms, {Rank(0), Rank(1)});
  CHECK(story.abort_line() == "rank 1 (pid 101 on host-a) lost its peers: no route");
}

TEST_CASE("of those who cannot reach each other the fewest are lost") {
  using Edges = std::vector<std::pair<std::size_t, std::size_t>>;  // reporter, whom it misses
  const auto lost_of = [](const Edges& edges) {
    Story story(4);
    story.join_all(4);
    for (const auto& [reporter, suspect] : edges) {
      story.membership.report_transport_error(Rank(reporter), Rank(suspect), "silence", 1100_ms,
                                              story.now);
    }
    // While it may be either of two, others are waited for.
    const bool is_clear = edges.size() == 4;
    story.pass(is_clear ? 199ms : 599ms, kAllFour);
    CHECK(story.membership.state() == MembershipState::kRunning);
    story.pass(1ms, kAllFour);
    const std::optional<Aborted> aborted = story.aborted();
    REQUIRE(aborted.has_value());
    CHECK(aborted->silence == (is_clear ? 1300_ms : 1700_ms));
    return aborted->lost;
  };
  // A host's cable: it misses one of the others, and each of them misses it.
  CHECK(lost_of({{2, 0}, {0, 2}, {1, 2}, {3, 2}}) == std::vector{Rank(2)});
  CHECK(lost_of({{0, 1}, {1, 0}, {2, 0}, {3, 0}}) == std::vector{Rank(0)});
  // A cable between racks: nobody is more at fault than the others, so rank 0's side goes on.
  CHECK(lost_of({{0, 2}, {1, 2}, {2, 0}, {3, 0}, {0, 3}, {1, 3}}) == std::vector{Rank(3), Rank(2)});
  CHECK(lost_of({{0, 1}}) == std::vector{Rank(1)});
}

TEST_CASE("of two who cannot reach each other the one that has just come is lost") {
  const auto lost_of = [](std::uint32_t epoch, std::size_t newcomer, bool is_returning,
                          bool has_exchanged = false) {
    Story story(2);
    story.membership = Membership({.world_size = 2, .epoch = epoch, .version = "1.0"}, story.now);
    for (std::size_t rank = 0; rank < 2; ++rank) {
      JoinRequest request = story.request_of(Rank(rank));
      if (rank != newcomer || is_returning) {
        request.returning =
            Returning{.seat = Rank(rank), .epoch = 1, .has_parameters = rank != newcomer};
      }
      REQUIRE(std::holds_alternative<MemberId>(story.membership.join(request, story.now)));
    }
    story.membership.contribute(Rank(0), 0, "parameters", story.now);
    if (has_exchanged) {
      story.membership.contribute(Rank(1), 0, "parameters", story.now);
    }
    story.membership.report_transport_error(Rank(0), Rank(1), "no route", {}, story.now);
    story.pass(500ms, {Rank(0), Rank(1)});
    const std::optional<Aborted> aborted = story.aborted();
    REQUIRE(aborted.has_value());
    return aborted->lost;
  };
  CHECK(lost_of(2, 0, false) == std::vector{Rank(0)});
  CHECK(lost_of(2, 0, true) == std::vector{Rank(0)});
  CHECK(lost_of(2, 1, false) == std::vector{Rank(1)});
  CHECK(lost_of(2, 7, false) == std::vector{Rank(1)});  // nobody has just come
  CHECK(lost_of(1, 0, false) == std::vector{Rank(1)});  // or everybody
  // With the first exchange it has as much to lose as the other.
  CHECK(lost_of(2, 0, false, true) == std::vector{Rank(1)});
  CHECK(lost_of(2, 0, true, true) == std::vector{Rank(1)});
}

TEST_CASE("what one member says of its peers again and again keeps nobody else's word out") {
  Story story(4);
  story.join_all(4);
  const auto says = [&](std::size_t reporter, std::size_t suspect) {
    story.membership.report_transport_error(Rank(reporter), Rank(suspect), "no route", {},
                                            story.now);
  };
  for (int i = 0; i < 100; ++i) {
    says(3, 1);
    says(3, 700);  // nobody
    says(3, 0);
    says(3, 2);  // the fourth of its peers
  }
  says(0, 1);
  says(2, 1);
  story.pass(500ms, kAllFour);
  const std::optional<Aborted> aborted = story.aborted();
  REQUIRE(aborted.has_value());
  CHECK(aborted->lost == std::vector{Rank(1), Rank(3)});  // with all of it, rank 3 first
}

TEST_CASE("who misses a peer a little later still counts") {
  Story story(4);
  story.join_all(4);
  // The first to say it is the highest rank, which would be lost if nobody else said anything.
  story.membership.report_transport_error(Rank(3), Rank(0), "silence", 1100_ms, story.now);
  story.pass(300ms, kAllFour);
  CHECK(story.membership.state() == MembershipState::kRunning);
  story.membership.report_transport_error(Rank(1), Rank(0), "silence", 1100_ms, story.now);
  story.pass(100ms, kAllFour);
  const std::optional<Aborted> aborted = story.aborted();
  REQUIRE(aborted.has_value());
  CHECK(aborted->lost == std::vector{Rank(0)});
}

TEST_CASE("a network that fell apart: by brute force nobody who can stay is lost for one cable") {
  // Whatever subset of the pairs with the cut-off rank is reported, from two on that is the only
  // cover of one rank.
  for (std::size_t cut = 0; cut < 4; ++cut) {
    for (unsigned said = 0; said < 64; ++said) {
      Story story(4);
      story.join_all(4);
      std::set<std::size_t> pairs;
      for (std::size_t peer = 0, bit = 0; peer < 4; ++peer) {
        if (peer == cut) {
          continue;
        }
        for (const bool by_peer : {false, true}) {
          if ((said >> bit++ & 1U) != 0) {
            pairs.insert(peer);
            story.membership.report_transport_error(
                Rank(by_peer ? peer : cut), Rank(by_peer ? cut : peer), "x", 1_s, story.now);
          }
        }
      }
      if (pairs.size() < 2) {
        continue;
      }
      story.pass(300ms, kAllFour);
      CAPTURE(cut, said);
      CHECK(story.aborted().value().lost == std::vector{Rank(cut)});
    }
  }
}

TEST_CASE("who went silent together is lost together") {
  Story story(4);
  story.join_all(4);
  story.pass(1s, kAllFour);
  story.pass(400ms, {Rank(0), Rank(1), Rank(3)});
  story.pass(2600ms, {Rank(0), Rank(3)});
  const std::optional<Aborted> aborted = story.aborted();
  REQUIRE(aborted.has_value());
  CHECK(aborted->lost == std::vector{Rank(2), Rank(1)});
  CHECK(aborted->reason.line ==
        "rank 2 (pid 102 on host-a) was lost: no heartbeat for 3.00 s; and with it rank 1");
}

TEST_CASE("who has been silent for half the time is not lost with another") {
  Story story(4);
  story.join_all(4);
  story.pass(1s, {Rank(0), Rank(1), Rank(3)});
  story.pass(500ms, {Rank(0), Rank(1), Rank(3)});
  story.pass(1500ms, {Rank(0), Rank(3)});
  CHECK(story.aborted().value().lost == std::vector{Rank(2)});
}

TEST_CASE("a pause of the coordinator itself is not held against the members") {
  Story story(2);
  story.join_all(2);
  story.pass(1s, {Rank(0), Rank(1)});
  story.now += 60s;  // suspended: no ticks, no heartbeats
  story.membership.tick(story.now);
  CHECK(story.membership.state() == MembershipState::kRunning);
  // From here on the timeout counts again: 0.4 s of the pause remain as their silence.
  story.pass(2599ms, {Rank(0)});
  CHECK(story.membership.state() == MembershipState::kRunning);
  story.pass(1ms, {Rank(0)});
  CHECK(story.membership.state() == MembershipState::kAborted);
}

TEST_CASE("a member that fails takes the job with it and keeps the kind of its failure") {
  Story story(2);
  story.join_all(2);
  story.membership.leave(Rank(1), false, {"checkpoint.json: found nothing", true}, story.now);
  CHECK(story.membership.abort_reason().line ==
        "rank 1 (pid 101 on host-a) failed: checkpoint.json: found nothing");
  CHECK(story.membership.abort_reason().bad_input);
}

TEST_CASE("a rank that ended after fewer steps than another has begun ends the job at once") {
  Story story(3);
  story.join_all(3);
  const std::string line =
      "rank 1 (pid 101 on host-a) ended at least a step before rank 0 (pid 100 on host-a), which "
      "waits for it: did they have unequal numbers of batches?";
  SECTION("it ends first") {
    story.membership.heartbeat(Rank(0), {.step = 9}, story.now);
    story.membership.report_result(Rank(1), "", 9, story.now);
    CHECK(story.membership.take_events().empty());
    story.membership.heartbeat(Rank(0), {.step = 10}, story.now);
    CHECK(story.abort_line() == line);
  }
  SECTION("it ends last") {
    story.membership.heartbeat(Rank(0), {.step = 10}, story.now);
    story.membership.report_result(Rank(1), "", 9, story.now);
    CHECK(story.abort_line() == line);
  }
}

TEST_CASE("a rank that ended while another exchanges something ends the job at once") {
  Story story(2);
  story.join_all(2);
  const std::string line =
      "rank 1 (pid 101 on host-a) ended at least a step before rank 0 (pid 100 on host-a), which "
      "waits for it: did they have unequal numbers of batches?";
  SECTION("it ends first") {
    story.membership.report_result(Rank(1), "", 9, story.now);
    story.membership.contribute(Rank(0), 0, "a plan", story.now);
    CHECK(story.abort_line() == line);
  }
  SECTION("it ends last") {
    story.membership.contribute(Rank(0), 0, "a plan", story.now);
    story.membership.report_result(Rank(1), "", 9, story.now);
    CHECK(story.abort_line() == line);
  }
}

TEST_CASE("once those who have left have said their steps, the others need nobody to end") {
  Story story(3);
  story.join_all(3);
  CHECK_FALSE(story.membership.need_nobody_more());
  story.membership.report_result(Rank(0), "", 3, story.now);
  story.membership.leave(Rank(0), true, {}, story.now);
  CHECK(story.membership.need_nobody_more());
  story.membership.leave(Rank(1), false, {"it failed", false}, story.now);
  CHECK_FALSE(story.membership.need_nobody_more());
}

TEST_CASE("a member that has said how many steps it began need not wait for the others") {
  Story story(2);
  story.join_all(2);
  story.membership.report_result(Rank(1), "", 3, story.now);
  story.membership.leave(Rank(1), true, {}, story.now);
  story.membership.stream_closed(story.ids[1], story.now);
  story.membership.heartbeat(Rank(0), {.step = 3}, story.now);
  CHECK(story.membership.state() == MembershipState::kRunning);
  story.membership.report_result(Rank(0), "", 3, story.now);
  CHECK(story.membership.state() == MembershipState::kFinished);
}

TEST_CASE("a member may only leave in peace once all are done") {
  Story story(2);
  story.join_all(2);
  SECTION("too early") {
    story.membership.report_result(Rank(0), "r0", {}, story.now);
    story.membership.leave(Rank(0), true, {}, story.now);
    CHECK(story.abort_line() == "rank 0 (pid 100 on host-a) left before the job's end");
  }
  SECTION("in time") {
    story.membership.report_result(Rank(0), "r0", {}, story.now);
    CHECK(story.membership.take_events().empty());
    story.membership.report_result(Rank(1), "r1", {}, story.now);
    const auto events = story.membership.take_events();
    REQUIRE(events.size() == 1);
    CHECK(std::holds_alternative<AllFinished>(events[0]));
    CHECK(story.membership.results() == std::vector<std::string>{"r0", "r1"});
    story.membership.leave(Rank(1), true, {}, story.now);
    CHECK_FALSE(story.membership.is_over(story.now));
    story.membership.stream_closed(story.ids[0], story.now);  // no loss any more
    CHECK(story.membership.state() == MembershipState::kFinished);
    CHECK(story.membership.is_over(story.now));
  }
}

TEST_CASE("an exchange is complete when every rank has given its part of that round") {
  Story story(3);
  story.membership.contribute(Rank(0), 0, "too early", story.now);
  story.join_all(3);
  (void)story.membership.take_events();
  story.membership.contribute(Rank(2), 0, "c", story.now);
  story.membership.contribute(Rank(0), 0, "", story.now);
  story.membership.contribute(Rank(0), 1, "next", story.now);  // a rank that is ahead
  CHECK(story.membership.take_events().empty());
  story.membership.contribute(Rank(1), 0, "b", story.now);
  const auto events = story.membership.take_events();
  REQUIRE(events.size() == 1);
  const auto& complete = std::get<ExchangeComplete>(events[0]);
  CHECK(complete.round == 0);
  CHECK(complete.parts == std::vector<std::string>{"", "b", "c"});
  story.membership.contribute(Rank(1), 1, "x", story.now);
  story.membership.contribute(Rank(2), 1, "y", story.now);
  const auto later = story.membership.take_events();
  REQUIRE(later.size() == 1);
  CHECK(std::get<ExchangeComplete>(later[0]).parts == std::vector<std::string>{"next", "x", "y"});

  // Over, or too far ahead: all three of a round that cannot be make no exchange.
  for (const std::uint32_t round : {0U, 1U, 4U, 0xffffffffU}) {
    for (std::size_t rank = 0; rank < 3; ++rank) {
      story.membership.contribute(Rank(rank), round, "once more", story.now);
    }
  }
  CHECK(story.membership.take_events().empty());
  for (std::size_t rank = 0; rank < 3; ++rank) {
    story.membership.contribute(Rank(rank), 2, "third", story.now);
  }
  CHECK(story.membership.take_events().size() == 1);
}

TEST_CASE("incomplete checkpoints do not pile up: those of the latest steps are kept") {
  Story story(2);
  story.join_all(2);
  (void)story.membership.take_events();
  for (std::uint32_t step = 1; step <= 1000; ++step) {
    story.membership.report_checkpoint(Rank(0), step, {});
  }
  story.membership.report_checkpoint(Rank(1), 1, {});
  CHECK(story.membership.take_events().empty());
  story.membership.report_checkpoint(Rank(1), 1000, {});
  CHECK(story.membership.take_events().size() == 1);
}

TEST_CASE("a checkpoint is complete when every rank has reported its part of that step") {
  Story story(2);
  story.join_all(2);
  const CheckpointFile model{"model", "aa", 10_B};
  const CheckpointFile shard{"rank-1", "bb", 20_B};
  story.membership.report_checkpoint(Rank(0), 100, {model});
  story.membership.report_checkpoint(Rank(0), 200, {model});  // a rank that is ahead
  story.membership.report_checkpoint(Rank(0), 200, {model});  // twice is once
  CHECK(story.membership.take_events().empty());
  story.membership.report_checkpoint(Rank(1), 200, {shard});
  const auto events = story.membership.take_events();
  REQUIRE(events.size() == 1);
  const auto& complete = std::get<CheckpointComplete>(events[0]);
  CHECK(complete.step == 200);
  REQUIRE(complete.files.size() == 2);
  CHECK(complete.files[0].at(0).name == "model");
  CHECK(complete.files[1].at(0).sha256 == "bb");
  // The older one can no longer become complete.
  story.membership.report_checkpoint(Rank(1), 100, {shard});
  CHECK(story.membership.take_events().empty());
}

TEST_CASE("progress is that of the slowest") {
  Story story(3);
  CHECK(story.membership.progress().joined == 0);
  CHECK(story.membership.progress().world_size == 3);
  story.join_all(3);
  story.membership.heartbeat(Rank(0), {10, 2.0, 5_ms}, story.now);
  story.membership.heartbeat(Rank(1), {8, 4.0, 9_ms}, story.now);
  CHECK(story.membership.progress().step == 0);
  CHECK(story.membership.progress().loss == 3.0);
  story.membership.heartbeat(Rank(2), {9, 6.0, 7_ms}, story.now);
  CHECK(story.membership.progress().step == 8);
  CHECK(story.membership.progress().loss == 4.0);
  CHECK(story.membership.progress().step_time == 9_ms);
}

TEST_CASE("words of unknown or departed members change nothing") {
  Story story(2);
  story.membership.heartbeat(Rank(0), {5, 1.0, 1_ms}, story.now);
  story.membership.leave(Rank(1), false, {"x", false}, story.now);
  story.membership.stream_closed(MemberId(7), story.now);
  CHECK(story.membership.state() == MembershipState::kGathering);
  story.join_all(2);
  story.membership.report_result(Rank(5), "x", {}, story.now);
  story.membership.report_checkpoint(Rank(5), 1, {});
  story.membership.report_transport_error(Rank(5), Rank(0), "x", {}, story.now);
  story.pass(1s, {Rank(0), Rank(1)});
  CHECK(story.membership.state() == MembershipState::kRunning);
  CHECK(story.membership.take_events().empty());
}

}  // namespace rackrail::runtime::membership_test
