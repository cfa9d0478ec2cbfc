// Plans executed on a GPU by several ranks, with the NCCL of this machine:
//
//   nccl_check [--ranks 4] [--elements 16777216] [--steps 10] [--across ucx] [--codec fp16]
//
// Pairs of ranks stand for nodes: NCCL sums inside them, and carries what goes between them, too;
// or that goes over UCX, from the GPU's memory where UCX takes it, else by way of pinned memory.
// Ranks are processes that share one GPU, each with a NCCL_HOSTID of its own, because NCCL refuses
// two ranks on one device of one host; so what NCCL moves goes through sockets, and times say
// nothing of a real machine. Prints one line of JSON: whether all ranks end with the exact sum, and
// the median time of a step. Exit status: 0 right, 1 wrong or no GPU or no NCCL or UCX, 2 bad
// arguments.
#include <fmt/format.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "plan/verifier.hpp"
#include "runtime/cuda/factory.hpp"
#include "runtime/cuda/handles.hpp"
#include "runtime/launch/gpu_worker.hpp"
#include "runtime/nccl/library.hpp"
#include "runtime/nccl/plan_executor.hpp"

namespace rackrail::runtime {
namespace {

constexpr std::size_t kMostRanks = 64;
// Gradients are whole numbers; FP16 has all of them up to 2,048.
constexpr std::size_t kDifferentValues = 31;
constexpr std::size_t kMostRanksInFp16 = 10;
constexpr Duration kEndDeadline = 10_s;

struct Options {
  std::size_t ranks = 4;
  std::int64_t elements = std::int64_t{1} << 24U;
  std::uint32_t steps = 10;
  std::string across = "nccl";
  std::string codec = "none";  ///< between pairs

  bool is_hybrid() const { return across != "nccl"; }
};

/// What a rank says to all others, once.
struct Statement {
  std::array<char, 16'384> text = {};
  std::size_t size = 0;
  std::atomic<bool> is_made = false;
};

/// Of all processes.
struct Shared {
  std::array<std::array<Statement, kMostRanks>, 2> statements;  ///< by round and rank
  std::atomic<bool> is_over = false;                            ///< a rank has failed
  std::atomic<std::uint64_t> wrong = 0;
  std::atomic<std::uint64_t> picoseconds = 0;  ///< of a step of rank 0
  std::atomic<bool> is_staged = true;          ///< messages, at rank 0
};

/// One rank's place among the processes.
class Meeting {
 public:
  Meeting(Shared& shared, std::size_t self, std::size_t ranks)
      : shared_(shared), self_(self), ranks_(ranks) {}

