#include "tests/support/mscclpp_interpreter.hpp"

#include <algorithm>
#include <array>

namespace rackrail::test {

namespace {

using nlohmann::json;

/// The first of slice `index` of `size` units; the first slices are one longer where needed.
std::size_t slice_begin(std::size_t size, std::size_t index, std::size_t slices) {
  return index * (size / slices) + std::min(index, size % slices);
}

}  // namespace

/// Whether all accesses of a GPU's buffers are known to be done when its blocks have ended.
bool MscclppInterpreter::is_quiet(const Gpu& gpu) const {
  Clock end(actors_.size(), 0);
  for (const Block& block : gpu.blocks) {
    learn(end, actors_[block.actor].known);
    learn(end, block.learned);
    end[block.actor] = actors_[block.actor].now;
  }
  const auto is_known = [&](const std::pair<std::size_t, std::uint32_t>& access) {
    return end[access.first] >= access.second;
  };
  return std::ranges::all_of(
      std::array{&gpu.input, &gpu.output, &gpu.scratch}, [&](const std::vector<Cell>* cells) {
        return std::ranges::all_of(*cells, [&](const Cell& cell) {
          return is_known(cell.writer) && std::ranges::all_of(cell.readers, is_known);
        });
      });
}

void MscclppInterpreter::set_input(std::size_t rank, const Numbers& numbers) {
  const json none;
  const Span to = span(rank, 'i', 0, gpus_[rank].input_chunks, none);
  for (std::size_t i = 0; i < to.count; ++i) {
    (*to.cells)[to.begin + i].value = numbers.at(i);
  }
}

MscclppInterpreter::Numbers MscclppInterpreter::output(std::size_t rank) {
  const json none;
  const Span from = span(rank, 'o', 0, gpus_[rank].output_chunks, none);
  Numbers numbers;
  for (std::size_t i = 0; i < from.count; ++i) {
    numbers.push_back((*from.cells)[from.begin + i].value);
  }
  return numbers;
}

MscclppInterpreter::Span MscclppInterpreter::span(std::size_t g, char type, int index, int count,
                                                  const json& operation) {
  Gpu& gpu = gpus_.at(g);
  const int chunks =
      type == 'i' ? gpu.input_chunks : (type == 'o' ? gpu.output_chunks : gpu.scratch_chunks);
  require(index >= 0 && count >= 0 && index + count <= chunks, "chunks that are not there");
  Span span{.cells = type == 'i' ? &gpu.input : (type == 'o' ? &gpu.output : &gpu.scratch),
            .begin = static_cast<std::size_t>(index) * units_,
            .count = static_cast<std::size_t>(count) * units_};
  const bool is_gather = collective_ == "allgather";
  if (is_in_place_ && type != 's') {
    const std::size_t whole = is_gather ? gpu.output.size() : gpu.input.size();
    const std::size_t part = is_gather ? gpu.input.size() : gpu.output.size();
    span.cells = is_gather ? &gpu.output : &gpu.input;
    span.begin += part < whole && type == (is_gather ? 'i' : 'o') ? g * part : 0;
  }
  if (operation.contains("tbg_info")) {
    const std::size_t slice = operation["tbg_info"].at("tb_id");
    const std::size_t slices = operation["tbg_info"].at("tbg_size");
    const std::size_t begin = slice_begin(span.count, slice, slices);
    span.count = slice_begin(span.count, slice + 1, slices) - begin;
    span.begin += begin;
  }
  return span;
}

std::vector<MscclppInterpreter::Span> MscclppInterpreter::places(std::size_t gpu,
                                                                 const Block& block,
                                                                 const json& operation,
                                                                 const char* which) {
  std::vector<Span> spans;
  for (const json& place : operation.at(which)) {
    std::size_t rank = gpu;
    char type = 0;
    if (place.contains("buffer_id")) {
      const std::size_t id = place["buffer_id"];
      std::tie(rank, type) = block.buffers.at(operation.at("channel_type")).at(id);
    } else {
      type = place.at("type").get<std::string>().at(0);
    }
    spans.push_back(span(rank, type, place.at("index"), place.at("size"), operation));
  }
  return spans;
}

std::vector<MscclppInterpreter::Channel*> MscclppInterpreter::channels_of(const Block& block,
                                                                          const json& operation) {
  std::vector<Channel*> channels;
  for (const std::size_t id : operation.at("channel_ids")) {
    channels.push_back(block.channels.at(operation.at("channel_type")).at(id));
  }
  return channels;
}

void MscclppInterpreter::learn(Clock& clock, const Clock& more) {
  clock.resize(std::max(clock.size(), more.size()), 0);
  for (std::size_t a = 0; a < more.size(); ++a) {
    clock[a] = std::max(clock[a], more[a]);
  }
}

std::string MscclppInterpreter::run() {
  std::vector<std::pair<std::size_t, std::size_t>> turns;  // block; or SIZE_MAX and a channel
  for (std::size_t g = 0; g < gpus_.size(); ++g) {
    for (std::size_t b = 0; b < gpus_[g].blocks.size(); ++b) {
      turns.emplace_back(g, b);
    }
  }
  for (std::size_t c = 0; c < channels_.size(); ++c) {
    if (channels_[c].type == "port") {
      turns.emplace_back(SIZE_MAX, c);
    }
  }
  bool may_skip = true;
  while (problem_.empty()) {
    bool has_moved = false;
    std::ranges::shuffle(turns, random_);
    for (const auto& [g, i] : turns) {
      if (may_skip && random_() % 2 == 0) {
        continue;
      }
      const bool moved =
          g == SIZE_MAX ? try_nic(channels_[i]) : try_operation(g, gpus_[g].blocks[i]);
      has_moved = has_moved || moved;
    }
    if (!has_moved && !may_skip) {
      return problem_.empty() ? unfinished() : problem_;
    }
    may_skip = has_moved;
  }
  return problem_;
}

std::string MscclppInterpreter::unfinished() const {
  const bool is_left = std::ranges::any_of(
      channels_, [](const Channel& channel) { return !channel.signals.empty(); });
  if (is_left) {
    return "a signal that nobody awaits";
  }
  for (std::size_t g = 0; g < gpus_.size(); ++g) {
    for (std::size_t b = 0; b < gpus_[g].blocks.size(); ++b) {
      const Block& block = gpus_[g].blocks[b];
      if (block.next < block.operations.size()) {
        return "GPU " + std::to_string(g) + ", block " + std::to_string(b) + " waits for ever at " +
               std::to_string(block.next);
      }
    }
    for (const Semaphore& semaphore : gpus_[g].semaphores) {
      if (semaphore.value != semaphore.at_begin) {
        return "a semaphore ends with another value";
      }
    }
    if (!is_quiet(gpus_[g])) {
      return "GPU " + std::to_string(g) + " ends while its buffers may be in use";
    }
  }
  return "";
}

bool MscclppInterpreter::try_operation(std::size_t g, Block& block) {
  if (block.next == block.operations.size()) {
    return false;
  }
  const json& operation = block.operations[block.next];
  const std::string name = operation.at("name");
  const bool had_begun = block.has_begun;
  bool is_done = true;
  if (name == "nop") {
    synchronize(block);
  } else if (name == "signal" || name == "rlxsignal") {
    signal(block, operation);
  } else if (name == "wait" || name == "rlxwait") {
    is_done = try_wait(block, operation);
  } else if (name == "barrier") {
    is_done = try_barrier(gpus_[g], block, operation);
  } else if (name == "sem_acquire" || name == "sem_release") {
    is_done = try_semaphores(gpus_[g], block, operation, name == "sem_release");
  } else if (operation.value("channel_type", "") == "port") {
    is_done = try_port(g, block, operation, name);
  } else {
    move_data(g, block, operation, name);
  }
  block.next += is_done ? 1 : 0;
  return is_done || block.has_begun != had_begun;
}

void MscclppInterpreter::synchronize(Block& block) {
  Actor& actor = actors_[block.actor];
  actor.known[block.actor] = actor.now;
  learn(actor.known, block.learned);
}

void MscclppInterpreter::signal(const Block& block, const json& operation) {
  for (Channel* channel : channels_of(block, operation)) {
    if (channel->type == "port") {
      channel->requests.push_back({.is_signal = true, .known = actors_[block.actor].known});
    } else {
      channel->signals.push_back(actors_[block.actor].known);
    }
  }
}

bool MscclppInterpreter::try_wait(Block& block, const json& operation) {
  const std::vector<Channel*> channels = channels_of(block, operation);
  if (std::ranges::any_of(channels, [](Channel* c) { return c->back->signals.empty(); })) {
    return false;
  }
  for (Channel* channel : channels) {
    learn(block.learned, channel->back->signals.front());
    channel->back->signals.pop_front();
  }
  return true;
}

bool MscclppInterpreter::try_barrier(Gpu& gpu, Block& block, const json& operation) {
  Barrier& barrier = gpu.barriers[operation.at("barrier_id")];
  if (!block.has_begun) {
    synchronize(block);
    block.has_begun = true;
    block.passes = barrier.passes;
    learn(barrier.gathered, actors_[block.actor].known);
    if (++barrier.arrived == operation.at("num_threadblocks")) {
      barrier.opened = std::exchange(barrier.gathered, {});
      barrier.arrived = 0;
      ++barrier.passes;
    }
  }
  if (barrier.passes == block.passes) {
    return false;
  }
  block.has_begun = false;
  learn(actors_[block.actor].known, barrier.opened);
  return true;
}

bool MscclppInterpreter::try_semaphores(Gpu& gpu, Block& block, const json& operation,
                                        bool is_release) {
  const std::vector<std::size_t> ids = operation.at("semaphore_ids");
  if (!is_release &&
      std::ranges::any_of(ids, [&](std::size_t id) { return gpu.semaphores[id].value == 0; })) {
    return false;
  }
  for (const std::size_t id : ids) {
    Semaphore& semaphore = gpu.semaphores[id];
    if (is_release) {
      learn(semaphore.released, actors_[block.actor].known);
    } else {
      learn(block.learned, semaphore.released);
    }
    semaphore.value += is_release ? 1 : -1;
  }
  return true;
}

bool MscclppInterpreter::try_port(std::size_t g, Block& block, const json& operation,
                                  const std::string& name) {
  const std::vector<Channel*> channels = channels_of(block, operation);
  if (!block.has_begun && name != "flush") {
    require(name == "put" || name == "pws" || name == "pwsf", name + " over a port channel");
    const std::vector<Span> sources = places(g, block, operation, "src_buff");
    const std::vector<Span> targets = places(g, block, operation, "dst_buff");
    require(sources.size() == targets.size() && channels.size() == targets.size(),
            "a put with other numbers of places and channels");
    for (std::size_t i = 0; i < targets.size(); ++i) {
      channels[i]->requests.push_back({.source = sources[i],
                                       .target = targets[i],
                                       .is_put = true,
                                       .is_signal = name != "put",
                                       .known = actors_[block.actor].known});
    }
  }
  if (name == "put" || name == "pws") {
    return true;
  }
  block.has_begun = true;
  if (std::ranges::any_of(channels, [](Channel* c) { return !c->requests.empty(); })) {
    return false;
  }
  block.has_begun = false;
  for (const Channel* channel : channels) {
    learn(block.learned, actors_[channel->actor].known);
  }
  return true;
}

bool MscclppInterpreter::try_nic(Channel& channel) {
  if (channel.requests.empty()) {
    return false;
  }
  const Request request = std::move(channel.requests.front());
  channel.requests.pop_front();
  Actor& nic = actors_[channel.actor];
  learn(nic.known, request.known);
  if (request.is_put) {
    ++nic.now;
    copy(channel.actor, request.source, request.target);
    nic.known[channel.actor] = nic.now;
  }
  if (request.is_signal) {
    channel.signals.push_back(nic.known);
  }
  return true;
}

void MscclppInterpreter::move_data(std::size_t g, const Block& block, const json& operation,
                                   const std::string& name) {
  const std::vector<Span> sources = places(g, block, operation, "src_buff");
  const std::vector<Span> targets = places(g, block, operation, "dst_buff");
  ++actors_[block.actor].now;
  if (name == "put" || name == "get" || name == "copy") {
    require(sources.size() == targets.size(), name + " with unequal numbers of places");
    for (std::size_t i = 0; i < sources.size(); ++i) {
      copy(block.actor, sources[i], targets[i]);
    }
    return;
  }
  require(name.starts_with("r") && operation.at("reduce_op") == "sum", name + " over memory");
  for (const std::vector<Span>& spans : {sources, targets}) {
    for (const Span& span : spans) {
      require(span.count == sources.front().count, "a sum of unequal places");
    }
  }
  for (std::size_t i = 0; i < sources.front().count; ++i) {
    std::int64_t sum = 0;
    for (const Span& source : sources) {
      sum += read(block.actor, source, i);
    }
    for (const Span& target : targets) {
      write(block.actor, target, i, sum);
    }
  }
}

void MscclppInterpreter::copy(std::size_t actor, const Span& source, const Span& target) {
  require(source.count == target.count, "a put between unequal places");
  for (std::size_t i = 0; i < source.count; ++i) {
    write(actor, target, i, read(actor, source, i));
  }
}

/// An operation's own accesses of a place are those of one thread.
void MscclppInterpreter::check_order(std::size_t actor,
                                     const std::pair<std::size_t, std::uint32_t>& earlier) {
  const auto& [who, when] = earlier;
  const bool is_own = who == actor && when == actors_[actor].now;
  if (!is_own && actors_[actor].known[who] < when && problem_.empty()) {
    problem_ = "a race of actors " + std::to_string(who) + " and " + std::to_string(actor);
  }
}

std::int64_t MscclppInterpreter::read(std::size_t actor, const Span& span, std::size_t i) {
  Cell& cell = (*span.cells)[span.begin + i];
  check_order(actor, cell.writer);
  cell.readers.emplace_back(actor, actors_[actor].now);
  return cell.value;
}

void MscclppInterpreter::write(std::size_t actor, const Span& span, std::size_t i,
                               std::int64_t value) {
  Cell& cell = (*span.cells)[span.begin + i];
  check_order(actor, cell.writer);
  for (const auto& reader : cell.readers) {
    check_order(actor, reader);
  }
  cell.readers.clear();
  cell.writer = {actor, actors_[actor].now};
  cell.value = value;
}

std::string mscclpp_problem(const std::string& text, int units) {
  const json plan = json::parse(text);
  const json& gpus = plan.at("gpus");
  const auto size_of = [&](const char* chunks) {
    return gpus[0].at(chunks).get<std::size_t>() * static_cast<std::size_t>(units);
  };
  const bool is_gather = plan.at("collective") == "allgather";
  const std::size_t inputs = size_of("input_chunks");
  std::vector<MscclppInterpreter::Numbers> given(gpus.size());
  MscclppInterpreter::Numbers whole(is_gather ? inputs * gpus.size() : inputs, 0);
  for (std::size_t r = 0; r < gpus.size(); ++r) {
    for (std::size_t c = 0; c < inputs; ++c) {
      given[r].push_back(static_cast<std::int64_t>((r + 1) * (r + 1) * 1000 + 7 * c + r));
      whole[is_gather ? r * inputs + c : c] += given[r].back();
    }
  }
  const std::size_t outputs = size_of("output_chunks");
  for (std::uint32_t seed = 0; seed < 3; ++seed) {
    MscclppInterpreter interpreter(text, units, seed);
    for (std::size_t r = 0; r < gpus.size(); ++r) {
      interpreter.set_input(r, given[r]);
    }
    if (std::string problem = interpreter.run(); !problem.empty()) {
      return problem;
    }
    for (std::size_t r = 0; r < gpus.size(); ++r) {
      const std::size_t first = plan.at("collective") == "reducescatter" ? r * outputs : 0;
      const auto begin = whole.begin() + static_cast<std::ptrdiff_t>(first);
      if (!std::ranges::equal(
              interpreter.output(r),
              std::ranges::subrange(begin, begin + static_cast<std::ptrdiff_t>(outputs)))) {
        return "rank " + std::to_string(r) + " ends with other numbers";
      }
    }
  }
  return "";
}

}  // namespace rackrail::test
