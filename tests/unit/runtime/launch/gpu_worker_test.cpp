#include "runtime/launch/gpu_worker.hpp"

#include <catch2/catch.hpp>

#include "base/error.hpp"

namespace rackrail::runtime {
namespace {

/// What ranks say that are on these hosts, each host with as many GPUs.
std::vector<std::string> offers(const std::vector<std::string>& hosts, int devices) {
  std::vector<std::string> all;
  for (const std::string& host : hosts) {
    all.push_back(to_json(GpuOffer{.host = host, .devices = devices, .reason = "", .nccl = ""}));
  }
  return all;
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

TEST_CASE("a GPU has several ranks only where they are to share") {
  const auto all = offers({"a", "a", "a"}, 2);
  CHECK(choose_gpu({}, Rank(1), all).device == 1);
  CHECK_THROWS_WITH(choose_gpu({}, Rank(2), all),
                    "rank 2 has no GPU of its own: found 2 on a, expected more, or --share-gpu");
  CHECK(choose_gpu({.shares = true}, Rank(2), all).device == 0);
}

TEST_CASE("a rank without a GPU says why") {
  const std::vector<std::string> all{
      to_json(GpuOffer{.host = "a", .devices = 0, .reason = "no GPU: none", .nccl = ""})};
  CHECK_THROWS_WITH(choose_gpu({.shares = true}, Rank(0), all),
                    "rank 0 is to compute on a GPU: no GPU: none");
  CHECK_THROWS_AS(choose_gpu({}, Rank(0), {"{}"}), RuntimeFailure);
}

TEST_CASE("NCCL is used where all ranks have it, and otherwise only if nobody insists") {
  auto all = offers({"a", "b"}, 1);
  all[1] = to_json(GpuOffer{.host = "b", .devices = 1, .reason = "", .nccl = "no NCCL: why"});
  const GpuChoice choice = choose_gpu({}, Rank(0), all);
  CHECK(choice.path == DevicePath::kStaged);
  CHECK(choice.note ==
        "gradients go through pinned memory and the transport: rank 1 has no NCCL: why");
  CHECK_THROWS_WITH(choose_gpu({.path = GpuPath::kNccl}, Rank(0), all),
                    "rank 1 is to use NCCL: no NCCL: why");
  CHECK_THROWS_AS(choose_gpu({.path = GpuPath::kHybrid}, Rank(0), all), RuntimeFailure);
  CHECK(choose_gpu({.path = GpuPath::kStaged}, Rank(0), all).note.empty());
  CHECK(choose_gpu({.path = GpuPath::kHybrid}, Rank(0), offers({"a", "b"}, 1)).path ==
        DevicePath::kHybrid);
}

TEST_CASE("the hosts that the leader names count as long as the ranks are those") {
  const GpuSettings settings{
      .shares = true, .path = GpuPath::kAuto, .hosts = {{Rank(0), Rank(1)}, {Rank(2)}}};
  CHECK(choose_gpu(settings, Rank(0), offers({"a", "a", "a"}, 1)).hosts == settings.hosts);
  CHECK(choose_gpu(settings, Rank(0), offers({"a", "a"}, 1)).hosts ==
        RankGroups{{Rank(0), Rank(1)}});
}

TEST_CASE("ranks that share a GPU are hosts of their own to NCCL") {
  const auto of_two = shared_gpu_variables(Rank(2));
  CHECK(of_two.at("NCCL_HOSTID") == "rackrail-rank-2");
  CHECK(of_two.at("NCCL_HOSTID") != shared_gpu_variables(Rank(1)).at("NCCL_HOSTID"));
}

}  // namespace
}  // namespace rackrail::runtime
