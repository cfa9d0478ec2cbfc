#include "runtime/nccl/plan_executor.hpp"

#include <fmt/format.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "runtime/nccl/device_executor.hpp"
#include "runtime/nccl/host_messages.hpp"

namespace rackrail::runtime {
namespace {

using Clock = std::chrono::steady_clock;

// Sleeping shorter is of no use: a wake-up takes as long.
constexpr auto kShortest = std::chrono::microseconds(20);
constexpr auto kSpin = std::chrono::microseconds(50);
// NCCL is asked for lost peers this often.
constexpr auto kHealthPeriod = std::chrono::milliseconds(5);
constexpr Duration kCloseDeadline = 2_s;
// Of NCCL's thread blocks, so that kernels of two communicators never wait for each other's place.
constexpr int kMostThreadBlocks = 16;

std::string hex(const NcclId& id) {
  std::string text;
  for (const char byte : id.bytes) {
    text += fmt::format("{:02x}", static_cast<unsigned char>(byte));
  }
  return text;
}

NcclId parse_id(const std::string& text) {
  NcclId id;
  if (text.size() != 2 * sizeof id.bytes ||
      text.find_first_not_of("0123456789abcdef") != std::string::npos) {
    throw RuntimeFailure("rank 0 has no identifier for NCCL: " + text);
  }
  for (std::size_t i = 0; i < sizeof id.bytes; ++i) {
    id.bytes[i] = static_cast<char>(std::stoi(text.substr(2 * i, 2), nullptr, 16));
  }
  return id;
}

RankGroups alone(std::size_t ranks) {
  RankGroups groups;
  for (std::size_t r = 0; r < ranks; ++r) {
    groups.push_back({Rank(r)});
  }
  return groups;
}

DeviceCommunicators join(const plan::Plan& plan, Rank self, const DevicePlanOptions& options,
                         std::function<bool()> is_over) {
  if (options.path == DevicePath::kTransport) {
    return {};
  }
  std::string own;
  if (self == Rank(0)) {
    try {
      own = hex(NcclCommunicator::make_id(*options.nccl));
    } catch (const NcclError& error) {
      own = error.what();  // the others wait for an answer
    }
  }
  const NcclId id = parse_id(options.exchange(own).at(0));
  return DeviceCommunicators::make(
      NcclCommunicator::join(
          *options.nccl, id, static_cast<int>(plan.rank_count()), static_cast<int>(self.value()),
          {.most_thread_blocks = kMostThreadBlocks, .is_over = std::move(is_over)}),
      options.groups, self);
}

/// Sees to a transport that carries no gradients, while NCCL does: connections are made only while
/// it progresses, and UCX aborts a process whose peer dies while one is being made. Who is gone is
/// NCCL's and the coordinator's to find: a peer may be done and have closed its end before this
/// rank is. The transport is this object's alone.
class IdleTransport {
 public:
  explicit IdleTransport(Transport& transport) : transport_(transport) {
    transport_.set_handlers(nullptr, nullptr);
    thread_ = std::thread([this] { run(); });
  }
  ~IdleTransport() {
    is_stopping_ = true;
    transport_.wake();
    thread_.join();
  }
  IdleTransport(const IdleTransport&) = delete;
  IdleTransport& operator=(const IdleTransport&) = delete;

 private:
  void run() noexcept {
    constexpr Duration kLongestSleep = 100_ms;  // the wake-up may come before it
    try {
      while (!is_stopping_) {
        if (transport_.progress() == 0) {
          transport_.wait(kLongestSleep);
        }
      }
    } catch (const std::exception&) {
      // Nothing is asked of it.
    }
  }

