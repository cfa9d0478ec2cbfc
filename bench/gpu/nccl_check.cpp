// Plans executed on a GPU by several ranks, with the NCCL of this machine:
//
//   nccl_check [--ranks 4] [--elements 16777216] [--steps 10]
//
// Ranks are processes that share one GPU, each with a NCCL_HOSTID of its own, because NCCL refuses
// two ranks on one device of one host; so what NCCL moves goes through sockets, and times say
// nothing of a real machine. Prints one line of JSON: whether all ranks end with the exact sum, and
// the time of a step. Exit status: 0 right, 1 wrong or no GPU or no NCCL, 2 bad arguments.
#include <fmt/format.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "plan/verifier.hpp"
#include "runtime/cuda/factory.hpp"
#include "runtime/launch/gpu_worker.hpp"
#include "runtime/nccl/device_executor.hpp"
#include "runtime/nccl/library.hpp"

namespace rackrail::runtime {
namespace {

constexpr std::size_t kMostRanks = 64;

struct Options {
  std::size_t ranks = 4;
  std::int64_t elements = std::int64_t{1} << 24U;
  std::uint32_t steps = 10;
};

/// Of all processes.
struct Shared {
  NcclId id;
  std::atomic<bool> has_id = false;
  std::atomic<bool> is_over = false;  ///< a rank has failed before there was an id
  std::atomic<std::uint64_t> wrong = 0;
  std::atomic<std::uint64_t> picoseconds = 0;  ///< of a step of rank 0
};

/// Pairs: a shard is summed at one member of each pair, at the first pair, and comes back.
plan::Plan make_plan(const Options& options) {
  const auto ranks = static_cast<std::uint32_t>(options.ranks);
  plan::TransferGraph graph("pairs", plan::Collective::kAllReduce, ranks, {1, 1});
  for (std::uint32_t shard = 0; shard < 2; ++shard) {
    const auto add = [&](std::uint32_t src, std::uint32_t dst, plan::TransferOp op,
                         const std::vector<TransferId>& after) {
      return graph.add_transfer(
          {.src = Rank(src), .dst = Rank(dst), .chunk_begin = shard, .op = op}, after);
    };
    std::vector<TransferId> sums;
    std::vector<TransferId> own;
    for (std::uint32_t pair = 0; pair < ranks; pair += 2) {
      own.push_back(add(pair + 1 - shard, pair + shard, plan::TransferOp::kReduce, {}));
    }
    for (std::uint32_t pair = 2; pair < ranks; pair += 2) {
      sums.push_back(add(pair + shard, shard, plan::TransferOp::kReduce, {own[pair / 2]}));
    }
    sums.push_back(own[0]);
    for (std::uint32_t pair = 0; pair < ranks; pair += 2) {
      const std::vector<TransferId> after =
          pair == 0 ? sums : std::vector{add(shard, pair + shard, plan::TransferOp::kCopy, sums)};
      add(pair + shard, pair + 1 - shard, plan::TransferOp::kCopy, after);
    }
  }
  plan::Plan plan;
  plan.name = "pairs";
  for (std::uint32_t r = 0; r < ranks; ++r) {
    plan.rank_names.push_back(fmt::format("rank{}", r));
  }
  plan.schedules.push_back(std::move(graph));
  plan.buckets.push_back(
      {.tensors = {0}, .elements = options.elements, .slice_elements = std::int64_t{1} << 20U});
  return plan;
}

float contribution(std::size_t rank, std::size_t element) {
  return static_cast<float>((rank + 1) * (element % 31 + 1));
}

void run_rank(const Options& options, std::size_t self, Shared& shared) {
  // Before the first call of NCCL, which reads them once.
  if (const auto problem = share_gpu_as(Rank(self), true)) {
    throw RuntimeFailure(*problem);
  }
  const NcclLibrary& nccl = nccl_library();
  if (nccl.status.unavailable) {
    throw RuntimeFailure(*nccl.status.unavailable);
  }
  if (const CudaStatus cuda = cuda_status(); cuda.unavailable) {
    throw RuntimeFailure(*cuda.unavailable);
  }
  if (self == 0) {
    shared.id = NcclCommunicator::make_id(nccl.functions);
    shared.has_id = true;
  }
  while (!shared.has_id && !shared.is_over) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  if (!shared.has_id) {
    throw RuntimeFailure("another rank has failed");
  }
  const plan::Plan plan = make_plan(options);
  RankGroups groups;
  for (std::size_t r = 0; r < options.ranks; r += 2) {
    groups.push_back({Rank(r), Rank(r + 1)});
  }
  auto communicators = DeviceCommunicators::make(
      NcclCommunicator::join(nccl.functions, shared.id, static_cast<int>(options.ranks),
                             static_cast<int>(self), {.most_thread_blocks = 2}),
      groups, Rank(self));
  NcclMessages messages(*communicators.world);
  DeviceExecutor executor(plan, Rank(self), groups, communicators, messages);
  const CudaStream stream;
  const DeviceBuffer<float> gradient(static_cast<std::size_t>(options.elements));
  std::vector<float> values(gradient.size());
  for (std::uint32_t step = 0; step < options.steps; ++step) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      values[i] = contribution(self, i);
    }
    copy_to_device<float>(values, gradient, stream.get());
    stream.synchronize();
    const auto started = std::chrono::steady_clock::now();
    executor.begin_step(step);
    executor.launch(BucketId(0), gradient.span(), stream.get());
    executor.wait_on(BucketId(0), stream.get());
    stream.synchronize();
    const auto time = std::chrono::steady_clock::now() - started;
    executor.check_health();
    copy_to_host(gradient, std::span(values), stream.get());
    stream.synchronize();
    const auto total = static_cast<float>(options.ranks * (options.ranks + 1) / 2);
    for (std::size_t i = 0; i < values.size(); ++i) {
      shared.wrong += values[i] == total * static_cast<float>(i % 31 + 1) ? 0U : 1U;
    }
    if (self == 0) {
      shared.picoseconds = static_cast<std::uint64_t>(
          1000 * std::chrono::duration_cast<std::chrono::nanoseconds>(time).count());
    }
  }
  if (!communicators.close(20_s)) {
    throw RuntimeFailure("NCCL: no orderly end");
  }
}

