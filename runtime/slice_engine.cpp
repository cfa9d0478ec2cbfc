#include "runtime/slice_engine.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "base/error.hpp"
#include "plan/format.hpp"
#include "runtime/bucket_run.hpp"

namespace rackrail::runtime {

namespace {

using Clock = ExecutionLedger::Clock;

std::uint64_t first_eight_bytes(const std::string& hex) {
  return std::stoull(hex.substr(0, 16), nullptr, 16);
}

}  // namespace

/// A slice that came before its bucket was launched.
struct SliceEngine::EarlySlice {
  Rank source;
  SliceHeader header;
  std::vector<std::byte> payload;
};

/// An addition that has arrived and may be applied now.
struct SliceEngine::FreedSlice {
  BucketRun* run;  ///< it does not end before
  std::uint32_t transfer;
  std::uint32_t slice;
};

SliceEngine::SliceEngine(const plan::Plan& plan, Rank self, Transport& transport,
                         const ExecutorOptions& options, ExecutionLedger& ledger)
    : plan_(plan),
      self_(self),
      transport_(transport),
      options_(options),
      ledger_(ledger),
      plan_id_(first_eight_bytes(plan::digest(plan))),
      rails_(plan, self),
      programs_([&] {
        std::vector<BucketProgram> programs;
        for (std::size_t b = 0; b < plan.buckets.size(); ++b) {
          programs.emplace_back(plan, BucketId(b), self);
        }
        return programs;
      }()),
      most_buffered_(4 * bytes_per_step() + (std::size_t{16} << 20)),
      anchor_(std::make_shared<Anchor>(Anchor{this})),
      lost_(plan.rank_count()),
      pulses_(transport, self, plan.rank_count(), plan_id_, options.epoch, options.pulse,
              rails_.all()),
      in_flight_(plan.rank_count(), std::vector<int>(1, 0)),
      pump_is_queued_(plan.rank_count(), 0) {
  for (const plan::TransferGraph& graph : plan.schedules) {
    auto& list = codecs_.emplace_back();
    for (const plan::Codec& codec : graph.codecs()) {
      list.push_back(make_codec(codec));
    }
  }
  for (const BucketProgram& program : programs_) {
    paced_lanes_.push_back(paced_lanes(program));
  }
  find_rails();
  transport.set_handlers(
      [this](Rank source, const SliceHeader& header, std::span<const std::byte> payload) {
        on_slice(source, header, payload);
      },
      [this](Rank peer, const std::string& reason) { on_peer_error(peer, reason); });
  notes_ = transport.use_rails(rails_.all());
  if (std::ranges::any_of(plan.schedules, [](const plan::TransferGraph& graph) {
        return !graph.groups().empty();
      })) {
    notes_.emplace_back(
        "transfers that the plan leaves to switches (in-network) are sent one by one, so steps "
        "take "
        "longer than it predicts");
  }
}

SliceEngine::~SliceEngine() {
  transport_.set_handlers({}, {});
  anchor_->engine = nullptr;
}

void SliceEngine::find_rails() {
  for (const Rail& rail : rails_.all()) {
    std::vector<int>& windows = in_flight_[rail.peer.index()];
    windows.resize(std::max<std::size_t>(windows.size(), rail.number + 1), 0);
  }
  for (const BucketProgram& program : programs_) {
    auto& by_destination = rail_of_.emplace_back(program.sends_to.size());
    for (std::size_t peer = 0; peer < program.sends_to.size(); ++peer) {
      for (const std::vector<std::uint32_t>& route : program.sends_to[peer]) {
        const TransferId first(program.transfers[route.front()].id);
        by_destination[peer].push_back(
            rails_.number_of(program.graph, program.graph.transfer(first)));
      }
    }
  }
}

// What peers that follow the plan send to this rank in one step.
std::size_t SliceEngine::bytes_per_step() const {
  std::int64_t bytes = 0;
  for (const BucketProgram& program : programs_) {
    for (const LocalTransfer& t : program.transfers) {
      if (!t.is_send) {
        bytes += 4 * t.range.size();
      }
    }
  }
  return static_cast<std::size_t>(bytes);
}

// By destination and route. Buckets that go the same way share its rate.
std::vector<std::vector<std::uint32_t>> SliceEngine::paced_lanes(const BucketProgram& program) {
  std::vector<std::vector<std::uint32_t>> numbers(program.sends_to.size());
  for (std::size_t peer = 0; peer < numbers.size(); ++peer) {
    for (const std::vector<std::uint32_t>& sends : program.sends_to[peer]) {
      const TransferId first(program.transfers[sends.front()].id);
      const RouteId route = program.graph.transfer(first).route;
      numbers[peer].push_back(pacer_.lane(Rank(peer), program.graph.routes()[route.index()]));
    }
  }
  return numbers;
}

void SliceEngine::begin_step(std::uint32_t step, std::uint32_t call) {
  step_ = step;
  call_ = call;
  ended_.clear();
  const auto end = early_.lower_bound({step, 0});
  for (auto it = early_.begin(); it != end; it = early_.erase(it)) {
    for (const EarlySlice& slice : it->second) {
      buffered_ -= slice.payload.size();
    }
  }
  for (auto it = early_.begin(); it != early_.end() && it->first.first == step; ++it) {
    for (const EarlySlice& slice : it->second) {
      require_same_call(slice.source, slice.header);
    }
  }
}

void SliceEngine::require_same_call(Rank source, const SliceHeader& header) const {
  if (header.step == step_ && header.call != call_) {
    const auto named = [](std::uint32_t call) {
      return call == 0 ? std::string("planned buckets")
                       : fmt::format("an array of {} elements", call == kEmptyCall ? 0 : call);
    };
    throw RuntimeFailure(fmt::format("rank {} sums {}, rank {} {}: all ranks must sum the same",
                                     source.value(), named(header.call), self_.value(),
                                     named(call_)));
  }
}

void SliceEngine::start(BucketId bucket, std::span<float> data) {
  const BucketProgram& program = programs_[bucket.index()];
  auto& slot = runs_[{*step_, bucket.value()}];
  slot = std::make_unique<BucketRun>(program, *step_, plan_.buckets[bucket.index()].priority, data);
  BucketRun& run = *slot;
  if (run.open == 0) {
    ended_.insert(bucket.value());
    finished_.push_back(bucket);
    runs_.erase(run.key());
    return;
  }
  by_urgency_.insert(std::upper_bound(by_urgency_.begin(), by_urgency_.end(), &run,
                                      [](const BucketRun* a, const BucketRun* b) {
                                        return a->urgency() < b->urgency();
                                      }),
                     &run);
  const auto early = early_.find(run.key());
  if (early != early_.end()) {
    const std::vector<EarlySlice> slices = std::move(early->second);
    early_.erase(early);
    for (const EarlySlice& slice : slices) {
      buffered_ -= slice.payload.size();
      accept(run, slice.source, slice.header, slice.payload);
    }
  }
  for (std::size_t peer = 0; peer < lost_.size(); ++peer) {
    if (lost_[peer] && run.needs[peer] != 0) {
      throw MissedPeerError(*lost_[peer]);
    }
    if (!program.sends_to[peer].empty()) {
      want_pump(Rank(peer));
    }
  }
}

void SliceEngine::on_peer_error(Rank peer, const std::string& reason) {
  if (halted_) {
    return;
  }
  // One that has done its part in all that is under way may go: it is missed when next needed.
  lost_[peer.index()] = MissedPeer{.rank = peer, .why = reason, .silence = {}};
  pulses_.forget(peer);
  for (const auto& [key, run] : runs_) {
    if (run->needs[peer.index()] != 0) {
      throw MissedPeerError(*lost_[peer.index()]);
    }
  }
}

// ---- receiving ----

void SliceEngine::on_slice(Rank source, const SliceHeader& header,
                           std::span<const std::byte> payload) {
  pulses_.heard(source, header.rail);
  if (halted_ || header.plan != plan_id_ || header.epoch != options_.epoch ||
      header.bucket >= programs_.size() || (step_ && header.step < *step_)) {
    return;  // of another plan, or of an epoch or step that is over
  }
  require_same_call(source, header);
  ledger_.count_arrived(source, payload.size(), std::chrono::nanoseconds(header.sent_ns));
  const auto run = runs_.find({header.step, header.bucket});
  if (run != runs_.end()) {
    accept(*run->second, source, header, payload);
    drain();
  } else {
    keep_for_later(source, header, payload);
  }
}

/// The local transfer that the slice is of: throws for what no peer with this plan would send.
std::uint32_t SliceEngine::checked(Rank source, const SliceHeader& header,
                                   std::span<const std::byte> payload) const {
  const BucketProgram& program = programs_[header.bucket];
  const auto it = program.local.find(header.transfer);
  if (it == program.local.end()) {
    throw RuntimeFailure(fmt::format("rank {} sent transfer {}, which is none of ours",
                                     source.value(), header.transfer));
  }
  const LocalTransfer& t = program.transfers[it->second];
  if (t.is_send || t.peer != source || header.slice >= t.slices) {
    throw RuntimeFailure(fmt::format("rank {} sent slice {} of transfer {}, which is not its own",
                                     source.value(), header.slice, header.transfer));
  }
  const std::int64_t elements = plan::slice(t.range, program.slice_elements, header.slice).size();
  const Codec& codec = codec_of(program.bucket, header.step, t);
  const auto due =
      static_cast<std::size_t>(plan::encoded_size(codec.descriptor(), elements).count());
  if (payload.size() != due) {
    throw RuntimeFailure(fmt::format("rank {} sent slice {} of transfer {} with {} bytes, not {}",
                                     source.value(), header.slice, header.transfer, payload.size(),
                                     due));
  }
  return it->second;
}

void SliceEngine::keep_for_later(Rank source, const SliceHeader& header,
                                 std::span<const std::byte> payload) {
  if (header.step == step_ && ended_.contains(header.bucket)) {
    throw RuntimeFailure(fmt::format("rank {} sent slice {} of transfer {} once more",
                                     source.value(), header.slice, header.transfer));
  }
  checked(source, header, payload);
  if (payload.size() > most_buffered_ - buffered_) {
    throw RuntimeFailure(fmt::format("rank {} is too far ahead: {} bytes wait for their buckets",
                                     source.value(), buffered_));
  }
  early_[{header.step, header.bucket}].push_back(
      {source, header, {payload.begin(), payload.end()}});
  buffered_ += payload.size();
  ledger_.note_buffered(buffered_);
}

void SliceEngine::accept(BucketRun& run, Rank source, const SliceHeader& header,
                         std::span<const std::byte> payload) {
  const std::uint32_t index = checked(source, header, payload);
  if (std::exchange(run.has_arrived[index][header.slice], 1) != 0) {
    throw RuntimeFailure(fmt::format("rank {} sent slice {} of transfer {} once more",
                                     source.value(), header.slice, header.transfer));
  }
  --run.needs[source.index()];
  if (run.waits[index][header.slice] != 0) {
    run.arrived[index][header.slice].emplace(payload.begin(), payload.end());
  } else {
    apply(run, index, header.slice, payload);
  }
}

void SliceEngine::apply(BucketRun& run, std::uint32_t index, std::uint32_t k,
                        std::span<const std::byte> payload) {
  const LocalTransfer& t = run.program.transfers[index];
  const std::span<float> values = run.values(plan::slice(t.range, run.program.slice_elements, k));
  const auto started = Clock::now();
  const Codec& codec = codec_of(run, t);
  if (t.op == plan::TransferOp::kReduce) {
    add(run, index, k, payload, values);
  } else {
    codec.decode(payload, values);
    if (t.keeps_encoding && is_lossy(run, t)) {
      run.encoded[index][k] =
          std::make_shared<const std::vector<std::byte>>(payload.begin(), payload.end());
    }
  }
  ledger_.add_time(&ExecutorStatistics::decode_time, started);
  if (ledger_.keeps_timeline()) {
    ledger_.record(fmt::format("{} bucket {}", t.op == plan::TransferOp::kReduce ? "add" : "decode",
                               run.program.bucket.value()),
                   "codec", started);
  }
  signal(run, index, k);
  close_slice(run);
}

void SliceEngine::add(BucketRun& run, std::uint32_t index, std::uint32_t k,
                      std::span<const std::byte> payload, std::span<float> values) {
  const LocalTransfer& t = run.program.transfers[index];
  const Codec& codec = codec_of(run, t);
  auto partial = run.partial_sums.extract({index, k});
  if (partial.empty() && !t.added_with) {
    codec.decode_add(payload, values);
    return;
  }
  std::vector<float> sum(values.size());
  if (partial.empty()) {
    codec.decode(payload, sum);
  } else {
    sum = std::move(partial.mapped());
    codec.decode_add(payload, sum);
  }
  if (t.added_with) {
    run.partial_sums.emplace(std::pair(*t.added_with, k), std::move(sum));
  } else {
    std::ranges::transform(sum, values, values.begin(), std::plus<>());
  }
}

// ---- sending ----

void SliceEngine::pump(Rank destination) {
  bool sent = true;
  while (sent) {
    sent = false;
    for (std::size_t i = 0; i < by_urgency_.size() && !sent; ++i) {
      sent = send_next(*by_urgency_[i], destination);
    }
  }
}

// Routes take turns: one whose next slice has to wait does not hold up the others.
bool SliceEngine::send_next(BucketRun& run, Rank destination) {
  const std::size_t routes = run.lanes[destination.index()].size();
  std::size_t& turn = run.turn[destination.index()];
  for (std::size_t i = 0; i < routes; ++i) {
    const std::size_t route = (turn + i) % routes;
    if (send_next(run, destination, route)) {
      turn = (route + 1) % routes;
      return true;
    }
  }
  return false;
}

bool SliceEngine::send_next(BucketRun& run, Rank destination, std::size_t route) {
  const auto& transfers = run.program.sends_to[destination.index()][route];
  BucketRun::Lane& lane = run.lanes[destination.index()][route];
  const std::uint32_t rail = rail_of_[run.program.bucket.index()][destination.index()][route];
  int& in_flight = in_flight_[destination.index()][rail];
  if (lane.position >= transfers.size() || in_flight >= options_.send_window) {
    return false;
  }
  const std::uint32_t index = transfers[lane.position];
  const LocalTransfer& t = run.program.transfers[index];
  const std::uint32_t k = lane.slice;
  if (run.waits[index][k] != 0) {
    return false;
  }
  const bool is_paced = t.rate > Bandwidth();
  const std::uint32_t pace = paced_lanes_[run.program.bucket.index()][destination.index()][route];
  if (is_paced && !pacer_.may_send(pace, Clock::now())) {
    pacer_.wait(pace);
    return false;
  }
  const bool borrows = !is_lossy(run, t);
  const plan::ElementRange part = plan::slice(t.range, run.program.slice_elements, k);
  const std::span<float> values = run.values(part);
  SharedPayload owned;
  if (!borrows) {
    if (t.encoding == plan::EncodingKind::kOwn) {
      owned = encode(run, t, part, values);
      if (t.keeps_encoding) {
        run.encoded[index][k] = owned;
      }
    } else {
      owned = run.encoded[t.encoding_from][k];
      if (!owned) {
        return false;  // the transfer that encodes it has not come to this slice
      }
    }
  }
  const std::span<const std::byte> payload =
      borrows ? std::as_bytes(values) : std::span<const std::byte>(*owned);
  if (++lane.slice == t.slices) {
    lane.slice = 0;
    ++lane.position;
  }
  SliceHeader header;
  header.plan = plan_id_;
  header.epoch = options_.epoch;
  header.call = call_;
  header.step = run.step;
  header.bucket = run.program.bucket.value();
  header.transfer = t.id;
  header.slice = k;
  header.bytes = static_cast<std::uint32_t>(payload.size());
  header.rail = rail;
  const Clock::time_point started = Clock::now();
  header.sent_ns = std::chrono::nanoseconds(started.time_since_epoch()).count();
  if (is_paced) {
    pacer_.charge(pace, payload.size(), t.rate, started);
  }
  ++in_flight;
  borrowed_ += borrows ? 1 : 0;
  ledger_.count_sent(destination, payload.size());
  transport_.send(
      destination, header, payload,
      [anchor = anchor_, owned, key = run.key(), index, k, borrows, destination, rail, started] {
        if (SliceEngine* engine = anchor->engine; engine != nullptr) {
          --engine->in_flight_[destination.index()][rail];
          engine->on_sent(key, index, k, borrows, started);
        }
      });
  if (!borrows) {
    signal(run, index, k);
  }
  return true;
}

// May be called from within Transport::send, so it only queues what has become possible.
void SliceEngine::on_sent(BucketRun::Key key, std::uint32_t transfer, std::uint32_t slice,
                          bool was_borrowed, Clock::time_point started) {
  borrowed_ -= was_borrowed ? 1 : 0;
  const auto it = runs_.find(key);
  if (it == runs_.end()) {
    return;  // halted
  }
  BucketRun& run = *it->second;
  const Rank destination = run.program.transfers[transfer].peer;
  if (ledger_.keeps_timeline()) {
    ledger_.record(fmt::format("bucket {} to rank {}", key.second, destination.value()), "network",
                   started);
  }
  --run.needs[destination.index()];
  if (was_borrowed) {
    signal(run, transfer, slice);
  }
  close_slice(run);
  want_pump(destination);
}

SharedPayload SliceEngine::encode(BucketRun& run, const LocalTransfer& t,
                                  const plan::ElementRange& part, std::span<float> values) {
  const Codec& codec = codec_of(run, t);
  const auto started = Clock::now();
  auto bytes = std::make_shared<std::vector<std::byte>>(
      static_cast<std::size_t>(plan::encoded_size(codec.descriptor(), part.size()).count()));
  const std::uint64_t stream = rounding_stream(plan_, run.step, run.program.bucket, t.op, self_);
  {
    std::span<float> residual;
    const std::lock_guard lock(residual_mutex_);
    if (!t.residual.empty()) {
      auto& state = residuals_[t.residual];
      state.resize(static_cast<std::size_t>(t.range.size()), 0.0F);
      residual = std::span(state).subspan(static_cast<std::size_t>(part.begin - t.range.begin),
                                          static_cast<std::size_t>(part.size()));
    }
    const double norm = residual.empty() ? 0 : norm_of(values);
    codec.encode(values, residual, {stream, part.begin}, *bytes);
    if (!residual.empty()) {
      const auto slice = static_cast<std::size_t>(
          (part.begin - t.range.begin) / std::max<std::int64_t>(1, run.program.slice_elements));
      limit_residual(residuals_[t.residual + kNormsSuffix], slice, norm, residual);
    }
  }
  if (t.op == plan::TransferOp::kCopy) {
    codec.decode(*bytes, values);  // the sender goes on with what the others get
  }
  ledger_.add_time(&ExecutorStatistics::encode_time, started);
  if (ledger_.keeps_timeline()) {
    ledger_.record(fmt::format("encode bucket {}", run.program.bucket.value()), "codec", started);
  }
  return bytes;
}

// ---- what follows ----

// Slice k of a local transfer is done: frees what waits for it.
void SliceEngine::signal(BucketRun& run, std::uint32_t index, std::uint32_t k) {
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
      if (!program.sends_to[destination].empty()) {
        want_pump(Rank(destination));
      }
    }
  }
}

