// Ranks, their streams, and the loop.
#include "sim/engine.hpp"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/error.hpp"
#include "base/work.hpp"
#include "sim/engine_state.hpp"
#include "sim/max_min_network.hpp"
#include "sim/packet_network.hpp"
#include "sim/processors_network.hpp"

namespace rackrail::sim {

namespace {
constexpr double kOneCoreIfUnsaid = 1.0;
constexpr std::uint64_t kRoundsPerReport = 1024;
constexpr std::uint64_t kRoundsPerQuestion = 64;  // whether to stop

std::unique_ptr<NetworkModel> make_network(const topology::Topology& topology,
                                           const SimulationOptions& options) {
  if (options.network == NetworkLevel::kFlow) {
    return std::make_unique<MaxMinNetwork>(topology, options.tolerance.value_or(0));
  }
  auto packets = std::make_unique<PacketNetwork>(topology, options.packets);
  for (std::size_t r = 0; r < topology.rank_count(); ++r) {
    if (topology.processor_of(Rank(r))) {
      return std::make_unique<ProcessorsNetwork>(topology, std::move(packets));
    }
  }
  return packets;
}
}  // namespace

Engine::Engine(const topology::Topology& topology, const SimulationOptions& options)
    : topology_(topology),
      records_(options.record_critical_path || options.record_timeline || options.record_flows),
      staleness_(static_cast<std::size_t>(options.staleness)),
      loading_(options.loading),
      disturbances_(options.disturbances),
      distance_(distance_of(options.multipath)),
      packet_bytes_(options.network == NetworkLevel::kPacket ? options.packets.payload.count() : 0),
      progress_(options.progress),
      records_flows_(options.record_flows),
      has_packets_(options.network == NetworkLevel::kPacket),
      tolerance_(options.network == NetworkLevel::kFlow ? options.tolerance.value_or(0) : 0),
      network_(make_network(topology, options)),
      ranks_(topology.rank_count()) {
  for (std::size_t r = 0; r < ranks_.size(); ++r) {
    RankState& rank = ranks_[r];
    rank.rates =
        options.device_rates ? *options.device_rates : plan::device_rates(topology, Rank(r));
    if (const auto link = topology.processor_of(Rank(r))) {
      const topology::Link& processor = topology.link(*link);
      rank.processor = {*link};
      rank.core_rate = static_cast<double>(processor.bandwidth.bytes_per_second()) *
                       (processor.cpu_share > 0 ? processor.cpu_share : kOneCoreIfUnsaid);
    }
  }
}

Engine::~Engine() = default;

Time Engine::run_ready(std::uint32_t run) const { return runs_[run].ready_at; }
Time Engine::run_done(std::uint32_t run) const { return runs_[run].done_at; }
Time Engine::run_added(std::uint32_t run) const { return runs_[run].added_at; }
std::vector<QueueUse> Engine::queues() const { return network_->queues(); }
std::uint64_t Engine::flows() const { return network_->flows_started(); }

FlowTag Engine::new_tag() {
  if (free_tags_.empty()) {
    flying_.emplace_back();
    return static_cast<FlowTag>(flying_.size() - 1);
  }
  const FlowTag tag = free_tags_.back();
  free_tags_.pop_back();
  return tag;
}

// Work of a device: a flow over its processor where it has one, else plain time, as copies are,
// which are no work of cores, and pauses between slices.
void Engine::begin(Task task, Duration duration) {
  if (records_) {
    record(task);
  }
  const RankState& rank = ranks_[task.rank.index()];
  if (rank.processor.empty() || is_copy(task) || task.kind == TaskKind::kPaced) {
    ++own_queued_;
    queue_.push(now_, duration.picoseconds(), task);
    return;
  }
  const auto bytes = static_cast<std::int64_t>(rank.core_rate * duration.seconds());
  const FlowTag tag = new_tag();
  flying_[tag] = task;
  network_->start(now_, bytes, rank.processor, rank.core_rate, tag);
}

void Engine::push_stream(Stream& stream, const Task& task, Duration duration, Duration wake) {
  if (stream.is_busy) {
    stream.waiting.push(runs_[task.run].urgency) = {task, duration, wake, now_};
    return;
  }
  stream.is_busy = true;
  begin(task, wake + duration);
}

void Engine::next_in_stream(Stream& stream) {
  stream.is_busy = !stream.waiting.empty();
  if (stream.is_busy) {
    const Stream::Waiting next = stream.waiting.front();
    stream.waiting.pop_front();
    const Duration waited(now_ - next.since);
    begin(next.task, std::max(Duration(), next.wake - waited) + next.duration);
  }
}

void Engine::next_compute(Rank rank) {
  RankState& state = ranks_[rank.index()];
  if (state.is_computing || state.step >= state.step_count) {
    return;
  }
  if (state.step == state.first_step + state.steps.size()) {
    programs_[*state.program].make(state.step);
  }
  RankState::Step& step = state.at(state.step);
  if (!step.has_begun) {
    begin_step(rank);
  }
  if (loading_ && state.piece == 0) {
    if (state.loaded <= state.step) {
      next_load(rank);
      return;  // it goes on when the data is there
    }
    step.times.waited_for_data = now_ - step.times.start;
  }
  Duration duration;
  TaskKind kind = TaskKind::kOptimizer;
  if (state.piece < step.pieces.size()) {
    duration = step.pieces[state.piece].duration;
    kind = step.pieces[state.piece].kind;
  } else if (state.step >= state.first_step + staleness_ &&
             state.at(state.step - staleness_).open_runs > 0) {
    return;  // gradients still move
  } else {
    duration = step.optimizer;
  }
  state.is_computing = true;
  state.begun = now_;
  begin({.kind = kind,
         .rank = rank,
         .run = static_cast<std::uint32_t>(state.step),
         .slice = static_cast<std::uint32_t>(state.piece)},
        duration);
}

// Prepares the next batch of data, unless the loader is far enough ahead.
void Engine::next_load(Rank rank) {
  RankState& state = ranks_[rank.index()];
  const std::size_t wanted =
      std::min(state.step_count, state.step + 1 + static_cast<std::size_t>(loading_->prefetch));
  if (!state.is_loading && state.loaded < wanted) {
    state.is_loading = true;
    begin({.kind = TaskKind::kLoad, .rank = rank, .run = static_cast<std::uint32_t>(state.loaded)},
          loading_->batch);
  }
}

void Engine::start_program(Rank rank) {
  next_compute(rank);
  if (loading_ && ranks_[rank.index()].step_count > 0) {
    next_load(rank);
  }
}

void Engine::finish_compute(const Task& task) {
  RankState& rank = ranks_[task.rank.index()];
  RankState::Step& step = rank.at(rank.step);
  rank.is_computing = false;
  step.times.compute += now_ - rank.begun;
  if (task.kind == TaskKind::kOptimizer) {
    end_step(rank, task);
    if (loading_) {
      next_load(task.rank);
    }
  } else {
    const std::vector<std::uint32_t> ready = std::move(step.pieces[rank.piece].ready);
    ++rank.piece;
    for (const std::uint32_t run : ready) {
      data_ready(run, task.rank);
    }
  }
  next_compute(task.rank);
}

void Engine::finish(const Task& task) {
  if (!is_of_plan(task)) {
    disturb(task);
    return;
  }
  ++handled_;
  background_since_ = 0;
  if (task.activity != kNoActivity) {
    end_activity(task);
  }
  switch (task.kind) {
    case TaskKind::kStart:
      start_program(task.rank);
      return;
    case TaskKind::kLoad: {
      RankState& rank = ranks_[task.rank.index()];
      rank.is_loading = false;
      ++rank.loaded;
      next_load(task.rank);
      next_compute(task.rank);
      return;
    }
    case TaskKind::kForward:
    case TaskKind::kBackward:
    case TaskKind::kOptimizer:
      finish_compute(task);
      return;
    case TaskKind::kEncode:
      finish_encode(task);
      return;
    case TaskKind::kPaced:
      finish_pause(task);
      return;
    case TaskKind::kOverhead:
      finish_overhead(task);
      return;
    case TaskKind::kCopyOut:
      finish_copy_out(task);
      return;
    case TaskKind::kCopyIn:
      finish_copy_in(task);
      return;
    case TaskKind::kReceive:
      if (runs_[task.run].copies_in) {
        copy_in(task.run, task.place, task.slice);
      } else {
        arrived(task.run, task.place, task.slice);
      }
      next_in_stream(ranks_[task.rank.index()].messages);
      return;
    case TaskKind::kWire:
      finish_wire(task);
      return;
    case TaskKind::kLatency:
      delivered(task);
      return;
    case TaskKind::kDecode:
    case TaskKind::kReduce: {
      if (runs_[task.run].owner != task.rank) {  // not its own decoding of what it pulled
        runs_[task.run].added_at = now_;
      }
      applied(task);
      RankState& rank = ranks_[task.rank.index()];
      next_in_stream(task.kind == TaskKind::kDecode ? rank.codec : rank.reduce);
      return;
    }
    case TaskKind::kCapacityChange:
    case TaskKind::kBackground:
      return;  // handled above: they are nobody's activity
  }
}

void Engine::take_network_events() {
  network_events_.clear();
  network_->take_events(now_, network_events_);
  take_rates();
  for (const FlowEvent& event : network_events_) {
    const Task task = flying_[event.tag];
    if (task.kind == TaskKind::kBackground && !event.is_delivered) {
      background_left(task.slice);
      continue;
    }
    if (event.is_delivered) {
      free_tags_.push_back(event.tag);
      if (task.kind == TaskKind::kLatency) {
        finish(task);
      }
      continue;
    }
    finish(task);
    if (task.kind == TaskKind::kWire) {
      Task& latency = flying_[event.tag];
      latency.kind = TaskKind::kLatency;
      latency.activity = kNoActivity;
      if (records_) {
        current_ = task.activity;  // what its end started may have set another one
        record(latency);
      }
    }
  }
}

// From here on, what each link still has to carry is known: of one step, or of collectives alone,
// on a network that stays as it is.
void Engine::count_work() {
  const bool is_one_step =
      std::ranges::all_of(ranks_, [](const RankState& rank) { return rank.step_count <= 1; });
  if (!is_one_step || staleness_ > 0 || !disturbances_.empty()) {
    return;
  }
  work_left_.emplace(topology_, tolerance_);
  for (const std::uint32_t run : runs_.numbers()) {
    work_left_->add(*runs_[run].index);
  }
}

// Whether no simulation ends before the limit, for all that links still have to carry.
bool Engine::is_too_late(Time limit) {
  if (!work_left_ || handled_ < next_look_) {
    return false;
  }
  constexpr std::uint64_t kEventsPerLink = 2;  // by then many messages more have begun
  next_look_ = handled_ + kEventsPerLink * work_left_->link_count();
  return now_ + work_left_->at_least() >= limit;
}

void Engine::run() { run_until(std::numeric_limits<Time>::max()); }

bool Engine::run_until(Time limit, const std::function<bool()>& stop) {
  begin_recording();
  schedule_disturbances();
  if (limit < std::numeric_limits<Time>::max()) {
    count_work();
  }
  for (std::size_t r = 0; r < ranks_.size(); ++r) {
    const Duration start = ranks_[r].start;
    if (start == Duration() || ranks_[r].step_count == 0) {
      start_program(Rank(r));
      continue;
    }
    Task task{.kind = TaskKind::kStart, .rank = Rank(r)};
    if (records_) {
      record(task);
    }
    ++own_queued_;
    queue_.push(now_, start.picoseconds(), task);
  }
  for (std::uint64_t round = 0; unfinished_ > 0; ++round) {
    if (is_too_late(limit)) {
      return false;
    }
    if (progress_ && round % kRoundsPerReport == 0 && slice_ends_ > 0) {
      progress_(static_cast<double>(ended_) / static_cast<double>(slice_ends_));
    }
    if (stop && round % kRoundsPerQuestion == 0 && stop()) {
      return false;
    }
    const Time network = network_->next_event(now_);
    const bool has_network = network >= 0;
    if (!has_network && queue_.empty()) {
      fail_stuck();
    }
    const bool is_network = has_network && (queue_.empty() || network <= queue_.next_time());
    const Time next = is_network ? network : queue_.next_time();
    if (next >= limit) {
      return false;
    }
    now_ = next;
    if (is_network) {
      take_network_events();
    }
    while (!queue_.empty() && queue_.next_time() == now_) {
      const Task task = queue_.pop();
      own_queued_ -= is_of_plan(task) ? 1 : 0;
      Work::add(1);
      finish(task);
    }
    if (!done_.empty()) {
      drop_done();
    }
  }
  network_->settle_rates(now_);
  take_rates();
  add_up_pieces();
  return true;
}

}  // namespace rackrail::sim
