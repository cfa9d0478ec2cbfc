#include "runtime/parameter_server/parameter_exchange.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <deque>
#include <mutex>
#include <optional>
#include <utility>

#include "base/error.hpp"
#include "plan/format.hpp"
#include "runtime/execution_ledger.hpp"
#include "runtime/parameter_server/parameter_shard.hpp"
#include "runtime/parameter_server/served_parts.hpp"
#include "runtime/peer_pulses.hpp"
#include "runtime/progress_loop.hpp"

namespace rackrail::runtime {

namespace {

using Floats = std::shared_ptr<const std::vector<float>>;

/// A gradient on its way from the caller to the progress thread.
struct Launch {
  BucketId bucket;
  std::int64_t step = 0;
  Floats gradient;  ///< none: withheld
};

/// A slice on its way to the transport; `memory` holds `payload`.
struct OutgoingSlice {
  SliceHeader header;
  Floats memory;
  std::span<const float> payload;
};

struct Destination {
  std::deque<OutgoingSlice> waiting;
  int in_flight = 0;
};

/// What this rank waits for in one bucket. Of the progress thread, but for `parameters`, which the
/// caller's reads when nothing is open.
struct PullState {
  std::int64_t step = -1;
  std::uint64_t open = 0;  ///< slices
  std::vector<float> parameters;
};

std::string name_of(const ServedPart& part) {
  return fmt::format("momentum/bucket{}/{}+{}", part.bucket.value(), part.range.begin,
                     part.range.size());
}

/// The regions of a bucket within a range of it, counted from the range's beginning.
std::vector<trainer::DecayRegion> regions_within(const std::vector<trainer::DecayRegion>& regions,
                                                 const plan::ElementRange& range) {
  std::vector<trainer::DecayRegion> within;
  const auto begin = static_cast<std::size_t>(range.begin);
  const auto end = static_cast<std::size_t>(range.end);
  for (const trainer::DecayRegion& region : regions) {
    const std::size_t first = std::max(region.begin, begin);
    const std::size_t last = std::min(region.begin + region.size, end);
    if (first < last) {
      within.push_back({first - begin, last - first, region.decay});
    }
  }
  return within;
}

template <typename Value>
std::span<Value> elements(std::span<Value> bucket, const plan::ElementRange& range) {
  return bucket.subspan(static_cast<std::size_t>(range.begin),
                        static_cast<std::size_t>(range.size()));
}

}  // namespace

struct ParameterExchange::Impl final : ProgressLoop {
  Impl(const plan::Plan& p, Rank rank, Transport& t, const ParameterExchangeOptions& o)
      : ProgressLoop(t, o.on_missed),
        plan(p),
        self(rank),
        transport(t),
        options(o),
        plan_id(std::stoull(plan::digest(p).substr(0, 16), nullptr, 16)),
        parts(p),
        ledger(rank, false),
        targets(p.buckets.size()),
        shards(parts.all().size()),
        has_pulled(parts.all().size()),
        destinations(p.rank_count()),
        lost(p.rank_count()),
        pulls(p.buckets.size()) {}