  /// What each rank says in this round, by rank.
  std::vector<std::string> exchange(const std::string& own) {
    auto& round = shared_.statements.at(round_++);
    Statement& mine = round.at(self_);
    if (own.size() > mine.text.size()) {
      throw RuntimeFailure(
          fmt::format("what rank {} has to say takes {} bytes, expected at most {}", self_,
                      own.size(), mine.text.size()));
    }
    std::copy(own.begin(), own.end(), mine.text.begin());
    mine.size = own.size();
    mine.is_made = true;
    std::vector<std::string> all;
    for (std::size_t r = 0; r < ranks_; ++r) {
      while (!round.at(r).is_made) {
        if (shared_.is_over) {
          throw RuntimeFailure("another rank has failed");
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
      all.emplace_back(round.at(r).text.data(), round.at(r).size);
    }
    return all;
  }

 private:
  Shared& shared_;
  const std::size_t self_;
  const std::size_t ranks_;
  std::size_t round_ = 0;
};

/// Pairs: a shard is summed at one member of each pair, at the first pair, and comes back.
plan::Plan make_plan(const Options& options) {
  const auto ranks = static_cast<std::uint32_t>(options.ranks);
  plan::TransferGraph graph("pairs", plan::Collective::kAllReduce, ranks, {1, 1});
  const std::uint8_t codec_across = graph.add_codec(plan::parse_codec(options.codec));
  for (std::uint32_t shard = 0; shard < 2; ++shard) {
    const auto add = [&](std::uint32_t src, std::uint32_t dst, plan::TransferOp op,
                         const std::vector<TransferId>& after) {
      const std::uint8_t codec = src / 2 == dst / 2 ? std::uint8_t{0} : codec_across;
      return graph.add_transfer(
          {.src = Rank(src), .dst = Rank(dst), .chunk_begin = shard, .op = op, .codec = codec},
          after);
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
    std::vector<TransferId> across = sums;  // a codec makes what is here what it made of it
    for (std::uint32_t pair = 2; pair < ranks; pair += 2) {
      across.push_back(add(shard, pair + shard, plan::TransferOp::kCopy, sums));
      add(pair + shard, pair + 1 - shard, plan::TransferOp::kCopy, {across.back()});
    }
    add(shard, 1 - shard, plan::TransferOp::kCopy, across);
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
  return static_cast<float>((rank + 1) * (element % kDifferentValues + 1));
}

/// Joined to those of the other ranks; with NCCL alone nothing goes over it.
std::unique_ptr<Transport> join_transport(const Options& options, Rank self, Meeting& meeting) {
  if (!options.is_hybrid()) {
    return std::move(make_in_process_transports(1).front());
  }
  std::unique_ptr<Transport> transport = make_transport(options.across);
  const std::vector<std::byte> own = transport->address();
  std::vector<std::vector<std::byte>> addresses;
  for (const std::string& address :
       meeting.exchange({reinterpret_cast<const char*>(own.data()), own.size()})) {
    const auto bytes = std::as_bytes(std::span(address));
    addresses.emplace_back(bytes.begin(), bytes.end());
  }
  transport->connect(self, addresses);
  return transport;
}

void run_rank(const Options& options, std::size_t self, Shared& shared) {
  // Before there is another thread, and before the first call of NCCL, which reads them once.
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
  const plan::Plan plan = make_plan(options);
  RankGroups pairs;
  for (std::size_t r = 0; r < options.ranks; r += 2) {
    pairs.push_back({Rank(r), Rank(r + 1)});
  }
  Meeting meeting(shared, self, options.ranks);
  const std::unique_ptr<Transport> transport = join_transport(options, Rank(self), meeting);
  const CudaStream stream;
  const DeviceBuffer<float> gradient(static_cast<std::size_t>(options.elements));
  std::unique_ptr<PlanExecutor> executor = make_device_plan_executor(
      plan, Rank(self), *transport,
      {.stream = stream.get(),
       .path = options.is_hybrid() ? DevicePath::kHybrid : DevicePath::kNccl,
       .groups = pairs,
       .nccl = &nccl.functions,
       .exchange = [&](const std::string& own) { return meeting.exchange(own); }});
  if (self == 0) {
    shared.is_staged = is_staged(Staging::kWhereNeeded, *transport);
  }
  std::vector<float> values(gradient.size());
  std::vector<std::chrono::nanoseconds> times;
  for (std::uint32_t step = 0; step < options.steps; ++step) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      values[i] = contribution(self, i);
    }
    copy_to_device<float>(values, gradient, stream.get());
    stream.synchronize();
    const auto started = std::chrono::steady_clock::now();
    executor->begin_step(step);
    executor->launch(BucketId(0), gradient.span());
    executor->wait_all();
    times.push_back(std::chrono::steady_clock::now() - started);
    copy_to_host(gradient, std::span(values), stream.get());
    stream.synchronize();
    const auto total = static_cast<float>(options.ranks * (options.ranks + 1) / 2);
    for (std::size_t i = 0; i < values.size(); ++i) {
      shared.wrong += values[i] == total * static_cast<float>(i % kDifferentValues + 1) ? 0U : 1U;
    }
  }
  if (self == 0) {
    const auto middle = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2);
    std::nth_element(times.begin(), middle, times.end());
    shared.picoseconds = static_cast<std::uint64_t>(1000 * middle->count());
  }
  executor.reset();
  transport->close(kEndDeadline);
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
  const DevicePath path = options.is_hybrid() ? DevicePath::kHybrid : DevicePath::kNccl;
  const nlohmann::json report = {
      {"ranks", options.ranks},       {"elements", options.elements},
      {"steps", options.steps},       {"path", to_string(path, shared.is_staged)},
      {"codec", options.codec},       {"good", is_good},
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
  app.add_option("--across", options.across, "What is between the pairs: nccl, or ucx")
      ->check(CLI::IsMember({"nccl", "ucx"}));
  app.add_option("--codec", options.codec, "Between the pairs: none, or fp16")
      ->check(CLI::IsMember({"none", "fp16"}));
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  if (options.ranks % 2 != 0) {
    fmt::print(stderr, "nccl_check: --ranks: found {}, expected an even number\n", options.ranks);
    return 2;
  }
  if (options.is_hybrid() && options.ranks < 4) {
    fmt::print(stderr, "nccl_check: --across: found {} ranks, expected 4 or more: two pairs\n",
               options.ranks);
    return 2;
  }
  if (options.codec == "fp16" && options.ranks > kMostRanksInFp16) {
    fmt::print(stderr, "nccl_check: --codec fp16: found {} ranks, expected at most {}\n",
               options.ranks, kMostRanksInFp16);
    return 2;
  }
  return check(options);
}

}  // namespace
}  // namespace rackrail::runtime

int main(int argc, char** argv) { return rackrail::runtime::run(argc, argv); }
