#include "runtime/launch/gpu_worker.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <thread>
#include <utility>

#include "base/error.hpp"

namespace rackrail::runtime::gpu_worker_test {
namespace {

/// What a rank says that sees the GPUs of this host with these addresses.
GpuOffer offer(const std::string& host, std::vector<std::string> devices) {
  return {.host = host,
          .devices = std::move(devices),
          .reason = "",
          .nccl = "",
          .machine = host,
          .nccl_host = host,
          .device = std::nullopt,
          .has_mps = false};
}

std::vector<std::string> texts(const std::vector<GpuOffer>& offers) {
  std::vector<std::string> all;
  for (const GpuOffer& each : offers) {
    all.push_back(to_json(each));
  }
  return all;
}

/// What ranks say that are on these hosts, each of which sees as many GPUs, all of its host's.
std::vector<std::string> offers(const std::vector<std::string>& hosts, int devices) {
  std::vector<std::string> addresses;
  for (int d = 0; d < devices; ++d) {
    addresses.push_back("bus " + std::to_string(d));
  }
  std::vector<GpuOffer> all;
  for (const std::string& host : hosts) {
    all.push_back(offer(host, addresses));
  }
  return texts(all);
}

TEST_CASE("a host's ranks have its GPUs in the order of their numbers") {
  const auto all = offers({"a", "b", "a", "b"}, 2);
  const std::vector<int> expected{0, 0, 1, 1};
  for (std::size_t r = 0; r < all.size(); ++r) {
    const GpuChoice choice = choose_gpu({}, Rank(r), all);
    CHECK(choice.device == expected[r]);
    CHECK(choice.path == DevicePath::kNccl);
    CHECK(choice.hosts == RankGroups{{Rank(0), Rank(2)}, {Rank(1), Rank(3)}});
    CHECK(choice.note.empty());
  }
}

TEST_CASE("under MPS no message is direct") {
  std::vector<GpuOffer> all{offer("a", {"bus 0"}), offer("b", {"bus 0"})};
  const auto staging = [&](GpuPath path) {
    return choose_gpu({.shares = false, .path = path, .hosts = {}}, Rank(0), texts(all)).staging;
  };
  CHECK(staging(GpuPath::kAuto) == Staging::kWhereNeeded);
  CHECK(staging(GpuPath::kHybrid) == Staging::kWhereNeeded);
  CHECK(staging(GpuPath::kDirect) == Staging::kNever);
  all[1].has_mps = true;
  CHECK(staging(GpuPath::kAuto) == Staging::kAlways);
  CHECK(staging(GpuPath::kHybrid) == Staging::kAlways);
  CHECK(staging(GpuPath::kStaged) == Staging::kAlways);
  CHECK_THROWS_WITH(
      staging(GpuPath::kDirect),
      "--gpu-path direct: the GPU of rank 1 is served by CUDA's MPS, under which direct "
      "messages hang; expected staged, nccl or hybrid");
}

TEST_CASE("a GPU has several ranks only where they are to share") {
  const auto all = offers({"a", "a", "a"}, 2);
  CHECK(choose_gpu({}, Rank(1), offers({"a", "a"}, 2)).device == 1);
  for (const std::size_t self : {1U, 2U}) {
    CHECK_THROWS_WITH(choose_gpu({}, Rank(self), all),
                      "rank 2 has no GPU of its own: found 2 on a, expected more, or --share-gpu");
  }
  CHECK(choose_gpu({.shares = true}, Rank(2), all).device == 0);
}

TEST_CASE("a rank that is shown one GPU has that one, whatever its number is there") {
  const auto all = texts({offer("a", {"bus 3"}), offer("a", {"bus 1"}), offer("b", {"bus 3"})});
  for (std::size_t r = 0; r < all.size(); ++r) {
    CHECK(choose_gpu({}, Rank(r), all).device == 0);
    CHECK(choose_gpu({.path = GpuPath::kNccl}, Rank(r), all).path == DevicePath::kNccl);
  }
  const auto mixed = texts({offer("a", {"bus 0", "bus 1"}), offer("a", {"bus 0", "bus 1"}),
                            offer("a", {"bus 1", "bus 2"}), offer("a", {"bus 2", "bus 3"})});
  const std::vector<int> expected{0, 1, 1, 1};
  for (std::size_t r = 0; r < mixed.size(); ++r) {
    CHECK(choose_gpu({}, Rank(r), mixed).device == expected[r]);
  }
}

TEST_CASE("a GPU that the program names is taken, if it is there") {
  std::vector<GpuOffer> all(2, offer("a", {"bus 0", "bus 1"}));
  all[0].device = 1;
  CHECK(choose_gpu({}, Rank(0), texts(all)).device == 1);
  CHECK(choose_gpu({}, Rank(1), texts(all)).device == 0);
  all[0].device = 2;
  CHECK_THROWS_WITH(choose_gpu({}, Rank(1), texts(all)), "rank 0 is to use GPU 2: found 2 on a");
}

TEST_CASE("NCCL is not asked for what it refuses: two ranks of a host on one GPU") {
  std::vector<GpuOffer> all(2, offer("a", {"bus 0", "bus 1"}));
  all[0].device = all[1].device = 1;
  const std::string problem =
      "rank 1 shares GPU bus 1 with rank 0, which NCCL refuses unless all ranks have "
      "RACKRAIL_SHARE_GPU=1 or --share-gpu";
  for (const Rank self : {Rank(0), Rank(1)}) {
    const GpuChoice choice = choose_gpu({.shares = true}, self, texts(all));
    CHECK(choice.path == DevicePath::kTransport);
    CHECK_THAT(choice.note, Catch::EndsWith(problem));
    CHECK_THROWS_WITH(choose_gpu({.shares = true, .path = GpuPath::kNccl}, self, texts(all)),
                      "NCCL cannot be used: " + problem);
  }
  all[1].nccl_host = "rackrail-rank-1";
  CHECK(choose_gpu({.shares = true}, Rank(0), texts(all)).path == DevicePath::kNccl);
}

TEST_CASE("machines of one name are told apart, and are named as they are") {
  std::vector<GpuOffer> all = {offer("gpu", {"bus 0"}), offer("gpu", {"bus 0"})};
  CHECK_THROWS_WITH(choose_gpu({}, Rank(1), texts(all)),
                    Catch::Contains("found 1 on gpu, expected more"));
  all[1].machine = "gpu of another start";
  const GpuChoice choice = choose_gpu({}, Rank(1), texts(all));
  CHECK(choice.device == 0);
  CHECK(choice.hosts == RankGroups{{Rank(0)}, {Rank(1)}});
  const GpuOffer own = gpu_offer(std::nullopt, false, false);
  CHECK(own.machine.starts_with(own.host));
  CHECK(own.machine.size() > own.host.size() + 1);
  CHECK(gpu_offer(std::nullopt, false, false).machine == own.machine);
}

TEST_CASE("a rank without a GPU says why") {
  GpuOffer none = offer("a", {});
  none.reason = "no GPU: none";
  const auto all = texts({none});
  CHECK_THROWS_WITH(choose_gpu({.shares = true}, Rank(0), all),
                    "rank 0 is to compute on a GPU: no GPU: none");
  CHECK_THROWS_AS(choose_gpu({}, Rank(0), {"{}"}), RuntimeFailure);
}

TEST_CASE("NCCL is used where all ranks have it, and otherwise only if nobody insists") {
  GpuOffer without = offer("b", {"bus 0"});
  without.nccl = "no NCCL: why";
  const auto all = texts({offer("a", {"bus 0"}), without});
  const GpuChoice choice = choose_gpu({}, Rank(0), all);
  CHECK(choice.path == DevicePath::kTransport);
  CHECK(choice.note == "gradients go over the transport: rank 1 has no NCCL: why");
  CHECK_THROWS_WITH(choose_gpu({.path = GpuPath::kNccl}, Rank(0), all),
                    "NCCL cannot be used: rank 1 has no NCCL: why");
  CHECK_THROWS_AS(choose_gpu({.path = GpuPath::kHybrid}, Rank(0), all), RuntimeFailure);
  CHECK(choice.staging == Staging::kWhereNeeded);
  CHECK(choose_gpu({.path = GpuPath::kStaged}, Rank(0), all).note.empty());
  CHECK(choose_gpu({.path = GpuPath::kStaged}, Rank(0), all).staging == Staging::kAlways);
  CHECK(choose_gpu({.path = GpuPath::kDirect}, Rank(0), all).staging == Staging::kNever);
  CHECK(choose_gpu({.path = GpuPath::kDirect}, Rank(0), all).path == DevicePath::kTransport);
  CHECK(choose_gpu({.path = GpuPath::kHybrid}, Rank(0), offers({"a", "b"}, 1)).path ==
        DevicePath::kHybrid);
}

TEST_CASE("the hosts that the leader names count as long as the ranks are those") {
  const GpuSettings settings{
      .shares = true, .path = GpuPath::kStaged, .hosts = {{Rank(0), Rank(1)}, {Rank(2)}}};
  CHECK(choose_gpu(settings, Rank(0), offers({"a", "a", "a"}, 1)).hosts == settings.hosts);
  CHECK(choose_gpu(settings, Rank(0), offers({"a", "a"}, 1)).hosts ==
        RankGroups{{Rank(0), Rank(1)}});
}

TEST_CASE("ranks that share a GPU are hosts of their own to NCCL") {
  const auto of_two = shared_gpu_variables(Rank(2), true);
  CHECK(of_two.at("NCCL_HOSTID") == "rackrail-rank-2");
  CHECK(of_two.at("NCCL_HOSTID") != shared_gpu_variables(Rank(1), true).at("NCCL_HOSTID"));
  if (std::getenv("NCCL_SOCKET_IFNAME") == nullptr) {
    CHECK(of_two.at("NCCL_SOCKET_IFNAME") == "lo");
  }
  CHECK_FALSE(shared_gpu_variables(Rank(2), false).contains("NCCL_SOCKET_IFNAME"));
}

/// What share_gpu_as() says, in a process that this one's only thread has made, with or without
/// another thread and NCCL's variables there; and the NCCL_HOSTID that it leaves.
std::string said_when_shared(bool has_threads, bool has_variables) {
  std::array<int, 2> ends{};
  REQUIRE(pipe(ends.data()) == 0);
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    for (const char* name :
         {"NCCL_HOSTID", "NCCL_NET", "NCCL_MNNVL_ENABLE", "NCCL_SOCKET_IFNAME"}) {
      has_variables ? setenv(name, "mine", 1) : unsetenv(name);
    }
    std::thread other;
    if (has_threads) {
      other = std::thread([] { pause(); });
    }
    const std::string said = share_gpu_as(Rank(3), true).value_or("nothing");
    const char* host = std::getenv("NCCL_HOSTID");
    const std::string text = said + "; " + (host == nullptr ? "none" : host);
    _exit(write(ends[1], text.data(), text.size()) == static_cast<ssize_t>(text.size()) ? 0 : 1);
  }
  close(ends[1]);
  std::array<char, 1'000> text{};
  const ssize_t length = read(ends[0], text.data(), text.size());
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  return {text.data(), static_cast<std::size_t>(std::max<ssize_t>(length, 0))};
}

TEST_CASE("NCCL's variables are set where no other thread may read the environment") {
  CHECK(said_when_shared(false, false) == "nothing; rackrail-rank-3");
  CHECK(said_when_shared(false, true) == "nothing; rackrail-rank-3");
  CHECK(said_when_shared(true, true) == "nothing; mine");
  const std::string refusal = said_when_shared(true, false);
  CHECK_THAT(refusal, Catch::Contains("NCCL_HOSTID=rackrail-rank-3") &&
                          Catch::Contains("NCCL_SOCKET_IFNAME=lo") &&
                          Catch::EndsWith("from its start; none"));
}

}  // namespace
}  // namespace rackrail::runtime::gpu_worker_test
