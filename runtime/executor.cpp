#include "runtime/executor.hpp"

#include <fmt/format.h>

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <exception>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "base/error.hpp"
#include "base/random.hpp"
#include "plan/format.hpp"
#include "runtime/bucket_program.hpp"
#include "runtime/codec.hpp"

namespace rackrail::runtime {

namespace {

using Clock = std::chrono::steady_clock;
constexpr Duration kLongestSleep = Duration(50'000'000'000);  // 50 ms: also notices a stop

Duration since(Clock::time_point start) {
  return Duration(
      std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - start).count() * 1000);
}

std::uint64_t first_eight_bytes(const std::string& hex) {
  return std::stoull(hex.substr(0, 16), nullptr, 16);
}

/// A slice that came before this rank could use it.
struct EarlySlice {
  Rank source;
  SliceHeader header;
  std::vector<std::byte> payload;
};

/// A bucket of one step, from launch to the last slice.
struct BucketRun {
  BucketRun(const BucketProgram& p, std::uint32_t s, std::span<float> d)
      : program(p),
        step(s),
        data(d),
        waits(p.transfers.size()),
        done(p.transfers.size(), 0),
        encoded(p.transfers.size()),
        arrived(p.transfers.size()),
        open(p.open_slices),
        lane(p.sends_to.size(), 0),
        lane_slice(p.sends_to.size(), 0) {
    for (std::size_t i = 0; i < p.transfers.size(); ++i) {
      const LocalTransfer& t = p.transfers[i];
      waits[i].assign(t.slices, t.whole_waits + t.slice_waits);
    }
  }

  const BucketProgram& program;
  std::uint32_t step;
  std::span<float> data;
  std::vector<std::vector<std::uint32_t>> waits;             ///< by transfer and slice
  std::vector<std::uint32_t> done;                           ///< slices, by transfer
  std::vector<std::vector<std::vector<std::byte>>> encoded;  ///< bytes kept, by transfer and slice
  /// Additions that arrived before the ones that must be applied first.
  std::vector<std::vector<std::optional<std::vector<std::byte>>>> arrived;
  std::uint64_t open;
  std::vector<std::size_t> lane;  ///< by destination: position in sends_to
  std::vector<std::uint32_t> lane_slice;
};

}  // namespace

struct Executor::Impl {
  Impl(const plan::Plan& p, Rank s, Transport& t, const ExecutorOptions& o)
      : plan(p),
        self(s),
        transport(t),
        options(o),
        plan_id(first_eight_bytes(plan::digest(p))),
        in_flight(p.rank_count(), 0) {
    for (std::size_t b = 0; b < plan.buckets.size(); ++b) {
      programs.emplace_back(plan, BucketId(b), self);
    }
    for (const plan::TransferGraph& graph : plan.schedules) {
      auto& list = codecs.emplace_back();
      for (const plan::Codec& codec : graph.codecs()) {
        list.push_back(make_codec(codec));
      }
    }
    transport.set_handlers(
        [this](Rank source, const SliceHeader& header, std::span<const std::byte> payload) {
          on_slice(source, header, payload);
        },
        [this](Rank peer, const std::string& why) {
          fail(fmt::format("rank {} cannot be reached: {}", peer.value(), why));
        });
    thread = std::thread([this] { loop(); });
  }

  ~Impl() {
    stopping = true;
    transport.wake();
    thread.join();
    transport.set_handlers({}, {});
  }

  // ---- the caller's side ----

  void fail(const std::string& why) {
    {
      const std::lock_guard lock(mutex);
      if (!reason.empty()) {
        return;
      }
      reason = why;
    }
    changed.notify_all();
  }

