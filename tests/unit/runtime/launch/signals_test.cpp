#include "runtime/launch/signals.hpp"

#include <poll.h>

#include <catch2/catch.hpp>
#include <csignal>

#include "base/error.hpp"

namespace rackrail::runtime::signals_test {
namespace {

bool readable(int descriptor) {
  pollfd watched = {descriptor, POLLIN, 0};
  return poll(&watched, 1, 0) == 1;
}

void (*handler_of(int number))(int) {
  struct sigaction action = {};
  sigaction(number, nullptr, &action);
  return action.sa_handler;
}

}  // namespace

TEST_CASE("interrupts are held, counted and given back") {
  const auto before = handler_of(SIGTERM);
  {
    const InterruptGuard guard;
    CHECK(handler_of(SIGTERM) != before);
    CHECK(guard.received() == 0);
    CHECK_FALSE(readable(guard.file_descriptor()));
    raise(SIGTERM);
    raise(SIGINT);
    CHECK(guard.received() == SIGTERM);
    CHECK(guard.count() == 2);
    CHECK(readable(guard.file_descriptor()));
    CHECK_THROWS_AS(InterruptGuard(), RuntimeFailure);
  }
  CHECK(handler_of(SIGTERM) == before);
  const InterruptGuard again;
  CHECK(again.received() == 0);
}

TEST_CASE("a broken pipe interrupts once, and commands that are started know nothing of it") {
  const InterruptGuard guard;
  raise(SIGPIPE);
  raise(SIGPIPE);
  CHECK(guard.received() == SIGPIPE);
  CHECK(guard.count() == 1);
  CHECK(handler_of(SIGPIPE) != SIG_IGN);  // what is ignored stays so beyond exec
}

}  // namespace rackrail::runtime::signals_test