  ~Impl() override {
    alive->store(false);
    stop();
    if (pulses) {
      transport.set_handlers({}, {});
    }
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  // ---- the caller's side ----

  void serve(const trainer::UpdateRule& the_rule, std::int64_t step,
             const std::vector<std::vector<float>>& parameters) {
    rule = the_rule;
    for (std::size_t b = 0; b < pulls.size(); ++b) {
      pulls[b].parameters.resize(static_cast<std::size_t>(plan.buckets[b].elements));
    }
    for (std::size_t i = 0; i < parts.all().size(); ++i) {
      const ServedPart& part = parts.all()[i];
      has_pulled[i].assign(part.slices, 0);
      if (part.server == self) {
        make_shards(i, step, parameters[part.bucket.index()]);
      }
    }
    transport.set_handlers(
        [this](Rank source, const SliceHeader& header, std::span<const std::byte> payload) {
          on_slice(source, header, payload);
        },
        [this](Rank peer, const std::string& why) { on_peer_error(peer, why); });
    pulses.emplace(transport, self, plan.rank_count(), plan_id, options.epoch, options.pulse);
    start();
  }

  void make_shards(std::size_t index, std::int64_t step, std::span<const float> parameters) {
    const ServedPart& part = parts.all()[index];
    const auto momentum = restored.find(name_of(part));
    for (std::uint32_t k = 0; k < part.slices; ++k) {
      const plan::ElementRange range = range_of(part, k);
      ParameterShard& shard =
          shards[index].emplace_back(rule, options.staleness, part.order,
                                     regions_within(rule.regions[part.bucket.index()], range),
                                     elements(parameters, range), step);
      if (momentum != restored.end()) {
        const auto size = static_cast<std::size_t>(range.size()) * shard.momentum_count();
        shard.set_momentum(std::span(momentum->second)
                               .subspan(static_cast<std::size_t>(range.begin - part.range.begin) *
                                            shard.momentum_count(),
                                        size));
      }
    }
  }

  void launch(BucketId bucket, std::span<float> data) {
    Launch next{bucket, current_step, nullptr};
    if (!withheld) {
      next.gradient = std::make_shared<const std::vector<float>>(data.begin(), data.end());
    }
    {
      const auto guard = lock();
      if (has_reason()) {
        return;  // the wait says so
      }
      targets[bucket.index()] = data;
      ++open_buckets;
      launched.push_back(std::move(next));
    }
    transport.wake();
  }

  void wait_all() {
    wait_until([this] { return open_buckets == 0; });
    for (std::size_t b = 0; b < targets.size(); ++b) {
      if (!targets[b].empty()) {
        std::ranges::copy(pulls[b].parameters, targets[b].begin());
        targets[b] = {};
      }
    }
  }

  // ---- the progress thread ----

  std::size_t take_launches() override {
    std::vector<Launch> launches;
    {
      const auto guard = lock();
      launches.swap(launched);
    }
    for (const Launch& next : launches) {
      for (const std::optional<MissedPeer>& peer : lost) {
        if (peer) {
          throw MissedPeerError(*peer);
        }
      }
      push_bucket(next);
    }
    return launches.size();
  }

  void push_bucket(const Launch& next) {
    PullState& pull = pulls[next.bucket.index()];
    pull.step = next.step;
    pull.open = 0;
    const auto has_bucket = [&](const ServedPart& part) { return part.bucket == next.bucket; };
    for (std::size_t i = 0; i < parts.all().size(); ++i) {
      if (has_bucket(parts.all()[i])) {
        pull.open += parts.all()[i].slices;
        std::ranges::fill(has_pulled[i], 0);
      }
    }
    for (std::size_t i = 0; i < parts.all().size(); ++i) {
      if (has_bucket(parts.all()[i])) {
        push_part(next, i);
      }
    }
  }

  void push_part(const Launch& next, std::size_t index) {
    const ServedPart& part = parts.all()[index];
    for (std::uint32_t k = 0; k < part.slices; ++k) {
      std::span<const float> gradient;
      if (next.gradient) {
        gradient = elements(std::span<const float>(*next.gradient), range_of(part, k));
      }
      if (part.server == self) {
        apply(index, k, self, next.step, gradient);
      } else {
        enqueue(part.server, *part.pushes[self.index()], index, k, next.step, next.gradient,
                gradient);
      }
    }
  }

  void on_slice(Rank source, const SliceHeader& header, std::span<const std::byte> payload) {
    pulses->heard(source);
    if (halted || header.plan != plan_id || header.epoch != options.epoch ||
        PeerPulses::is_pulse(header)) {
      return;
    }
    ledger.count_arrived(source, payload.size(), std::chrono::nanoseconds(header.sent_ns));
    const std::optional<PartMessage> message = parts.find(header.bucket, header.transfer);
    if (!message) {
      refuse(source, header, "which there is not");
    }
    const ServedPart& part = parts.all()[message->part];
    const Rank sender = message->is_push ? message->worker : part.server;
    const Rank receiver = message->is_push ? part.server : message->worker;
    if (sender != source || receiver != self || header.slice >= part.slices) {
      refuse(source, header, "which is not its own");
    }
    const auto size = static_cast<std::size_t>(range_of(part, header.slice).size());
    const bool is_withheld = message->is_push && payload.empty();
    if (payload.size() != size * sizeof(float) && !is_withheld) {
      refuse(source, header,
             fmt::format("of {} bytes, where {} are due", payload.size(), size * sizeof(float)));
    }
    if (message->is_push) {
      // The payload may lie anywhere, and dies with this call.
      arrived.resize(is_withheld ? 0 : size);
      if (!is_withheld) {
        std::memcpy(arrived.data(), payload.data(), payload.size());
      }
      apply(message->part, header.slice, source, header.step, arrived);
    } else {
      take_parameters(source, header, message->part, payload);
    }
  }

  [[noreturn]] static void refuse(Rank source, const SliceHeader& header, const std::string& why) {
    throw RuntimeFailure(fmt::format("rank {} sent slice {} of transfer {} of bucket {}, {}",
                                     source.value(), header.slice, header.transfer, header.bucket,
                                     why));
  }

  void take_parameters(Rank source, const SliceHeader& header, std::size_t index,
                       std::span<const std::byte> payload) {
    const ServedPart& part = parts.all()[index];
    PullState& pull = pulls[header.bucket];
    if (pull.step != std::int64_t{header.step} || has_pulled[index][header.slice] != 0) {
      refuse(source, header, "which nobody waits for");
    }
    std::memcpy(elements(std::span(pull.parameters), range_of(part, header.slice)).data(),
                payload.data(), payload.size());
    close_slice(index, header.slice);
  }

  void close_slice(std::size_t index, std::uint32_t k) {
    has_pulled[index][k] = 1;
    if (--pulls[parts.all()[index].bucket.index()].open == 0) {
      ++finished;
    }
  }

  /// A push to this server, and what it frees.
  void apply(std::size_t index, std::uint32_t k, Rank worker, std::int64_t of_step,
             std::span<const float> gradient) {
    const ServedPart& part = parts.all()[index];
    ParameterShard& shard = shards[index][k];
    const ParameterShard::Applied applied = shard.push(worker, of_step, gradient);
    std::vector<Rank> released;
    {
      const std::lock_guard lock(shard_mutex);
      released = shard.release();
      note(part, k, worker, applied, shard.most_ahead());
    }
    for (const Rank next : released) {
      answer(index, k, next);
    }
  }

  // As the simulator has it: what a rank serves itself does not move, and does not count.
  void note(const ServedPart& part, std::uint32_t k, Rank worker,
            const ParameterShard::Applied& applied, std::int64_t most_ahead) {
    updates.most_ahead = std::max(updates.most_ahead, most_ahead);
    if (worker == self || !applied.is_update) {
      return;
    }
    const double weight = static_cast<double>(range_of(part, k).size()) /
                          static_cast<double>(plan.buckets[part.bucket.index()].elements);
    updates.updates += weight;
    updates.conflicts += applied.between > 0 ? weight : 0;
    updates.stale += weight * static_cast<double>(applied.between);
  }

  /// The parameters for a worker that may go on.
  void answer(std::size_t index, std::uint32_t k, Rank worker) {
    const ServedPart& part = parts.all()[index];
    const ParameterShard& shard = shards[index][k];
    if (worker == self) {
      PullState& pull = pulls[part.bucket.index()];
      shard.read(worker, elements(std::span(pull.parameters), range_of(part, k)));
      close_slice(index, k);
      return;
    }
    const auto memory = std::make_shared<std::vector<float>>(shard.parameters().size());
    shard.read(worker, *memory);
    enqueue(worker, *part.pulls[worker.index()], index, k, shard.done(worker) - 1, memory, *memory);
  }

  void enqueue(Rank destination, TransferId transfer, std::size_t index, std::uint32_t k,
               std::int64_t of_step, Floats memory, std::span<const float> payload) {
    SliceHeader header;
    header.plan = plan_id;
    header.epoch = options.epoch;
    header.step = static_cast<std::uint32_t>(of_step);
    header.bucket = parts.all()[index].bucket.value();
    header.transfer = transfer.value();
    header.slice = k;
    header.bytes = static_cast<std::uint32_t>(payload.size_bytes());
    destinations[destination.index()].waiting.push_back({header, std::move(memory), payload});
  }

  std::size_t send_what_may_leave() {
    std::size_t sent = 0;
    for (std::size_t d = 0; d < destinations.size(); ++d) {
      Destination& destination = destinations[d];
      while (!destination.waiting.empty() && destination.in_flight < options.send_window) {
        OutgoingSlice next = std::move(destination.waiting.front());
        destination.waiting.pop_front();
        ++destination.in_flight;
        ++sent;
        send(Rank(d), std::move(next));
      }
    }
    return sent;
  }

  void send(Rank destination, OutgoingSlice slice) {
    const auto bytes = std::as_bytes(slice.payload);
    const auto now = ExecutionLedger::Clock::now().time_since_epoch();
    slice.header.sent_ns = std::chrono::nanoseconds(now).count();
    ledger.count_sent(destination, bytes.size());
    // The completion may come when this object is gone.
    transport.send(destination, slice.header, bytes,
                   [this, is_alive = alive, memory = std::move(slice.memory), destination] {
                     if (is_alive->load()) {
                       --destinations[destination.index()].in_flight;
                     }
                   });
  }

  void on_peer_error(Rank peer, const std::string& why) {
    if (halted) {
      return;
    }
    pulses->forget(peer);
    lost[peer.index()] = MissedPeer{.rank = peer, .why = why, .silence = {}};
    // One that has done all its steps may go: it is missed when this rank has one more to do.
    if (std::ranges::any_of(pulls, [](const PullState& pull) { return pull.open != 0; })) {
      throw MissedPeerError(*lost[peer.index()]);
    }
  }

  std::size_t advance() override {
    const std::size_t sent = send_what_may_leave();
    pulses->beat();
    return sent;
  }

  void report_finished() override {
    if (finished == 0) {
      return;
    }
    {
      const auto guard = lock();
      open_buckets -= std::exchange(finished, 0);
    }
    notify();
  }

  void halt() noexcept override { halted = true; }

  plan::ElementRange range_of(const ServedPart& part, std::uint32_t k) const {
    return plan::slice(part.range, plan.buckets[part.bucket.index()].slice_elements, k);
  }

  trainer::Residuals residuals() const {
    trainer::Residuals result;
    const std::lock_guard lock(shard_mutex);
    for (std::size_t i = 0; i < shards.size(); ++i) {
      for (const ParameterShard& shard : shards[i]) {
        std::vector<float>& all = result[name_of(parts.all()[i])];
        const std::span<const float> momentum = shard.momentum_at_meeting();
        all.insert(all.end(), momentum.begin(), momentum.end());
      }
    }
    return result;
  }

  void set_residuals(const trainer::Residuals& residuals) {
    const std::size_t copies = options.staleness == 0 ? 1 : plan.rank_count();
    for (const ServedPart& part : parts.all()) {
      const auto momentum = residuals.find(name_of(part));
      const auto expected = static_cast<std::size_t>(part.range.size()) * copies;
      if (part.server == self && momentum != residuals.end() &&
          momentum->second.size() != expected) {
        throw ConfigError(
            ErrorContext{"", "checkpoint",
                         fmt::format("{} elements of {}", momentum->second.size(), momentum->first),
                         std::to_string(part.range.size())});
      }
    }
    restored = residuals;
  }

  const plan::Plan& plan;
  const Rank self;
  Transport& transport;
  const ParameterExchangeOptions options;
  const std::uint64_t plan_id;
  const ServedParts parts;
  ExecutionLedger ledger;
  trainer::UpdateRule rule;
  trainer::Residuals restored;

  // Of the caller's thread.
  std::int64_t current_step = 0;
  bool withheld = false;
  std::vector<std::span<float>> targets;  ///< by bucket: where the parameters are to go

  // Of the progress thread, once it runs.
  std::vector<std::deque<ParameterShard>> shards;  ///< by part: of what this rank serves, by slice
  std::vector<std::vector<char>> has_pulled;       ///< by part and slice, in the present step
  std::vector<Destination> destinations;
  std::vector<std::optional<MissedPeer>> lost;  ///< by peer
  std::optional<PeerPulses> pulses;             ///< once there is the thread
  std::vector<PullState> pulls;                 ///< by bucket
  std::vector<float> arrived;
  std::size_t finished = 0;  ///< buckets, not reported yet
  bool halted = false;

  // Guarded by lock().
  std::vector<Launch> launched;
  std::size_t open_buckets = 0;

  mutable std::mutex shard_mutex;  ///< guards the momentum of meetings, and:
  UpdateStatistics updates;

  const std::shared_ptr<std::atomic<bool>> alive = std::make_shared<std::atomic<bool>>(true);
};

ParameterExchange::ParameterExchange(const plan::Plan& plan, Rank self, Transport& transport,
                                     const ParameterExchangeOptions& options)
    : impl_(std::make_unique<Impl>(plan, self, transport, options)) {}
ParameterExchange::~ParameterExchange() = default;

void ParameterExchange::start(const trainer::UpdateRule& rule, std::int64_t step,
                              std::vector<std::vector<float>> parameters) {
  impl_->serve(rule, step, parameters);
}

void ParameterExchange::begin_step(std::uint32_t step) {
  impl_->current_step = step;
  impl_->withheld = false;
}

void ParameterExchange::withhold() { impl_->withheld = true; }

void ParameterExchange::launch(BucketId bucket, std::span<float> data) {
  impl_->launch(bucket, data);
}

void ParameterExchange::wait_all() { impl_->wait_all(); }

trainer::Residuals ParameterExchange::residuals() const { return impl_->residuals(); }

void ParameterExchange::set_residuals(const trainer::Residuals& residuals) {
  impl_->set_residuals(residuals);
}

void ParameterExchange::abort(const std::string& reason) { impl_->abort(reason); }

ExecutorStatistics ParameterExchange::statistics() const {
  ExecutorStatistics statistics = impl_->ledger.statistics();
  statistics.progress_cpu_time = impl_->cpu_time();
  return statistics;
}

UpdateStatistics ParameterExchange::update_statistics() const {
  const std::lock_guard lock(impl_->shard_mutex);
  return impl_->updates;
}

}  // namespace rackrail::runtime