  Transport& transport_;
  std::atomic<bool> is_stopping_ = false;
  std::thread thread_;
};

class DevicePlanExecutor final : public PlanExecutor {
 public:
  DevicePlanExecutor(const plan::Plan& plan, Rank self, Transport& transport,
                     const DevicePlanOptions& options)
      : self_(self),
        device_(options.device),
        stream_(static_cast<cudaStream_t>(options.stream)),
        launched_(plan.buckets.size()) {
    const CurrentDevice here(device_);
    if (options.path == DevicePath::kNccl) {
      idle_transport_.emplace(transport);
    }
    communicators_ = join(plan, self, options, [this, is_job_over = options.is_over] {
      return aborted() || (is_job_over && is_job_over());
    });
    if (options.path == DevicePath::kNccl) {
      messages_ = std::make_unique<NcclMessages>(*communicators_.world);
    } else {
      auto host_messages = std::make_unique<HostMessages>(
          transport, HostMessages::Options{.plan = kPlanNumber,
                                           .epoch = options.epoch,
                                           .is_direct = !is_staged(options.staging, transport),
                                           .device = device_});
      host_messages_ = host_messages.get();
      messages_ = std::move(host_messages);
    }
    const RankGroups groups =
        options.path == DevicePath::kTransport ? alone(plan.rank_count()) : options.groups;
    executor_ = std::make_unique<DeviceExecutor>(plan, self, groups, communicators_, *messages_);
    for (std::size_t b = 0; b < plan.buckets.size(); ++b) {
      sent_.push_back(count_sends(executor_->program(BucketId(b))));
    }
    if (host_messages_ != nullptr) {
      host_messages_->start();
    }
  }

  ~DevicePlanExecutor() override {
    const CurrentDevice here(device_, std::nothrow);
    // Kernels and functions that wait for others must quit before their memory goes.
    if (aborted() || has_unfinished()) {
      abort("the executor ends");
      communicators_.abort();
    } else {
      communicators_.close(kCloseDeadline);
    }
    executor_.reset();
  }

  void begin_step(std::uint32_t step) override {
    const std::lock_guard lock(mutex_);
    const CurrentDevice here(device_);
    require_not_aborted();
    for (std::size_t b = 0; b < launched_.size(); ++b) {
      if (launched_[b] && !executor_->is_done(BucketId(b))) {
        throw RuntimeFailure(
            fmt::format("step {} was begun while bucket {} is under way", step, b));
      }
    }
    executor_->begin_step(step);
    launched_.assign(launched_.size(), false);
  }

  void launch(BucketId bucket, std::span<float> data) override {
    const CurrentDevice here(device_);
    messages_->learn(std::as_writable_bytes(data));  // others may have to abort meanwhile
    const std::lock_guard lock(mutex_);
    require_not_aborted();
    watched([&] { executor_->launch(bucket, data, stream_); });
    launched_[bucket.index()] = true;
    for (const auto& [peer, bytes] : sent_[bucket.index()].bytes) {
      statistics_.bytes_by_pair[{self_, peer}] += bytes;
      statistics_.sent += bytes;
    }
    statistics_.messages += sent_[bucket.index()].messages;
  }

  void wait(BucketId bucket) override {
    const Clock::time_point start = Clock::now();
    Clock::time_point health = start + kHealthPeriod;
    while (true) {
      {
        const std::lock_guard lock(mutex_);
        const CurrentDevice here(device_);
        require_not_aborted();
        if (watched([&] { return executor_->is_done(bucket); })) {
          // A wait that was cut short looks like a sum.
          watched([&] { executor_->check_health(); });
          require_whole(bucket);
          return;
        }
        if (Clock::now() > health) {
          watched([&] { executor_->check_health(); });
          health = Clock::now() + kHealthPeriod;
        }
      }
      if (Clock::now() - start > kSpin) {
        std::this_thread::sleep_for(kShortest);
      }
    }
  }

  void wait_all() override {
    for (std::size_t b = 0; b < launched_.size(); ++b) {
      bool is_launched = false;
      {
        const std::lock_guard lock(mutex_);
        const CurrentDevice here(device_);
        require_not_aborted();
        is_launched = launched_[b];
      }
      if (is_launched) {
        wait(BucketId(b));
      }
    }
  }

  void abort(const std::string& reason) override {
    {
      const std::lock_guard lock(abort_mutex_);
      if (!reason_) {
        reason_ = reason;
      }
    }
    if (host_messages_ != nullptr) {
      host_messages_->abort(reason);
    }
  }
  bool aborted() const override {
    const std::lock_guard lock(abort_mutex_);
    return reason_.has_value();
  }

