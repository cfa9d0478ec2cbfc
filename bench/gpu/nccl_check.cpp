// Plans executed on a GPU by several ranks, with the NCCL of this machine:
//
//   nccl_check [--ranks 4] [--elements 16777216] [--steps 10] [--across ucx] [--codec fp16]
//              [--inside ucx] [--lose 2 [--by stop] [--regroup shrink]]
//
// Pairs of ranks stand for nodes: NCCL sums inside them, and carries what goes between them, too;
// or that goes over UCX, from the GPU's memory where UCX takes it, else by way of pinned memory;
// or all of it does. Ranks are processes that share one GPU, each with a NCCL_HOSTID of its own,
// because NCCL refuses two ranks on one device of one host; so what NCCL moves goes through
// sockets, and times say nothing of a real machine.
//
// --lose: that rank is killed in the middle of a sum, or stopped. The others must hear of it in
// time, regroup (with communicators of their own, as jobs do; or by ncclCommShrink of one, which
// NCCL 2.28 refuses on ranks whose connection to a dead one has ended), and sum again.
//
// Prints one line of JSON: whether all ranks end with the exact sum, and the median time of a step.
// Exit status: 0 right, 1 wrong or no GPU or no NCCL or UCX, 2 bad arguments.
#include <fmt/format.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cstdio>
#include <new>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/error.hpp"
#include "bench/gpu/pair_sums.hpp"
#include "bench/gpu/rank_processes.hpp"
#include "plan/verifier.hpp"
#include "runtime/cuda/factory.hpp"
#include "runtime/cuda/graph.hpp"
#include "runtime/launch/gpu_worker.hpp"
#include "runtime/nccl/communicator.hpp"
#include "runtime/nccl/library.hpp"

namespace rackrail::bench {
namespace {

constexpr double kMostSecondsToNotice = 20;
// A rank is killed in the sum that is under way so many sums after those that are timed.
constexpr double kSumsBeforeDeath = 2.5;

struct Options {
  SumOptions sums;
  int victim = Shared::kNobody;
  std::string by = "kill";
  std::string regroup = "join";