void SliceEngine::unblock(BucketRun& run, std::uint32_t index, std::uint32_t k) {
  if (--run.waits[index][k] != 0) {
    return;
  }
  const LocalTransfer& t = run.program.transfers[index];
  if (t.is_send) {
    want_pump(t.peer);
  } else if (run.arrived[index][k]) {
    const auto behind = std::upper_bound(
        to_apply_.begin(), to_apply_.end(), run.urgency(),
        [](const auto& own, const FreedSlice& other) { return own < other.run->urgency(); });
    to_apply_.insert(behind, {&run, index, k});
  }
}

void SliceEngine::want_pump(Rank destination) {
  if (std::exchange(pump_is_queued_[destination.index()], 1) == 0) {
    to_pump_.push_back(destination);
  }
}

void SliceEngine::drain() {
  if (pacer_.next_due()) {
    for (const Rank destination : pacer_.take_due(Clock::now())) {
      want_pump(destination);
    }
  }
  while (!to_apply_.empty() || !to_pump_.empty()) {
    if (to_apply_.empty()) {
      const Rank destination = to_pump_.front();
      to_pump_.pop_front();
      pump_is_queued_[destination.index()] = 0;
      pump(destination);
      continue;
    }
    const FreedSlice freed = to_apply_.front();
    to_apply_.pop_front();
    BucketRun& run = *freed.run;
    auto& arrived = run.arrived[freed.transfer][freed.slice];
    const std::vector<std::byte> payload = std::move(*arrived);
    arrived.reset();
    apply(run, freed.transfer, freed.slice, payload);
  }
}