  ExecutorStatistics statistics() const override {
    const std::lock_guard lock(mutex_);
    return statistics_;
  }
  std::vector<plan::TimelineEvent> take_timeline() override { return {}; }

  Residuals residuals() const override {
    const std::lock_guard lock(mutex_);
    const CurrentDevice here(device_);
    let_streams_end();
    return executor_->residuals();
  }
  void set_residuals(Residuals residuals) override {
    const std::lock_guard lock(mutex_);
    const CurrentDevice here(device_);
    let_streams_end();
    executor_->set_residuals(residuals);
  }

 private:
  /// What a launch of a bucket sends.
  struct Sends {
    std::map<Rank, Bytes> bytes;
    std::uint64_t messages = 0;
  };
  // Slices of other executors do not come here: epochs tell them apart.
  static constexpr std::uint64_t kPlanNumber = 0;

  static Sends count_sends(const DeviceProgram& program) {
    Sends sends;
    for (const DeviceOperation& operation : program.operations) {
      if (const auto* exchange = std::get_if<ExchangeOperation>(&operation.what)) {
        for (const ExchangeOperation::Message& message : exchange->messages) {
          if (message.is_send) {
            sends.bytes[message.peer] += Bytes(static_cast<std::int64_t>(message.bytes));
            ++sends.messages;
          }
        }
      }
    }
    return sends;
  }

  void require_whole(BucketId bucket) const {
    if (const std::uint32_t refused = executor_->refused_codes(bucket); refused != 0) {
      throw RuntimeFailure(fmt::format(
          "bucket {}: {} codes arrived that no encoder makes: a message was damaged, or another "
          "build of rackrail sent it",
          bucket.value(), refused));
    }
  }

  /// A peer that NCCL has lost is one to whoever waits.
  template <typename Act>
  auto watched(Act act) -> decltype(act()) {
    try {
      return act();
    } catch (const NcclError& error) {
      abort(error.what());
    } catch (const PeerLostError& error) {
      abort(error.what());
    }
    give_up();
  }

  void require_not_aborted() {
    if (aborted()) {
      give_up();
    }
  }

  [[noreturn]] void give_up() {
    let_streams_end();
    const std::lock_guard lock(abort_mutex_);
    throw PeerLostError(*reason_);
  }

  /// After an abort, kernels of NCCL's may wait for those that are gone, and whatever waits for a
  /// stream, such as a copy of residuals or memory that is freed, would wait with them.
  void let_streams_end() const {
    if (aborted()) {
      communicators_.abort();
    }
  }

  bool has_unfinished() const noexcept {
    try {
      for (std::size_t b = 0; b < launched_.size(); ++b) {
        if (launched_[b] && !executor_->is_done(BucketId(b))) {
          return true;
        }
      }
      return false;
    } catch (const Error&) {
      return true;
    }
  }

  const Rank self_;
  const int device_;
  const cudaStream_t stream_;
  std::optional<IdleTransport> idle_transport_;  ///< with NCCL alone
  mutable DeviceCommunicators communicators_;
  std::unique_ptr<DeviceMessages> messages_;
  HostMessages* host_messages_ = nullptr;  ///< messages_, where they go over the transport
  mutable std::mutex mutex_;               ///< guards what follows
  std::unique_ptr<DeviceExecutor> executor_;
  std::vector<bool> launched_;  ///< in this step
  std::vector<Sends> sent_;     ///< by bucket
  ExecutorStatistics statistics_;
  mutable std::mutex abort_mutex_;  ///< guards reason_
  std::optional<std::string> reason_;
};

}  // namespace

std::unique_ptr<PlanExecutor> make_device_plan_executor(const plan::Plan& plan, Rank self,
                                                        Transport& transport,
                                                        const DevicePlanOptions& options) {
  return std::make_unique<DevicePlanExecutor>(plan, self, transport, options);
}

}  // namespace rackrail::runtime
