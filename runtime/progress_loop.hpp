// The progress thread of one rank, which uses its transport, and the waits of the caller's thread
// for what it does: what whatever moves gradients has in common.
//
// Turns. Of what is small, the time is that of waking threads up: so the caller's thread may do the
// progress thread's work itself while it launches such a thing and waits for it. Whoever has the
// turn works; the other one sleeps. Before the caller sleeps it polls for 300 us, and yields, as it
// has nothing else to do. After its turn the thread stays out of the way for 2 ms, as the next one
// is often near, unless more is under way.
//
// Life. While all is well the thread takes what the caller has launched, lets the transport
// progress, does what has become possible, and when nothing happened sleeps, after a short spin
// where what it waits for tends to come soon (runtime/short_spin.hpp). The first abort, by the
// caller, by another thread or by an exception of the thread's own, ends that: waits throw as soon
// as nothing is written into the caller's memory any more, and nothing reads it but sends that a
// peer has not taken within a second. From then on the transport progresses all the same, because
// peers that go on may need to be heard, or they would wait for room to send.
//
// What is derived from it calls start() when it is whole, and stop() first of all in its
// destructor.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "base/error.hpp"
#include "base/units.hpp"
#include "runtime/missed_peer.hpp"
#include "runtime/transport.hpp"

namespace rackrail::runtime {

class ProgressLoop {
 public:
  ProgressLoop(const ProgressLoop&) = delete;
  ProgressLoop& operator=(const ProgressLoop&) = delete;

  /// Makes every present and later wait throw. From any thread; only the first reason counts.
  void abort(const std::string& why, std::optional<MissedPeer> peer = {});
  bool is_aborted() const;
  /// Processor time of the work so far, on whichever thread. Between start() and stop().
  Duration cpu_time() const;

 protected:
  /// `on_missed`: called on the progress thread as soon as a peer is missed; may be empty.
  ProgressLoop(Transport& transport, std::function<void(const MissedPeer&)> on_missed)
      : transport_(transport), on_missed_(std::move(on_missed)) {}
  virtual ~ProgressLoop() = default;

  void start();
  /// Until the thread has ended; nothing happens if it never began.
  void stop() noexcept;

  /// `is_done` is asked with the lock held. Throws PeerLostError once there was an abort,
  /// MissedPeerError where it is known by whom.
  template <typename Done>
  void wait_until(const Done& is_done) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return reason_ ? memory_is_free_ : is_done(); });
    if (missed_) {
      throw MissedPeerError(*missed_);
    }
    if (reason_) {
      throw PeerLostError(*reason_);
    }
  }
  /// The same, and meanwhile the caller's thread does the work, unless the other one is at it and
  /// may not be asked to leave it: where it has more to do than this.
  template <typename Done>
  void work_until(const Done& is_done, bool may_ask) {
    take_turn(
        [&] {
          const auto guard = lock();
          return reason_ || is_done();
        },
        may_ask);
    wait_until(is_done);
  }
  /// Has the thread start what was launched.
  void rouse();
  /// The same on the caller's thread, as far as it gets at once, unless the other thread is
  /// working.
  void work_once();
  /// For what the caller and the thread share.
  std::unique_lock<std::mutex> lock() const { return std::unique_lock(mutex_); }
  /// With the lock held.
  bool has_reason() const { return reason_.has_value(); }
  /// Something that wait_until() asks for may have changed.
  void notify() { changed_.notify_all(); }

  // By whoever has the turn; an exception of one of these is an abort.
  /// What the caller has launched; how much it was.
  virtual std::size_t take_launches() = 0;
  /// After the transport has progressed; how much happened besides.
  virtual std::size_t advance() = 0;
  /// When advance() has something to do next though nothing happens; none: it need not be asked.
  virtual std::optional<std::chrono::steady_clock::time_point> next_due() const { return {}; }
  /// Whether something else that was launched is not done yet. With the lock held.
  virtual bool is_busy() const { return false; }
  /// Tells the caller, by notify(), what is done.
  virtual void report_finished() = 0;
  /// Releases everything, once. Handlers may still be called afterwards, and do nothing.
  virtual void halt() noexcept = 0;
  /// After halt(): whether sends still read the caller's memory.
  virtual bool is_borrowing() const noexcept { return false; }

 private:
  void loop();
  void work();
  std::size_t work_a_round();
  bool stand_aside();
  bool ask_for_turn(std::unique_lock<std::mutex>& turn);
  void take_turn(const std::function<bool()>& is_over, bool may_ask);
  void fail() noexcept;
  void tell_of_missed();
  void complete_sends() noexcept;
  void progress_or_sleep(Duration at_most) noexcept;

  Transport& transport_;
  const std::function<void(const MissedPeer&)> on_missed_;

  std::mutex turn_;           ///< of who uses the transport; locked before the other one
  mutable std::mutex mutex_;  ///< guards what follows, and what wait_until() asks for
  std::condition_variable changed_;
  std::optional<std::string> reason_;      ///< of the abort
  std::optional<MissedPeer> missed_;       ///< whose fault it is, where that is known
  bool memory_is_free_ = true;             ///< false while the thread may use the caller's memory
  std::optional<MissedPeer> missed_here_;  ///< and not only heard of
  std::condition_variable is_wanted_;      ///< the thread, which stands aside
  bool stands_aside_ = false;              ///< for the caller's turn
  std::chrono::steady_clock::time_point aside_until_;  ///< once that is over
  Duration callers_cpu_time_;

  std::atomic<bool> stopping_ = false;
  std::thread thread_;
};

}  // namespace rackrail::runtime