void SliceEngine::close_slice(BucketRun& run) {
  if (--run.open == 0) {
    finished_.push_back(run.program.bucket);
  }
}

// Runs end here, where nothing on the stack refers to them.
std::vector<BucketId> SliceEngine::take_finished() {
  for (const BucketId bucket : finished_) {
    ended_.insert(bucket.value());
    end({*step_, bucket.value()});
  }
  return std::exchange(finished_, {});
}

void SliceEngine::end(BucketRun::Key key) {
  const auto it = runs_.find(key);
  if (it != runs_.end()) {
    by_urgency_.erase(std::find(by_urgency_.begin(), by_urgency_.end(), it->second.get()));
    runs_.erase(it);
  }
}

void SliceEngine::halt() {
  halted_ = true;
  by_urgency_.clear();
  runs_.clear();
  early_.clear();
  to_apply_.clear();
  to_pump_.clear();
  finished_.clear();
}

const Codec& SliceEngine::codec_of(BucketId bucket, std::uint32_t step,
                                   const LocalTransfer& t) const {
  const std::size_t codec = plan_.is_compression_warmup(step) ? 0 : t.codec;
  return *codecs_[plan_.buckets[bucket.index()].schedule][codec];
}

const Codec& SliceEngine::codec_of(const BucketRun& run, const LocalTransfer& t) const {
  return codec_of(run.program.bucket, run.step, t);
}

bool SliceEngine::is_lossy(const BucketRun& run, const LocalTransfer& t) const {
  return codec_of(run, t).descriptor().is_lossy();
}

Residuals SliceEngine::residuals() const {
  const std::lock_guard lock(residual_mutex_);
  return residuals_;
}

void SliceEngine::set_residuals(Residuals residuals) {
  const std::lock_guard lock(residual_mutex_);
  residuals_ = std::move(residuals);
}

}  // namespace rackrail::runtime
