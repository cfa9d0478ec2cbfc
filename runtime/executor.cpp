#include "runtime/executor.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "base/error.hpp"
#include "runtime/execution_ledger.hpp"
#include "runtime/missed_peer.hpp"
#include "runtime/slice_engine.hpp"

namespace rackrail::runtime {

namespace {

using Clock = std::chrono::steady_clock;

constexpr Duration kLongestSleep = Duration(50'000'000'000);  // 50 ms: also notices a stop
constexpr auto kMostBorrowing = std::chrono::seconds(1);      // of gradients, once aborted

enum class BucketState : std::uint8_t { kIdle, kLaunched, kDone };

}  // namespace

struct Executor::Impl {
  Impl(const plan::Plan& p, Rank self, Transport& t, const ExecutorOptions& options)
      : plan(p),
        transport(t),
        ledger(self, options.record_timeline),
        on_missed(options.on_missed),
        engine(p, self, t, options, ledger),
        states(p.buckets.size(), BucketState::kIdle) {
    thread = std::thread([this] { loop(); });
  }

  ~Impl() {
    stopping = true;
    transport.wake();
    thread.join();
  }

  // ---- the caller's side ----

  void begin_step(std::uint32_t step) {
    const std::lock_guard lock(mutex);
    if (reason) {
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
    std::fill(states.begin(), states.end(), BucketState::kIdle);
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
      const std::lock_guard lock(mutex);
      if (reason) {
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
    transport.wake();
  }

  template <typename Done>
  void wait_until(Done is_done) {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return reason ? gradients_are_free : is_done(); });
    if (missed) {
      throw MissedPeerError(*missed);
    }
    if (reason) {
      throw PeerLostError(*reason);
    }
  }

  void abort(const std::string& why, std::optional<MissedPeer> peer = {}) {
    {
      const std::lock_guard lock(mutex);
      if (reason) {
        return;
      }
      reason = why;
      missed = std::move(peer);
    }
    transport.wake();
  }

  bool aborted() const {
    const std::lock_guard lock(mutex);
    return reason.has_value();
  }

  // ---- the progress thread ----

  void loop() {
    try {
      while (!stopping && !aborted()) {
        std::size_t happened = take_launches();
        happened += transport.progress();
        engine.drain();
        engine.watch_peers();
        report_finished();
        if (happened == 0) {
          transport.wait(kLongestSleep);
        }
      }
    } catch (const MissedPeerError& error) {
      abort(error.what(), error.peer());
      if (on_missed) {
        on_missed(error.peer());
      }
    } catch (const std::exception& error) {
      abort(error.what());
    }
    engine.halt();
    complete_sends();
    {
      const std::lock_guard lock(mutex);
      gradients_are_free = true;
    }
    changed.notify_all();
    // Peers that go on may still need to be heard, or they would wait for room to send.
    while (!stopping) {
      progress_or_sleep(kLongestSleep);
    }
  }

  std::size_t take_launches() {
    std::vector<std::pair<BucketId, std::span<float>>> launches;
    std::optional<std::uint32_t> step;
    {
      const std::lock_guard lock(mutex);
      launches.swap(launched);
      step = current_step;
    }
    if (step != engine_step) {
      engine.begin_step(*step);
      engine_step = step;
    }
    for (const auto& [bucket, data] : launches) {
      engine.start(bucket, data);
    }
    return launches.size();
  }

  void report_finished() {
    const std::vector<BucketId> finished = engine.take_finished();
    if (finished.empty()) {
      return;
    }
    {
      const std::lock_guard lock(mutex);
      for (const BucketId bucket : finished) {
        states[bucket.index()] = BucketState::kDone;
      }
    }
    changed.notify_all();
  }

  // A send to a peer that hangs may never complete: it is given up after a while.
  void complete_sends() {
    const auto deadline = Clock::now() + kMostBorrowing;
    while (engine.borrowed() != 0 && Clock::now() < deadline) {
      progress_or_sleep(1_ms);
    }
  }

  void progress_or_sleep(Duration at_most) noexcept {
    try {
      if (transport.progress() == 0) {
        transport.wait(at_most);
      }
    } catch (const std::exception&) {
      // The first reason counts, and there is one.
    }
  }

  const plan::Plan& plan;
  Transport& transport;
  ExecutionLedger ledger;
  const std::function<void(const MissedPeer&)> on_missed;
  SliceEngine engine;                        ///< of the progress thread, but for residuals
  std::optional<std::uint32_t> engine_step;  ///< of the progress thread

  mutable std::mutex mutex;  ///< guards what follows
  std::condition_variable changed;
  std::vector<std::pair<BucketId, std::span<float>>> launched;
  std::vector<BucketState> states;  ///< in the current step, by bucket
  std::optional<std::uint32_t> current_step;
  std::optional<std::string> reason;  ///< of the abort
  std::optional<MissedPeer> missed;   ///< whose fault it is, where that is known
  bool gradients_are_free = false;    ///< after an abort

  std::atomic<bool> stopping = false;
  std::thread thread;
};

Executor::Executor(const plan::Plan& plan, Rank self, Transport& transport,
                   const ExecutorOptions& options)
    : impl_(std::make_unique<Impl>(plan, self, transport, options)) {}
Executor::~Executor() = default;

void Executor::begin_step(std::uint32_t step) { impl_->begin_step(step); }

void Executor::launch(BucketId bucket, std::span<float> data) { impl_->launch(bucket, data); }

void Executor::wait(BucketId bucket) {
  impl_->wait_until([&] { return impl_->states.at(bucket.index()) == BucketState::kDone; });
}

void Executor::wait_all() {
  impl_->wait_until([&] {
    return std::count(impl_->states.begin(), impl_->states.end(), BucketState::kLaunched) == 0;
  });
}

void Executor::abort(const std::string& reason) { impl_->abort(reason); }

bool Executor::aborted() const { return impl_->aborted(); }

ExecutorStatistics Executor::statistics() const { return impl_->ledger.statistics(); }

std::vector<plan::TimelineEvent> Executor::take_timeline() { return impl_->ledger.take_timeline(); }

Residuals Executor::residuals() const { return impl_->engine.residuals(); }

void Executor::set_residuals(Residuals residuals) {
  impl_->engine.set_residuals(std::move(residuals));
}

}  // namespace rackrail::runtime
