#include "runtime/executor.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>
#include <utility>

#include "base/error.hpp"
#include "runtime/execution_ledger.hpp"
#include "runtime/progress_loop.hpp"
#include "runtime/slice_engine.hpp"

namespace rackrail::runtime {

namespace {

enum class BucketState : std::uint8_t { kIdle, kLaunched, kDone };

}  // namespace

struct Executor::Impl final : ProgressLoop {
  Impl(const plan::Plan& p, Rank self, Transport& t, const ExecutorOptions& options)
      : ProgressLoop(t, options.on_missed),
        plan(p),
        transport(t),
        ledger(self, options.record_timeline),
        engine(p, self, t, options, ledger),
        states(p.buckets.size(), BucketState::kIdle) {
    start();
  }

  ~Impl() override { stop(); }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  // ---- the caller's side ----

  void begin_step(std::uint32_t step) {
    const auto guard = lock();
    if (has_reason()) {
      return;  // the next wait says so
    }
    if (current_step && step != *current_step + 1) {
      throw RuntimeFailure(
          fmt::format("step {} was begun after step {}", step, current_step.value()));
    }
    if (std::count(states.begin(), states.end(), BucketState::kLaunched) != 0) {
      throw RuntimeFailure(fmt::format("step {} was begun before all buckets were done", step));
    }
    current_step = step;
    current_call = next_call;
    std::fill(states.begin(), states.end(), BucketState::kIdle);
  }

  void set_call(std::uint32_t call) {
    const auto guard = lock();
    next_call = call;
  }

  void launch(BucketId bucket, std::span<float> data) {
    if (bucket.index() >= plan.buckets.size()) {
      throw RuntimeFailure(fmt::format("bucket {} was launched, the plan has {}", bucket.value(),
                                       plan.buckets.size()));
    }
    const auto elements = static_cast<std::size_t>(plan.buckets[bucket.index()].elements);
    if (data.size() != elements) {
      throw RuntimeFailure(fmt::format("bucket {} was launched with {} floats, the plan says {}",
                                       bucket.value(), data.size(), elements));
    }
    {
      const auto guard = lock();
      if (has_reason()) {
        return;
      }
      if (!current_step) {
        throw RuntimeFailure(
            fmt::format("bucket {} was launched before the first step", bucket.value()));
      }
      if (states[bucket.index()] != BucketState::kIdle) {
        throw RuntimeFailure(fmt::format("bucket {} was launched twice in step {}", bucket.value(),
                                         current_step.value()));
      }
      states[bucket.index()] = BucketState::kLaunched;
      launched.emplace_back(bucket, data);
    }
    if (is_small(bucket)) {
      work_once();
    } else {
      rouse();
    }
  }

  void wait_for(BucketId bucket) {
    const auto is_done = [&] { return states.at(bucket.index()) == BucketState::kDone; };
    if (is_small(bucket)) {
      work_until(is_done, all_are_small());
    } else {
      wait_until(is_done);
    }
  }

  void wait_for_all() {
    const auto is_done = [&] {
      return std::count(states.begin(), states.end(), BucketState::kLaunched) == 0;
    };
    if (all_are_small()) {
      work_until(is_done, true);
    } else {
      wait_until(is_done);
    }
  }

  /// Whether its time is that of the messages' ways and not of their bytes.
  bool is_small(BucketId bucket) const {
    constexpr Bytes kMost = 64_KiB;
    return Bytes(plan.buckets.at(bucket.index()).elements) * 4 <= kMost;
  }

  bool all_are_small() const {
    const auto guard = lock();
    for (std::size_t b = 0; b < states.size(); ++b) {
      if (states[b] == BucketState::kLaunched && !is_small(BucketId(b))) {
        return false;
      }
    }
    return true;
  }

  // ---- the progress thread ----

  std::size_t take_launches() override {
    std::vector<std::pair<BucketId, std::span<float>>> launches;
    std::optional<std::uint32_t> step;
    std::uint32_t call = 0;
    {
      const auto guard = lock();
      launches.swap(launched);
      step = current_step;
      call = current_call;
    }
    if (step != engine_step) {
      engine.begin_step(*step, call);
      engine_step = step;
    }
    for (const auto& [bucket, data] : launches) {
      engine.start(bucket, data);
    }
    return launches.size();
  }

  std::size_t advance() override {
    engine.drain();
    engine.watch_peers();
    return 0;  // that the transport has not counted
  }

  std::optional<std::chrono::steady_clock::time_point> next_due() const override {
    return engine.next_due();
  }

  void report_finished() override {
    const std::vector<BucketId> finished = engine.take_finished();
    if (finished.empty()) {
      return;
    }
    {
      const auto guard = lock();
      for (const BucketId bucket : finished) {
        states[bucket.index()] = BucketState::kDone;
      }
    }
    notify();
  }

  void halt() noexcept override { engine.halt(); }
  bool is_busy() const override {
    return std::count(states.begin(), states.end(), BucketState::kLaunched) != 0;
  }
  bool is_borrowing() const noexcept override { return engine.borrowed() != 0; }

  const plan::Plan& plan;
  Transport& transport;
  ExecutionLedger ledger;
  SliceEngine engine;                        ///< of the progress thread, but for residuals
  std::optional<std::uint32_t> engine_step;  ///< of the progress thread

  // Guarded by lock().
  std::vector<std::pair<BucketId, std::span<float>>> launched;
  std::vector<BucketState> states;  ///< in the current step, by bucket
  std::optional<std::uint32_t> current_step;
  std::uint32_t current_call = 0;
  std::uint32_t next_call = 0;
};

Executor::Executor(const plan::Plan& plan, Rank self, Transport& transport,
                   const ExecutorOptions& options)
    : impl_(std::make_unique<Impl>(plan, self, transport, options)) {}
Executor::~Executor() = default;

void Executor::begin_step(std::uint32_t step) { impl_->begin_step(step); }

void Executor::set_call(std::uint32_t call) { impl_->set_call(call); }

void Executor::launch(BucketId bucket, std::span<float> data) { impl_->launch(bucket, data); }

void Executor::wait(BucketId bucket) { impl_->wait_for(bucket); }

void Executor::wait_all() { impl_->wait_for_all(); }

void Executor::abort(const std::string& reason) { impl_->abort(reason); }

bool Executor::aborted() const { return impl_->is_aborted(); }

ExecutorStatistics Executor::statistics() const {
  ExecutorStatistics statistics = impl_->ledger.statistics();
  statistics.progress_cpu_time = impl_->cpu_time();
  return statistics;
}

std::vector<plan::TimelineEvent> Executor::take_timeline() { return impl_->ledger.take_timeline(); }

Residuals Executor::residuals() const { return impl_->engine.residuals(); }

const std::vector<std::string>& Executor::notes() const { return impl_->engine.notes(); }

void Executor::set_residuals(Residuals residuals) {
  impl_->engine.set_residuals(std::move(residuals));
}

}  // namespace rackrail::runtime