  template <typename Done>
  void wait_until(Done is_done) {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return !reason.empty() || is_done(); });
    if (!reason.empty()) {
      throw PeerLostError(reason);
    }
  }

  // ---- the progress thread ----

  void loop() {
    try {
      while (!stopping) {
        std::size_t happened = take_launches();
        happened += transport.progress();
        drain();
        reap();
        if (happened == 0) {
          transport.wait(kLongestSleep);
        }
      }
    } catch (const std::exception& error) {
      fail(error.what());
      // Completions must not find a dead thread: drain until the owner stops us.
      while (!stopping) {
        transport.wait(kLongestSleep);
      }
    }
  }

  std::size_t take_launches() {
    std::vector<std::pair<BucketId, std::span<float>>> launches;
    std::uint32_t step = 0;
    {
      const std::lock_guard lock(mutex);
      launches.swap(launched);
      step = current_step;
    }
    for (const auto& [bucket, data] : launches) {
      start(bucket, step, data);
    }
    return launches.size();
  }

  void start(BucketId bucket, std::uint32_t step, std::span<float> data) {
    const BucketProgram& program = programs[bucket.index()];
    auto& slot = runs[{step, bucket.value()}];
    slot = std::make_unique<BucketRun>(program, step, data);
    BucketRun& run = *slot;
    if (run.open == 0) {
      finish(run);
      return;
    }
    for (std::size_t destination = 0; destination < program.sends_to.size(); ++destination) {
      pump(Rank(destination));
    }
    const auto early = waiting.find({step, bucket.value()});
    if (early == waiting.end()) {
      return;
    }
    const std::vector<EarlySlice> slices = std::move(early->second);
    waiting.erase(early);
    for (const EarlySlice& slice : slices) {
      buffered -= slice.payload.size();
      // The run may end with the last of them.
      if (const auto it = runs.find({step, bucket.value()}); it != runs.end()) {
        accept(*it->second, slice.source, slice.header, slice.payload);
      }
    }
  }

  // Sends what is ready, in the order of ids per bucket and of buckets per destination.
  void pump(Rank destination) {
    bool sent = true;
    while (sent && in_flight[destination.index()] < options.send_window) {
      sent = false;
      for (auto& [key, run] : runs) {
        if (send_next(*run, destination)) {
          sent = true;
          break;
        }
      }
    }
  }

  bool send_next(BucketRun& run, Rank destination) {
    const auto& lane = run.program.sends_to[destination.index()];
    std::size_t& at = run.lane[destination.index()];
    if (at >= lane.size()) {
      return false;
    }
    const std::uint32_t index = lane[at];
    const LocalTransfer& t = run.program.transfers[index];
    const std::uint32_t k = run.lane_slice[destination.index()];
    if (run.waits[index][k] != 0) {
      return false;
    }
    const plan::ElementRange part = plan::slice(t.range, run.program.slice_elements, k);
    const std::span<float> values = run.data.subspan(static_cast<std::size_t>(part.begin),
                                                     static_cast<std::size_t>(part.size()));
    std::span<const std::byte> payload = std::as_bytes(values);
    std::shared_ptr<std::vector<std::byte>> owned;
    if (run.program.graph.codecs()[t.codec].is_lossy()) {
      if (t.encoding == plan::EncodingKind::kOwn) {
        owned = std::make_shared<std::vector<std::byte>>(encode(run, t, part, values));
        if (t.keeps_encoding) {
          run.encoded[index].resize(t.slices);
          run.encoded[index][k] = *owned;
        }
      } else {
        const auto& kept = run.encoded[t.encoding_from];
        if (k >= kept.size() || kept[k].empty()) {
          return false;  // the transfer that encodes it has not come to this slice
        }
        owned = std::make_shared<std::vector<std::byte>>(kept[k]);
      }
      payload = *owned;
    }
    if (++run.lane_slice[destination.index()] == t.slices) {
      run.lane_slice[destination.index()] = 0;
      ++at;
    }
    SliceHeader header;
    header.plan = plan_id;
    header.epoch = options.epoch;
    header.step = run.step;
    header.bucket = run.program.bucket.value();
    header.transfer = t.id;
    header.slice = k;
    header.bytes = static_cast<std::uint32_t>(payload.size());
    ++in_flight[destination.index()];
    count_sent(destination, payload.size());
    const auto key = std::pair(run.step, header.bucket);
    const auto started = Clock::now();
    // Read and encoded: what waits for that may go on, here and in other lanes.
    signal(run, index, k);
    transport.send(
        destination, header, payload, [this, key, destination, owned, started, id = header.bucket] {
          --in_flight[destination.index()];
          record(fmt::format("bucket {} to rank {}", id, destination.value()), "network", started);
          if (const auto it = runs.find(key); it != runs.end()) {
            close_slice(*it->second);
          }
          to_pump.push_back(destination);
        });
    return true;
  }

  std::vector<std::byte> encode(BucketRun& run, const LocalTransfer& t,
                                const plan::ElementRange& part, std::span<float> values) {
    const Codec& codec = codec_of(run, t);
    const auto started = Clock::now();
    std::vector<std::byte> bytes(
        static_cast<std::size_t>(plan::encoded_size(codec.descriptor(), part.size()).count()));
    std::span<float> residual;
    const std::lock_guard residual_lock(residual_mutex);
    if (!t.residual.empty()) {
      auto& state = residuals[t.residual];
      state.resize(static_cast<std::size_t>(t.range.size()), 0.0F);
      residual = std::span(state).subspan(static_cast<std::size_t>(part.begin - t.range.begin),
                                          static_cast<std::size_t>(part.size()));
    }
    // Contributions of different ranks must round independently, so that their errors average out;
    // a sum is the same wherever it is encoded.
    const bool is_copy = t.op == plan::TransferOp::kCopy;
    const std::uint64_t who = is_copy ? 0 : 1 + self.value();
    const std::uint64_t stream =
        mix64(mix64(mix64(plan.seed ^ mix64(run.step)) ^ run.program.bucket.value()) ^ who);
    codec.encode(values, residual, {stream, part.begin}, bytes);
    if (is_copy) {
      codec.decode(bytes, values);  // the sender goes on with what the others get
    }
    add_time(&ExecutorStatistics::encode_time, started);
    record(fmt::format("encode bucket {}", run.program.bucket.value()), "codec", started);
    return bytes;
  }

  void on_slice(Rank source, const SliceHeader& header, std::span<const std::byte> payload) {
    if (header.plan != plan_id || header.epoch != options.epoch ||
        header.bucket >= programs.size()) {
      return;  // of another plan or of an epoch that is over
    }
    const std::pair<std::uint32_t, std::uint32_t> key{header.step, header.bucket};
    const auto run = runs.find(key);
    if (run != runs.end()) {
      accept(*run->second, source, header, payload);
      return;
    }
    waiting[key].push_back({source, header, {payload.begin(), payload.end()}});
    buffered += payload.size();
    const std::lock_guard lock(mutex);
    statistics.peak_buffered_bytes = std::max(statistics.peak_buffered_bytes, buffered);
  }

  void accept(BucketRun& run, Rank source, const SliceHeader& header,
              std::span<const std::byte> payload) {
    const auto it = run.program.local.find(header.transfer);
    if (it == run.program.local.end()) {
      throw RuntimeFailure(fmt::format("rank {} sent transfer {}, which is none of ours",
                                       source.value(), header.transfer));
    }
    const LocalTransfer& t = run.program.transfers[it->second];
    if (t.is_send || t.peer != source || header.slice >= t.slices) {
      throw RuntimeFailure(fmt::format("rank {} sent slice {} of transfer {}, which is not its own",
                                       source.value(), header.slice, header.transfer));
    }
    if (run.waits[it->second][header.slice] != 0) {
      auto& early = run.arrived[it->second];
      early.resize(t.slices);
      early[header.slice] = std::vector<std::byte>(payload.begin(), payload.end());
      return;
    }
    apply(run, it->second, header.slice, payload);
  }

  void apply(BucketRun& run, std::uint32_t index, std::uint32_t k,
             std::span<const std::byte> payload) {
    const LocalTransfer& t = run.program.transfers[index];
    const plan::ElementRange part = plan::slice(t.range, run.program.slice_elements, k);
    const std::span<float> values = run.data.subspan(static_cast<std::size_t>(part.begin),
                                                     static_cast<std::size_t>(part.size()));
    const auto started = Clock::now();
    const Codec& codec = codec_of(run, t);
    if (t.op == plan::TransferOp::kReduce) {
      codec.decode_add(payload, values);
    } else {
      codec.decode(payload, values);
      if (t.keeps_encoding) {
        run.encoded[index].resize(t.slices);
        run.encoded[index][k].assign(payload.begin(), payload.end());
      }
    }
    add_time(&ExecutorStatistics::decode_time, started);
    record(fmt::format("{} bucket {}", t.op == plan::TransferOp::kReduce ? "add" : "decode",
                       run.program.bucket.value()),
           "codec", started);
    const auto key = std::pair(run.step, run.program.bucket.value());
    signal(run, index, k);
    if (const auto it = runs.find(key); it != runs.end()) {
      close_slice(*it->second);
    }
  }

  // Slice k of a local transfer is done: frees what waits for it.
  void signal(BucketRun& run, std::uint32_t index, std::uint32_t k) {
    const BucketProgram& program = run.program;
    const bool all = ++run.done[index] == program.transfers[index].slices;
    for (const LocalDependent& dependent : program.dependents[index]) {
      const LocalTransfer& next = program.transfers[dependent.transfer];
      if (!dependent.whole) {
        unblock(run, dependent.transfer, k);
      } else if (all) {
        for (std::uint32_t s = 0; s < next.slices; ++s) {
          unblock(run, dependent.transfer, s);
        }
      }
    }
    if (program.transfers[index].keeps_encoding) {
      for (std::size_t destination = 0; destination < program.sends_to.size(); ++destination) {
        to_pump.push_back(Rank(destination));
      }
    }
    drain();
  }

  void unblock(BucketRun& run, std::uint32_t index, std::uint32_t k) {
    if (--run.waits[index][k] != 0) {
      return;
    }
    const LocalTransfer& t = run.program.transfers[index];
    if (t.is_send) {
      to_pump.push_back(t.peer);
    } else if (k < run.arrived[index].size() && run.arrived[index][k].has_value()) {
      to_apply.push_back({std::pair(run.step, run.program.bucket.value()), index, k});
    }
  }

  // Work that a signal freed is done from here, one level deep, however long the chain is.
  void drain() {
    if (draining) {
      return;
    }
    draining = true;
    while (!to_apply.empty() || !to_pump.empty()) {
      if (!to_apply.empty()) {
        const FreedSlice freed = to_apply.front();
        to_apply.pop_front();
        if (const auto it = runs.find(freed.run); it != runs.end()) {
          const std::vector<std::byte> payload =
              std::move(*it->second->arrived[freed.transfer][freed.slice]);
          it->second->arrived[freed.transfer][freed.slice].reset();
          apply(*it->second, freed.transfer, freed.slice, payload);
        }
        continue;
      }
      const Rank destination = to_pump.front();
      to_pump.pop_front();
      pump(destination);
    }
    draining = false;
  }

  void close_slice(BucketRun& run) {
    if (--run.open == 0) {
      finished.emplace_back(run.step, run.program.bucket.value());
    }
  }

  // Runs are removed by the loop, where nothing on the stack refers to them.
  void reap() {
    for (const auto& key : std::exchange(finished, {})) {
      if (const auto it = runs.find(key); it != runs.end() && it->second->open == 0) {
        finish(*it->second);
      }
    }
  }

  void finish(BucketRun& run) {
    const auto key = std::pair(run.step, run.program.bucket.value());
    runs.erase(key);
    {
      const std::lock_guard lock(mutex);
      done_step[key.second] = key.first + 1;
    }
    changed.notify_all();
  }

  const Codec& codec_of(const BucketRun& run, const LocalTransfer& t) const {
    return *codecs[plan.buckets[run.program.bucket.index()].schedule][t.codec];
  }

  void count_sent(Rank destination, std::size_t bytes) {
    const std::lock_guard lock(mutex);
    statistics.sent += Bytes(static_cast<std::int64_t>(bytes));
    statistics.bytes_by_pair[{self, destination}] += Bytes(static_cast<std::int64_t>(bytes));
    ++statistics.messages;
  }

  void add_time(Duration ExecutorStatistics::*total, Clock::time_point started) {
    const std::lock_guard lock(mutex);
    statistics.*total += since(started);
  }

  void record(std::string what, const char* track, Clock::time_point started) {
    if (!options.record_timeline) {
      return;
    }
    const std::lock_guard lock(mutex);
    const Duration end = since(origin);
    timeline.push_back({std::move(what), fmt::format("rank {} {}", self.value(), track),
                        end - since(started), end});
  }

  struct FreedSlice {
    std::pair<std::uint32_t, std::uint32_t> run;
    std::uint32_t transfer;
    std::uint32_t slice;
  };

  const plan::Plan& plan;
  const Rank self;
  Transport& transport;
  const ExecutorOptions options;
  const std::uint64_t plan_id;
  const Clock::time_point origin = Clock::now();
  std::vector<BucketProgram> programs;
  std::vector<std::vector<std::unique_ptr<Codec>>> codecs;  ///< by schedule and codec index

  // Of the progress thread alone.
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::unique_ptr<BucketRun>>
      runs;  ///< (step, bucket)
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::vector<EarlySlice>> waiting;
  std::vector<int> in_flight;  ///< by destination
  std::size_t buffered = 0;
  std::deque<Rank> to_pump;
  std::deque<FreedSlice> to_apply;
  std::vector<std::pair<std::uint32_t, std::uint32_t>> finished;
  bool draining = false;

  // Shared with the caller's thread.
  mutable std::mutex mutex;
  std::condition_variable changed;
  std::vector<std::pair<BucketId, std::span<float>>> launched;
  std::vector<std::uint32_t> open_launches;          ///< buckets launched in the current step
  std::map<std::uint32_t, std::uint32_t> done_step;  ///< bucket → step after its last whole one
  std::uint32_t current_step = 0;
  std::string reason;
  ExecutorStatistics statistics;
  std::vector<plan::TimelineEvent> timeline;
  mutable std::mutex residual_mutex;
  Residuals residuals;

  std::atomic<bool> stopping = false;
  std::thread thread;
};