/// The exit status of the process of a rank.
int guarded(const Options& options, std::size_t self, Shared& shared) {
  try {
    run_rank(options, self, shared);
    return 0;
  } catch (const std::exception& error) {
    shared.is_over = true;
    fmt::print(stderr, "nccl_check: rank {}: {}\n", self, error.what());
    return 1;
  }
}

/// Whether all end well. Those that wait for one that has failed would do so for ever: they are
/// given a moment to say why, and killed.
bool end_well(const std::vector<pid_t>& children) {
  constexpr auto kToSayWhy = std::chrono::seconds(3);
  bool is_good = true;
  for (std::size_t left = children.size(); left > 0; --left) {
    int status = 0;
    if (wait(&status) < 0) {
      return false;
    }
    if (status != 0 && std::exchange(is_good, false)) {
      std::this_thread::sleep_for(kToSayWhy);
      for (const pid_t child : children) {
        if (waitid(P_PID, static_cast<id_t>(child), nullptr, WEXITED | WNOHANG | WNOWAIT) == 0) {
          static_cast<void>(kill(child, SIGKILL));
        }
      }
    }
  }
  return is_good;
}

int check(const Options& options) {
  const plan::VerifyReport verified = plan::verify(make_plan(options).schedules.front(), nullptr);
  if (!verified.ok()) {
    fmt::print(stderr, "nccl_check: the plan: {}\n", verified.problems.front());
    return 1;
  }
  void* memory =
      mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    fmt::print(stderr, "nccl_check: no shared memory\n");
    return 1;
  }
  auto& shared = *new (memory) Shared;
  std::vector<pid_t> children;
  for (std::size_t r = 0; r < options.ranks; ++r) {
    const pid_t child = fork();
    if (child == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      std::_Exit(guarded(options, r, shared));
    }
    if (child < 0) {
      fmt::print(stderr, "nccl_check: no process for rank {}\n", r);
      shared.is_over = true;
      break;
    }
    children.push_back(child);
  }
  bool is_good = end_well(children) && children.size() == options.ranks;
  is_good = is_good && shared.wrong == 0;
  const double seconds = static_cast<double>(shared.picoseconds) * 1e-12;
  const nlohmann::json report = {{"ranks", options.ranks},       {"elements", options.elements},
                                 {"steps", options.steps},       {"good", is_good},
                                 {"wrong", shared.wrong.load()}, {"step_s", seconds}};
  fmt::print("{}\n", report.dump());
  return is_good ? 0 : 1;
}

int run(int argc, char** argv) {
  Options options;
  CLI::App app("Plans executed on a GPU by several ranks that share it, with NCCL");
  app.add_option("--ranks", options.ranks, "Processes, an even number")
      ->check(CLI::Range(std::size_t{2}, kMostRanks));
  app.add_option("--elements", options.elements, "Floats of the gradient")
      ->check(CLI::Range(std::int64_t{2}, std::int64_t{1} << 31U));
  app.add_option("--steps", options.steps, "Times that it is summed")
      ->check(CLI::Range(1U, 1'000'000U));
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  if (options.ranks % 2 != 0) {
    fmt::print(stderr, "nccl_check: --ranks: found {}, expected an even number\n", options.ranks);
    return 2;
  }
  return check(options);
}

}  // namespace
}  // namespace rackrail::runtime

int main(int argc, char** argv) { return rackrail::runtime::run(argc, argv); }
