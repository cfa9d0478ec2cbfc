#include "sim/engine.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/error.hpp"
#include "base/parse_units.hpp"
#include "sim/max_min_network.hpp"

namespace rackrail::sim {

namespace {
constexpr double kOneCoreIfUnsaid = 1.0;

std::size_t side(bool at_source) { return at_source ? 0 : 1; }
}  // namespace

struct Engine::Stream {
  struct Task {
    ActivityKind kind;
    std::uint32_t run;
    std::uint32_t transfer;
    std::uint32_t slice;
    Duration duration;
  };
  std::deque<Task> waiting;
  bool busy = false;
};

struct Engine::RankState {
  struct Step {
    std::vector<ComputePiece> pieces;
    std::vector<std::uint32_t> runs;
    Duration optimizer;
  };
  plan::DeviceRates rates;
  std::vector<LinkId> processor;  ///< one link, or empty
  double core_rate = 0;           ///< bytes/s of one core on the processor link
  Stream codec;
  Stream reduce;
  std::vector<Step> steps;
  std::vector<StepTimes> times;
  std::size_t step = 0;
  std::size_t piece = 0;
  std::size_t open_runs = 0;  ///< of the current step, not done on this rank
  bool computing = false;
  bool optimizing = false;
};

struct Engine::PhysicalChannel {
  Rank src;
  Rank dst;
  bool busy = false;
  std::vector<std::pair<std::uint32_t, std::uint32_t>> lanes;  ///< (run, channel in its index)
};

struct Engine::Run {
  std::shared_ptr<const GraphIndex> index;
  std::string name;
  std::vector<std::uint32_t> pending;                     ///< per slice: dependencies not met
  std::vector<bool> encoded;                              ///< per slice, of lossy transfers
  std::vector<std::uint32_t> additions_before;            ///< per slice, not applied; may be empty
  std::vector<bool> waits_for_additions;                  ///< per slice: arrived, but not its turn
  std::vector<std::array<std::uint32_t, 2>> slices_done;  ///< per transfer: at source, applied
  std::vector<bool> ready;                                ///< per rank
  std::vector<std::uint32_t> open;                        ///< per rank: slices to send or to apply
  std::vector<std::pair<std::uint32_t, std::uint32_t>> held;  ///< arrived before the rank was ready
  std::vector<std::uint32_t> physical;                        ///< per channel
  std::vector<std::uint32_t> lane_transfer;  ///< per channel: position in its transfers
  std::vector<std::uint32_t> lane_slice;
  std::vector<std::vector<std::uint32_t>> sharers;  ///< per transfer that encodes for others
  Time ready_at = 0;
  Time done_at = 0;
};

Engine::Engine(const topology::Topology& topology, const SimulationOptions& options)
    : topology_(topology),
      network_(std::make_unique<MaxMinNetwork>(topology)),
      ranks_(topology.rank_count()) {
  for (std::size_t r = 0; r < ranks_.size(); ++r) {
    RankState& rank = ranks_[r];
    const topology::Node& node = topology.node(topology.node_of(Rank(r)));
    rank.rates =
        options.device_rates ? *options.device_rates : plan::device_rates(node.device_class);
    if (const auto link = topology.processor_of(Rank(r))) {
      const topology::Link& processor = topology.link(*link);
      rank.processor = {*link};
      rank.core_rate = static_cast<double>(processor.bandwidth.bytes_per_second()) *
                       (processor.cpu_share > 0 ? processor.cpu_share : kOneCoreIfUnsaid);
    }
  }
}

Engine::~Engine() = default;

std::uint32_t Engine::add_run(std::shared_ptr<const GraphIndex> index, std::string name) {
  const auto number = static_cast<std::uint32_t>(runs_.size());
  Run run;
  run.name = std::move(name);
  run.pending.resize(index->slice_count);
  run.slices_done.resize(index->transfers.size());
  run.ready.assign(ranks_.size(), false);
  run.open.assign(ranks_.size(), 0);
  run.lane_transfer.assign(index->channels.size(), 0);
  run.lane_slice.assign(index->channels.size(), 0);
  if (!index->next_additions.empty()) {
    run.additions_before.resize(index->slice_count);
    run.waits_for_additions.resize(index->slice_count);
  }
  bool lossy = false;
  for (std::size_t i = 0; i < index->transfers.size(); ++i) {
    const TransferInfo& info = index->transfers[i];
    if (!index->next_additions.empty()) {
      std::fill_n(run.additions_before.begin() + info.first_slice, info.slices,
                  info.additions_before);
    }
    std::fill_n(run.pending.begin() + info.first_slice, info.slices,
                info.slice_waits + info.whole_waits);
    const plan::Transfer& transfer = index->graph.transfers()[i];
    run.open[transfer.src.index()] += info.slices;
    run.open[transfer.dst.index()] += info.slices;
    lossy = lossy || info.encoding != plan::EncodingKind::kOwn ||
            index->graph.codecs()[transfer.codec].is_lossy();
  }
  if (lossy) {
    run.encoded.assign(index->slice_count, false);
    run.sharers.resize(index->transfers.size());
    for (std::size_t i = 0; i < index->transfers.size(); ++i) {
      if (index->transfers[i].encoding == plan::EncodingKind::kShared) {
        run.sharers[index->transfers[i].encoded_by].push_back(static_cast<std::uint32_t>(i));
      }
    }
  }
  for (std::size_t c = 0; c < index->channels.size(); ++c) {
    const Channel& channel = index->channels[c];
    const std::uint64_t key =
        (static_cast<std::uint64_t>(channel.src.value()) << 32U) | channel.dst.value();
    const auto [it, added] =
        channel_ids_.emplace(key, static_cast<std::uint32_t>(channels_.size()));
    if (added) {
      channels_.push_back({channel.src, channel.dst, false, {}});
    }
    channels_[it->second].lanes.emplace_back(number, static_cast<std::uint32_t>(c));
    run.physical.push_back(it->second);
  }
  run.index = std::move(index);
  runs_.push_back(std::move(run));
  return number;
}

void Engine::add_step(Rank rank, std::vector<ComputePiece> pieces, std::vector<std::uint32_t> runs,
                      Duration optimizer) {
  ranks_[rank.index()].steps.push_back({std::move(pieces), std::move(runs), optimizer});
}

const std::vector<Engine::StepTimes>& Engine::steps_of(Rank rank) const {
  return ranks_[rank.index()].times;
}
Time Engine::run_ready(std::uint32_t run) const { return runs_[run].ready_at; }
Time Engine::run_done(std::uint32_t run) const { return runs_[run].done_at; }
std::uint64_t Engine::flows() const { return network_->flows_started(); }

std::uint32_t Engine::begin(ActivityKind kind, Rank rank, std::uint32_t run, std::uint32_t transfer,
                            std::uint32_t slice) {
  activities_.push_back({kind, rank, run, transfer, slice, current_, now_, now_});
  return static_cast<std::uint32_t>(activities_.size() - 1);
}

// Work of a device: a flow over its processor where it has one, else plain time.
void Engine::spend(std::uint32_t activity, Duration duration) {
  const RankState& rank = ranks_[activities_[activity].rank.index()];
  if (rank.processor.empty()) {
    queue_.push(now_ + duration.picoseconds(), 0, activity, 0);
    return;
  }
  const auto bytes = static_cast<std::int64_t>(rank.core_rate * duration.seconds());
  network_->start(now_, bytes, rank.processor, rank.core_rate, activity);
}

void Engine::push_stream(Stream& stream, Rank rank, ActivityKind kind, std::uint32_t run,
                         std::uint32_t transfer, std::uint32_t slice, Duration duration) {
  stream.waiting.push_back({kind, run, transfer, slice, duration});
  next_in_stream(stream, rank);
}

void Engine::next_in_stream(Stream& stream, Rank rank) {
  if (stream.busy || stream.waiting.empty()) {
    return;
  }
  const Stream::Task task = stream.waiting.front();
  stream.waiting.pop_front();
  stream.busy = true;
  spend(begin(task.kind, rank, task.run, task.transfer, task.slice), task.duration);
}

void Engine::next_compute(Rank rank) {
  RankState& state = ranks_[rank.index()];
  if (state.computing || state.step >= state.steps.size()) {
    return;
  }
  RankState::Step& step = state.steps[state.step];
  if (state.piece == 0) {
    state.times.push_back({now_, now_, 0});
    state.open_runs = 0;
    for (const std::uint32_t run : step.runs) {
      state.open_runs += runs_[run].open[rank.index()] > 0 ? 1 : 0;
    }
  }
  Duration duration;
  ActivityKind kind = ActivityKind::kOptimizer;
  if (state.piece < step.pieces.size()) {
    duration = step.pieces[state.piece].duration;
    kind = step.pieces[state.piece].kind;
  } else if (state.open_runs > 0) {
    return;  // gradients still move
  } else {
    duration = step.optimizer;
  }
  state.computing = true;
  const auto piece = static_cast<std::uint32_t>(state.piece);
  spend(begin(kind, rank, static_cast<std::uint32_t>(state.step), 0, piece), duration);
}

Duration Engine::codec_time(Rank rank, const plan::Codec& codec, std::int64_t elements,
                            bool encode) const {
  const plan::DeviceRates& rates = ranks_[rank.index()].rates;
  const plan::CodecRate& rate = rates.codecs[static_cast<std::size_t>(codec.kind)];
  return Bytes(elements * 4) / (encode ? rate.encode : rate.decode) + rates.launch;
}

void Engine::data_ready(std::uint32_t number, Rank rank) {
  Run& run = runs_[number];
  run.ready[rank.index()] = true;
  run.ready_at = std::max(run.ready_at, now_);
  const GraphIndex& index = *run.index;
  for (const std::uint32_t c : index.channels_of[rank.index()]) {
    for (const std::uint32_t t : index.channels[c].transfers) {
      const TransferInfo& info = index.transfers[t];
      for (std::uint32_t k = 0; k < info.slices; ++k) {
        if (run.pending[info.first_slice + k] == 0) {
          slice_unblocked(number, t, k);
        }
      }
    }
  }
  auto held = std::move(run.held);
  run.held.clear();
  for (const auto& [t, k] : held) {
    if (index.graph.transfers()[t].dst == rank) {
      arrived(number, t, k);
    } else {
      run.held.emplace_back(t, k);
    }
  }
}

// All dependencies are met and the local data is there: encode where needed, then send.
void Engine::slice_unblocked(std::uint32_t number, std::uint32_t t, std::uint32_t k) {
  Run& run = runs_[number];
  const GraphIndex& index = *run.index;
  const plan::Transfer& transfer = index.graph.transfers()[t];
  if (!run.ready[transfer.src.index()]) {
    return;
  }
  const TransferInfo& info = index.transfers[t];
  const plan::Codec& codec = index.graph.codecs()[transfer.codec];
  if (codec.is_lossy() && info.encoding == plan::EncodingKind::kOwn) {
    const std::int64_t elements = plan::slice(info.range, index.slice_elements, k).size();
    Duration duration = codec_time(transfer.src, codec, elements, true);
    if (transfer.op == plan::TransferOp::kCopy) {
      // The sender goes on with what the others will decode.
      duration += codec_time(transfer.src, codec, elements, false);
    }
    push_stream(ranks_[transfer.src.index()].codec, transfer.src, ActivityKind::kEncode, number, t,
                k, duration);
    return;
  }
  try_send(run.physical[info.channel]);
}

void Engine::try_send(std::uint32_t physical) {
  PhysicalChannel& channel = channels_[physical];
  if (channel.busy) {
    return;
  }
  for (const auto& [number, lane] : channel.lanes) {
    Run& run = runs_[number];
    const GraphIndex& index = *run.index;
    const auto& transfers = index.channels[lane].transfers;
    if (run.lane_transfer[lane] >= transfers.size() || !run.ready[channel.src.index()]) {
      continue;
    }
    const std::uint32_t t = transfers[run.lane_transfer[lane]];
    const std::uint32_t k = run.lane_slice[lane];
    const TransferInfo& info = index.transfers[t];
    if (run.pending[info.first_slice + k] != 0) {
      continue;
    }
    const plan::Transfer& transfer = index.graph.transfers()[t];
    if (index.graph.codecs()[transfer.codec].is_lossy() &&
        info.encoding != plan::EncodingKind::kForwarded) {
      const std::uint32_t by = info.encoding == plan::EncodingKind::kShared ? info.encoded_by : t;
      if (!run.encoded[index.transfers[by].first_slice + k]) {
        continue;
      }
    }
    if (++run.lane_slice[lane] == info.slices) {
      run.lane_slice[lane] = 0;
      ++run.lane_transfer[lane];
    }
    channel.busy = true;
    Duration overhead;
    for (const LinkId link : index.route(t)) {
      overhead = std::max(overhead, topology_.link(link).overhead);
    }
    spend(begin(ActivityKind::kOverhead, transfer.src, number, t, k), overhead);
    // Sent from memory of its own, so the buffer is free; its own encoding was signalled before.
    if (index.graph.codecs()[transfer.codec].is_lossy() &&
        info.encoding != plan::EncodingKind::kOwn) {
      signal(number, t, k, true);
    }
    return;
  }
}

void Engine::arrived(std::uint32_t number, std::uint32_t t, std::uint32_t k) {
  Run& run = runs_[number];
  const GraphIndex& index = *run.index;
  const plan::Transfer& transfer = index.graph.transfers()[t];
  if (!run.ready[transfer.dst.index()]) {
    run.held.emplace_back(t, k);
    return;
  }
  if (!run.additions_before.empty()) {
    const std::uint32_t slice = index.transfers[t].first_slice + k;
    run.waits_for_additions[slice] = run.additions_before[slice] > 0;
    if (run.waits_for_additions[slice]) {
      return;
    }
  }
  const plan::Codec& codec = index.graph.codecs()[transfer.codec];
  const std::int64_t elements =
      plan::slice(index.transfers[t].range, index.slice_elements, k).size();
  RankState& rank = ranks_[transfer.dst.index()];
  if (codec.is_lossy()) {
    push_stream(rank.codec, transfer.dst, ActivityKind::kDecode, number, t, k,
                codec_time(transfer.dst, codec, elements, false));
  } else if (transfer.op == plan::TransferOp::kReduce) {
    push_stream(rank.reduce, transfer.dst, ActivityKind::kReduce, number, t, k,
                Bytes(elements * 4) / rank.rates.reduce + rank.rates.launch);
  } else {
    signal(number, t, k, false);
  }
}

void Engine::count_down(std::uint32_t number, Rank rank) {
  Run& run = runs_[number];
  if (--run.open[rank.index()] > 0) {
    return;
  }
  run.done_at = std::max(run.done_at, now_);
  RankState& state = ranks_[rank.index()];
  --state.open_runs;
  next_compute(rank);
}

void Engine::signal(std::uint32_t number, std::uint32_t t, std::uint32_t k, bool at_source) {
  Run& run = runs_[number];
  const GraphIndex& index = *run.index;
  const plan::Transfer& transfer = index.graph.transfers()[t];
  const std::uint32_t done = ++run.slices_done[t][side(at_source)];
  const bool whole_done = done == index.transfers[t].slices;
  const Rank here = at_source ? transfer.src : transfer.dst;
  for (std::uint32_t i = index.dependents_begin[t]; i < index.dependents_begin[t + 1]; ++i) {
    const Dependent& dependent = index.dependents[i];
    if (index.graph.transfers()[dependent.transfer].src != here) {
      continue;
    }
    const TransferInfo& info = index.transfers[dependent.transfer];
    if (!dependent.whole) {
      if (--run.pending[info.first_slice + k] == 0) {
        slice_unblocked(number, dependent.transfer, k);
      }
    } else if (whole_done) {
      for (std::uint32_t s = 0; s < info.slices; ++s) {
        if (--run.pending[info.first_slice + s] == 0) {
          slice_unblocked(number, dependent.transfer, s);
        }
      }
    }
  }
  if (!at_source) {
    if (!index.next_additions.empty()) {
      free_additions(number, t, k, whole_done);
    }
    count_down(number, here);
  }
}

// Slice k of addition t is applied: those that had to wait for it have their turn.
void Engine::free_additions(std::uint32_t number, std::uint32_t t, std::uint32_t k,
                            bool whole_done) {
  Run& run = runs_[number];
  const auto applied_before = [&](std::uint32_t next, std::uint32_t s) {
    const std::uint32_t slice = run.index->transfers[next].first_slice + s;
    if (--run.additions_before[slice] == 0 && run.waits_for_additions[slice]) {
      arrived(number, next, s);
    }
  };
  for (const Dependent& next : run.index->next_additions[t]) {
    if (!next.whole) {
      applied_before(next.transfer, k);
    } else if (whole_done) {
      for (std::uint32_t s = 0; s < run.index->transfers[next.transfer].slices; ++s) {
        applied_before(next.transfer, s);
      }
    }
  }
}

void Engine::finish(std::uint32_t id) {
  ++handled_;
  activities_[id].end = now_;
  current_ = id;
  const Activity activity = activities_[id];  // a copy: the vector grows below
  RankState& rank = ranks_[activity.rank.index()];
  switch (activity.kind) {
    case ActivityKind::kForward:
    case ActivityKind::kBackward: {
      rank.computing = false;
      rank.times.back().compute += now_ - activity.start;
      const std::vector<std::uint32_t> ready = rank.steps[rank.step].pieces[rank.piece].ready;
      ++rank.piece;
      for (const std::uint32_t run : ready) {
        data_ready(run, activity.rank);
      }
      next_compute(activity.rank);
      return;
    }
    case ActivityKind::kOptimizer:
      rank.computing = false;
      rank.times.back().compute += now_ - activity.start;
      rank.times.back().end = now_;
      ++rank.step;
      rank.piece = 0;
      next_compute(activity.rank);
      return;
    case ActivityKind::kEncode: {
      Run& run = runs_[activity.run];
      const GraphIndex& index = *run.index;
      rank.codec.busy = false;
      run.encoded[index.transfers[activity.transfer].first_slice + activity.slice] = true;
      signal(activity.run, activity.transfer, activity.slice, true);
      try_send(runs_[activity.run].physical[index.transfers[activity.transfer].channel]);
      for (const std::uint32_t sharer : runs_[activity.run].sharers[activity.transfer]) {
        try_send(runs_[activity.run].physical[index.transfers[sharer].channel]);
      }
      next_in_stream(rank.codec, activity.rank);
      return;
    }
    case ActivityKind::kOverhead: {
      const GraphIndex& index = *runs_[activity.run].index;
      const plan::Transfer& transfer = index.graph.transfers()[activity.transfer];
      const std::int64_t elements = plan::slice(index.transfers[activity.transfer].range,
                                                index.slice_elements, activity.slice)
                                        .size();
      const Bytes bytes = plan::encoded_size(index.graph.codecs()[transfer.codec], elements);
      network_->start(now_, bytes.count(), index.route(activity.transfer), 0,
                      begin(ActivityKind::kWire, activity.rank, activity.run, activity.transfer,
                            activity.slice));
      return;
    }
    case ActivityKind::kWire: {
      const GraphIndex& index = *runs_[activity.run].index;
      const std::uint32_t physical =
          runs_[activity.run].physical[index.transfers[activity.transfer].channel];
      channels_[physical].busy = false;
      const plan::Transfer& transfer = index.graph.transfers()[activity.transfer];
      if (!index.graph.codecs()[transfer.codec].is_lossy()) {
        signal(activity.run, activity.transfer, activity.slice, true);  // read to the end
      }
      queue_.push(
          now_ + topology::route_latency(topology_, index.route(activity.transfer)).picoseconds(),
          0,
          begin(ActivityKind::kLatency, activity.rank, activity.run, activity.transfer,
                activity.slice),
          0);
      count_down(activity.run, activity.rank);
      try_send(physical);
      return;
    }
    case ActivityKind::kLatency:
      arrived(activity.run, activity.transfer, activity.slice);
      return;
    case ActivityKind::kDecode:
      rank.codec.busy = false;
      signal(activity.run, activity.transfer, activity.slice, false);
      next_in_stream(rank.codec, activity.rank);
      return;
    case ActivityKind::kReduce:
      rank.reduce.busy = false;
      signal(activity.run, activity.transfer, activity.slice, false);
      next_in_stream(rank.reduce, activity.rank);
      return;
  }
}

void Engine::run() {
  for (std::size_t r = 0; r < ranks_.size(); ++r) {
    next_compute(Rank(r));
  }
  while (true) {
    const Time flow_end = network_->next_end(now_);
    const bool has_event = !queue_.empty();
    if (flow_end < 0 && !has_event) {
      break;
    }
    now_ =
        has_event && (flow_end < 0 || queue_.top().time <= flow_end) ? queue_.top().time : flow_end;
    for (const FlowTag tag : network_->take_ended(now_)) {
      finish(static_cast<std::uint32_t>(tag));
    }
    while (!queue_.empty() && queue_.top().time == now_) {
      finish(queue_.pop().a);
    }
  }
  for (const RankState& rank : ranks_) {
    if (rank.step < rank.steps.size()) {
      fail_stuck();
    }
  }
}

void Engine::fail_stuck() const {
  for (const Run& run : runs_) {
    const GraphIndex& index = *run.index;
    for (std::size_t t = 0; t < index.transfers.size(); ++t) {
      const TransferInfo& info = index.transfers[t];
      if (run.slices_done[t][1] < info.slices) {
        const plan::Transfer& transfer = index.graph.transfers()[t];
        const std::uint32_t slice = run.slices_done[t][1];
        throw SimulationError(fmt::format(
            "the simulation can never end: {} waits for transfer {} (rank {} to rank {}), whose "
            "slice {} {}",
            run.name, t, transfer.src.value(), transfer.dst.value(), slice,
            run.pending[info.first_slice + slice] > 0
                ? fmt::format("waits for {} dependencies that are never met",
                              run.pending[info.first_slice + slice])
                : std::string("is behind another one in its channel that never leaves")));
      }
    }
  }
  throw SimulationError("the simulation can never end: a rank waits, but no transfer is open");
}

std::string Engine::describe(const Activity& a) const {
  const std::string rank = fmt::format("rank {}", a.rank.value());
  switch (a.kind) {
    case ActivityKind::kForward:
      return rank + " forward";
    case ActivityKind::kBackward:
      return rank + " backward";
    case ActivityKind::kOptimizer:
      return rank + " optimiser";
    default:
      break;
  }
  const Run& run = runs_[a.run];
  const plan::Transfer& transfer = run.index->graph.transfers()[a.transfer];
  const std::string pair =
      fmt::format("{}: rank {} → rank {}", run.name, transfer.src.value(), transfer.dst.value());
  switch (a.kind) {
    case ActivityKind::kEncode:
      return fmt::format("{}: rank {} encodes", run.name, transfer.src.value());
    case ActivityKind::kDecode:
      return fmt::format("{}: rank {} decodes", run.name, transfer.dst.value());
    case ActivityKind::kReduce:
      return fmt::format("{}: rank {} adds", run.name, transfer.dst.value());
    case ActivityKind::kOverhead:
      return pair + " message overhead";
    case ActivityKind::kLatency:
      return pair + " latency";
    default:
      break;
  }
  // The link that the slice waited for is the narrowest of its route.
  const topology::Route& route = run.index->route(a.transfer);
  const auto narrowest = std::min_element(route.begin(), route.end(), [&](LinkId x, LinkId y) {
    return topology_.link(x).bandwidth < topology_.link(y).bandwidth;
  });
  return narrowest == route.end() ? pair : pair + " on " + topology_.link_name(*narrowest);
}

std::string Engine::track(const Activity& a) const {
  switch (a.kind) {
    case ActivityKind::kForward:
    case ActivityKind::kBackward:
    case ActivityKind::kOptimizer:
      return fmt::format("rank {} compute", a.rank.value());
    case ActivityKind::kEncode:
    case ActivityKind::kDecode:
      return fmt::format("rank {} codec", a.rank.value());
    case ActivityKind::kReduce:
      return fmt::format("rank {} reduce", a.rank.value());
    default:
      return fmt::format("rank {} network", a.rank.value());
  }
}

std::vector<Bytes> Engine::link_bytes(std::uint32_t first_run, std::uint32_t end_run) const {
  std::vector<Bytes> bytes(topology_.link_count());
  for (std::uint32_t r = first_run; r < end_run; ++r) {
    const GraphIndex& index = *runs_[r].index;
    for (std::size_t t = 0; t < index.transfers.size(); ++t) {
      const TransferInfo& info = index.transfers[t];
      const plan::Codec& codec = index.graph.codecs()[index.graph.transfers()[t].codec];
      Bytes sum;
      for (std::uint32_t k = 0; k < info.slices; ++k) {
        sum += plan::encoded_size(codec, plan::slice(info.range, index.slice_elements, k).size());
      }
      for (const LinkId link : index.route(static_cast<std::uint32_t>(t))) {
        bytes[link.index()] += sum;
      }
    }
  }
  return bytes;
}

}  // namespace rackrail::sim