Executor::Executor(const plan::Plan& plan, Rank self, Transport& transport,
                   const ExecutorOptions& options)
    : impl_(std::make_unique<Impl>(plan, self, transport, options)) {}
Executor::~Executor() = default;

void Executor::begin_step(std::uint32_t step) {
  const std::lock_guard lock(impl_->mutex);
  impl_->current_step = step;
  impl_->open_launches.clear();
}

void Executor::launch(BucketId bucket, std::span<float> data) {
  if (data.size() != static_cast<std::size_t>(impl_->plan.buckets.at(bucket.index()).elements)) {
    throw RuntimeFailure(fmt::format("bucket {} was launched with {} floats, the plan says {}",
                                     bucket.value(), data.size(),
                                     impl_->plan.buckets[bucket.index()].elements));
  }
  {
    const std::lock_guard lock(impl_->mutex);
    impl_->launched.emplace_back(bucket, data);
    impl_->open_launches.push_back(bucket.value());
  }
  impl_->transport.wake();
}

void Executor::wait(BucketId bucket) {
  impl_->wait_until([&] {
    const auto it = impl_->done_step.find(bucket.value());
    return it != impl_->done_step.end() && it->second == impl_->current_step + 1;
  });
}

void Executor::wait_all() {
  impl_->wait_until([&] {
    for (const std::uint32_t bucket : impl_->open_launches) {
      const auto it = impl_->done_step.find(bucket);
      if (it == impl_->done_step.end() || it->second != impl_->current_step + 1) {
        return false;
      }
    }
    return true;
  });
}

void Executor::abort(const std::string& reason) { impl_->fail(reason); }

bool Executor::aborted() const {
  const std::lock_guard lock(impl_->mutex);
  return !impl_->reason.empty();
}

ExecutorStatistics Executor::statistics() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->statistics;
}

std::vector<plan::TimelineEvent> Executor::take_timeline() {
  const std::lock_guard lock(impl_->mutex);
  return std::exchange(impl_->timeline, {});
}

Residuals Executor::residuals() const {
  const std::lock_guard lock(impl_->residual_mutex);
  return impl_->residuals;
}

void Executor::set_residuals(Residuals residuals) {
  const std::lock_guard lock(impl_->residual_mutex);
  impl_->residuals = std::move(residuals);
}

}  // namespace rackrail::runtime