  bool loses() const { return victim != Shared::kNobody; }
  bool shrinks() const { return regroup == "shrink"; }
  bool stops() const { return by == "stop"; }
};

/// Steps in which all is well, each of which `sum` sums.
template <typename Sum>
void sum_exactly(std::uint32_t steps, CheckedGradient& gradient, const Meeting& meeting,
                 Shared& shared, Sum sum) {
  std::vector<std::int64_t> times;
  for (std::uint32_t step = 0; step < steps; ++step) {
    gradient.fill();
    const std::int64_t started = now_in_nanoseconds();
    sum();
    times.push_back(now_in_nanoseconds() - started);
    shared.wrong += gradient.wrong(meeting.members());
  }
  const auto middle = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2);
  std::nth_element(times.begin(), middle, times.end());
  if (meeting.self() == Rank(0)) {
    shared.step = *middle;
  }
}

/// Sums until a rank is gone, which is this one if it is the victim. Throws RuntimeFailure where
/// nobody goes.
template <typename Sum>
void sum_until_loss(const Options& options, CheckedGradient& gradient, const Meeting& meeting,
                    Shared& shared, Sum sum) {
  std::optional<std::jthread> death;
  if (meeting.self() == Rank(options.victim)) {
    const std::chrono::nanoseconds delay(
        static_cast<std::int64_t>(kSumsBeforeDeath * static_cast<double>(shared.step)));
    death.emplace([delay, is_stopped = options.stops()] {
      std::this_thread::sleep_for(delay);
      kill(getpid(), is_stopped ? SIGSTOP : SIGKILL);
    });
  }
  try {
    while (true) {
      gradient.fill();
      sum();
      shared.wrong += gradient.wrong(meeting.members());
    }
  } catch (const RuntimeFailure& error) {
    raise_to(shared.noticed_at, now_in_nanoseconds());
    fmt::print(stderr, "nccl_check: rank {} heard: {}\n", meeting.self().value(), error.what());
  }
  while (shared.lost == Shared::kNobody) {  // what was heard may be faster than the parent
    if (shared.is_over) {
      throw RuntimeFailure("another rank has failed");
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

/// Has sums end once a rank is lost, as a job's coordinator does.
class LossWatch {
 public:
  LossWatch(const Shared& shared, PairSums& sums)
      : thread_([&shared, &sums](const std::stop_token& stop) {
          while (!stop.stop_requested() && shared.lost == Shared::kNobody) {
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
          }
          if (!stop.stop_requested()) {
            sums.abort(fmt::format("rank {} was lost", shared.lost.load()));
          }
        }) {}

 private:
  std::jthread thread_;
};

void check_sums(const Options& options, CheckedGradient& gradient, Meeting& meeting,
                Shared& shared) {
  std::optional<PairSums> sums(std::in_place, options.sums, meeting, shared, gradient, 0U);
  const auto sum = [&] { sums->sum(gradient); };
  if (meeting.self() == Rank(0)) {
    shared.is_staged = sums->is_staged();
  }
  sum_exactly(options.sums.steps, gradient, meeting, shared, sum);
  if (options.loses()) {
    {
      const LossWatch watch(shared, *sums);
      meeting.exchange("");  // so that rank 0's time is known
      sum_until_loss(options, gradient, meeting, shared, sum);
    }
    sums.reset();
    meeting.leave_out(Rank(options.victim));
    sums.emplace(options.sums, meeting, shared, gradient, 1U);
    sum_exactly(options.sums.steps, gradient, meeting, shared, sum);
    raise_to(shared.summed_at, now_in_nanoseconds());
  }
}

/// Of one communicator, and waits for it: on the host, which looks after the others meanwhile.
void all_reduce(runtime::NcclCommunicator& communicator, const CheckedGradient& gradient,
                const std::function<bool()>& is_over) {
  const cudaStream_t stream = gradient.stream().get();
  runtime::NcclGroup group(communicator);
  group.add(communicator.functions().all_reduce(gradient.span().data(), gradient.span().data(),
                                                gradient.span().size(), runtime::NcclType::kFloat32,
                                                runtime::NcclOperator::kSum, communicator.handle(),
                                                stream),
            "ncclAllReduce");
  group.end();
  runtime::CudaSignal done;
  done.record(stream);
  while (!done.has_passed()) {
    communicator.check_health();
    if (is_over()) {
      throw RuntimeFailure("a rank was lost");
    }
    std::this_thread::sleep_for(std::chrono::microseconds(20));
  }
  communicator.check_health();  // a kernel that was told to quit looks like a sum
}

/// All-reduces by one communicator, which then leaves out the lost rank.
void check_shrink(const Options& options, CheckedGradient& gradient, Meeting& meeting,
                  Shared& shared) {
  using runtime::NcclCommunicator;
  const runtime::NcclFunctions& nccl = runtime::nccl_library().functions;
  runtime::NcclId id;
  if (meeting.self() == Rank(0)) {
    id = NcclCommunicator::make_id(nccl);
  }
  const std::string said =
      meeting.exchange({static_cast<const char*>(id.bytes), sizeof id.bytes}).front();
  std::copy(said.begin(), said.end(), static_cast<char*>(id.bytes));
  bool has_regrouped = false;
  const auto is_over = [&] { return !has_regrouped && shared.lost != Shared::kNobody; };
  NcclCommunicator world =
      NcclCommunicator::join(nccl, id, static_cast<int>(options.sums.ranks),
                             static_cast<int>(meeting.self().value()), {.is_over = is_over});
  const auto sum = [&] { all_reduce(world, gradient, is_over); };
  sum_exactly(options.sums.steps, gradient, meeting, shared, sum);
  meeting.exchange("");  // so that rank 0's time is known
  sum_until_loss(options, gradient, meeting, shared, sum);
  has_regrouped = true;
  meeting.leave_out(Rank(options.victim));
  world = world.shrink(std::array{options.victim});
  sum_exactly(options.sums.steps, gradient, meeting, shared, sum);
  raise_to(shared.summed_at, now_in_nanoseconds());
  constexpr Duration kEndDeadline = 10_s;
  world.close(kEndDeadline);
}

void run_rank(const Options& options, Rank self, Shared& shared) {
  // Before there is another thread, and before the first call of NCCL, which reads them once.
  if (const auto problem = runtime::share_gpu_as(self, true)) {
    throw RuntimeFailure(*problem);
  }
  if (options.sums.path() != runtime::DevicePath::kTransport) {
    if (const auto& nccl = runtime::nccl_library().status; nccl.unavailable) {
      throw RuntimeFailure(*nccl.unavailable);
    }
  }
  if (const runtime::CudaStatus cuda = runtime::cuda_status(); cuda.unavailable) {
    throw RuntimeFailure(*cuda.unavailable);
  }
  Meeting meeting(shared, self, options.sums.ranks);
  CheckedGradient gradient(options.sums.elements, self);
  if (options.shrinks()) {
    check_shrink(options, gradient, meeting, shared);
  } else {
    check_sums(options, gradient, meeting, shared);
  }
}

/// The exit status of the process of a rank.
int guarded(const Options& options, Rank self, Shared& shared) {
  try {
    run_rank(options, self, shared);
    return 0;
  } catch (const std::exception& error) {
    shared.is_over = true;
    fmt::print(stderr, "nccl_check: rank {}: {}\n", self.value(), error.what());
    return 1;
  }
}

double seconds(std::int64_t nanoseconds) { return static_cast<double>(nanoseconds) * 1e-9; }

nlohmann::json report_of(const Options& options, const Shared& shared, bool has_ended_well) {
  nlohmann::json report = {
      {"ranks", options.sums.ranks},   {"elements", options.sums.elements},
      {"steps", options.sums.steps},   {"path", to_string(options.sums.path(), shared.is_staged)},
      {"codec", options.sums.codec},   {"wrong", shared.wrong.load()},
      {"step_s", seconds(shared.step)}};
  bool is_good = has_ended_well && shared.wrong == 0;
  if (options.loses()) {
    const double noticed = seconds(std::max<std::int64_t>(0, shared.noticed_at - shared.lost_at));
    is_good = is_good && shared.lost == options.victim && shared.summed_at != 0 &&
              noticed <= kMostSecondsToNotice;
    report["lost"] = options.victim;
    report["by"] = options.by;
    report["regroup"] = options.regroup;
    report["noticed_s"] = noticed;
    report["summed_again_s"] =
        seconds(std::max<std::int64_t>(0, shared.summed_at - shared.noticed_at));
  }
  report["good"] = is_good;
  return report;
}

/// What is wrong with them; empty: nothing.
std::string problem_of(const Options& options) {
  const SumOptions& sums = options.sums;
  const bool is_hybrid = sums.across != "nccl";
  if (sums.ranks % 2 != 0) {
    return fmt::format("--ranks: found {}, expected an even number", sums.ranks);
  }
  if ((is_hybrid || options.loses()) && sums.ranks < 4) {
    return fmt::format("--{}: found {} ranks, expected 4 or more: two pairs",
                       is_hybrid ? "across" : "lose", sums.ranks);
  }
  if (sums.inside != "nccl" && !is_hybrid) {
    return fmt::format("--inside: found {}, and nccl between the pairs, expected --across {}",
                       sums.inside, sums.inside);
  }
  if (sums.codec == "fp16" && sums.ranks > kMostRanksInFp16) {
    return fmt::format("--codec fp16: found {} ranks, expected at most {}", sums.ranks,
                       kMostRanksInFp16);
  }
  if (options.loses() && static_cast<std::size_t>(options.victim) >= sums.ranks) {
    return fmt::format("--lose: found {}, expected a rank below {}", options.victim, sums.ranks);
  }
  if (options.shrinks() && (!options.loses() || is_hybrid)) {
    return "--regroup shrink: expected --lose, and NCCL everywhere";
  }
  if (options.stops() && !options.loses()) {
    return "--by stop: expected --lose";
  }
  return {};
}

int check(const Options& options) {
  std::vector<Rank> members;
  for (std::size_t r = 0; r < options.sums.ranks; ++r) {
    members.emplace_back(r);
  }
  const plan::Plan plan = make_pair_plan(options.sums, pairs_of(members));
  const plan::VerifyReport verified = plan::verify(plan.schedules.front(), nullptr);
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
  const bool has_ended_well =
      run_processes(options.sums.ranks, options.victim, shared,
                    [&](Rank self) { return guarded(options, self, shared); });
  const nlohmann::json report = report_of(options, shared, has_ended_well);
  fmt::print("{}\n", report.dump());
  return report["good"] ? 0 : 1;
}

int run(int argc, char** argv) {
  Options options;
  CLI::App app("Plans executed on a GPU by several ranks that share it, with NCCL");
  app.add_option("--ranks", options.sums.ranks, "Processes, an even number")
      ->check(CLI::Range(std::size_t{2}, kMostRanks));
  app.add_option("--elements", options.sums.elements, "Floats of the gradient")
      ->check(CLI::Range(std::int64_t{2}, std::int64_t{1} << 31U));
  app.add_option("--steps", options.sums.steps, "Times that it is summed")
      ->check(CLI::Range(1U, 1'000'000U));
  app.add_option("--inside", options.sums.inside, "What is inside the pairs: nccl, or ucx")
      ->check(CLI::IsMember({"nccl", "ucx"}));
  app.add_option("--across", options.sums.across, "What is between the pairs: nccl, or ucx")
      ->check(CLI::IsMember({"nccl", "ucx"}));
  app.add_option("--codec", options.sums.codec, "Between the pairs: none, or fp16")
      ->check(CLI::IsMember({"none", "fp16"}));
  app.add_option("--lose", options.victim, "This rank is lost in the middle of a sum")
      ->check(CLI::Range(0, static_cast<int>(kMostRanks) - 1));
  app.add_option("--by", options.by,
                 "How it is lost: kill, or stop (it is there, and does nothing any more)")
      ->check(CLI::IsMember({"kill", "stop"}));
  app.add_option("--regroup", options.regroup,
                 "The others by: join (new communicators), or shrink (ncclCommShrink)")
      ->check(CLI::IsMember({"join", "shrink"}));
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  if (const std::string problem = problem_of(options); !problem.empty()) {
    fmt::print(stderr, "nccl_check: {}\n", problem);
    return 2;
  }
  return check(options);
}

}  // namespace
}  // namespace rackrail::bench

int main(int argc, char** argv) { return rackrail::bench::run(argc, argv); }
