#include "plan/msccl/step_order.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <queue>
#include <tuple>

#include "base/error.hpp"

namespace rackrail::plan::msccl {

namespace {

constexpr std::size_t kMostClocks = std::size_t{1} << 27U;  // half a gigabyte

}  // namespace

StepOrder::StepOrder(const Program& program, const std::string& file)
    : program_(program), file_(file) {
  number_steps();
  match_messages();
  order_steps();
  set_clocks();
}

const Step& StepOrder::step(std::size_t index) const {
  const StepPlace& at = places_[index];
  return program_.gpus[at.gpu].blocks[at.block].steps[at.step];
}

std::string StepOrder::name(std::size_t index) const {
  const StepPlace& at = places_[index];
  return fmt::format("gpu {}, tb {}, step {}", at.gpu, at.block, at.step);
}

std::size_t StepOrder::index_of(std::size_t gpu, std::size_t block, std::size_t step) const {
  return first_[gpu][block] + step;
}

std::size_t StepOrder::previous(std::size_t index) const {
  return places_[index].step == 0 ? kNoStep : index - 1;
}

std::size_t StepOrder::wanted(std::size_t index) const {
  const Step& one = step(index);
  return one.wanted_block < 0
             ? kNoStep
             : index_of(places_[index].gpu, static_cast<std::size_t>(one.wanted_block),
                        static_cast<std::size_t>(one.wanted_step));
}

void StepOrder::number_steps() {
  std::size_t clocks = 0;
  for (std::uint32_t g = 0; g < program_.gpus.size(); ++g) {
    first_.emplace_back();
    const std::vector<ThreadBlock>& blocks = program_.gpus[g].blocks;
    for (std::uint32_t b = 0; b < blocks.size(); ++b) {
      first_.back().push_back(places_.size());
      for (std::uint32_t s = 0; s < blocks[b].steps.size(); ++s) {
        places_.push_back({g, b, s});
        clock_begin_.push_back(clocks);
        clocks += blocks.size();
      }
    }
  }
  if (clocks > kMostClocks) {
    throw ConfigError(ErrorContext{file_, "", fmt::format("{} steps times blocks", clocks),
                                   fmt::format("at most {}", kMostClocks)});
  }
  clocks_.resize(clocks);
  receiver_.assign(places_.size(), kNoStep);
  sender_.assign(places_.size(), kNoStep);
}

void StepOrder::match_messages() {
  struct Connection {
    std::vector<std::size_t> sends;
    std::vector<std::size_t> receives;
  };
  std::map<std::tuple<int, int, int>, Connection> connections;  // from, to, channel
  const auto add = [&](std::vector<std::size_t>& steps, std::size_t index) {
    if (!steps.empty() && places_[steps.front()].block != places_[index].block) {
      throw ConfigError(ErrorContext{
          file_, name(index),
          fmt::format("a second thread block on the connection of {}", name(steps.front())),
          "one for each peer, channel and direction"});
    }
    steps.push_back(index);
  };
  for (std::size_t i = 0; i < places_.size(); ++i) {
    const StepPlace& at = places_[i];
    const ThreadBlock& block = program_.gpus[at.gpu].blocks[at.block];
    const int gpu = static_cast<int>(at.gpu);
    if (sends(step(i).type)) {
      add(connections[{gpu, block.send_to, block.channel}].sends, i);
    }
    if (receives(step(i).type)) {
      add(connections[{block.receive_from, gpu, block.channel}].receives, i);
    }
  }
  for (const auto& [ends, connection] : connections) {
    const auto& [sent, received] = std::tie(connection.sends, connection.receives);
    const std::size_t met = std::min(sent.size(), received.size());
    if (sent.size() != received.size()) {
      const bool has_send = sent.size() > met;
      throw ConfigError(ErrorContext{
          file_, name(has_send ? sent[met] : received[met]),
          has_send ? fmt::format("a send that gpu {} does not receive", std::get<1>(ends))
                   : fmt::format("a receive that gpu {} does not send", std::get<0>(ends)),
          fmt::format("as many sends as receives on channel {}", std::get<2>(ends))});
    }
    for (std::size_t k = 0; k < met; ++k) {
      if (step(sent[k]).count != step(received[k]).count) {
        throw ConfigError(ErrorContext{
            file_, name(received[k]), fmt::format("cnt=\"{}\"", step(received[k]).count),
            fmt::format("{}, as {} sends", step(sent[k]).count, name(sent[k]))});
      }
      receiver_[sent[k]] = received[k];
      sender_[received[k]] = sent[k];
    }
  }
}

void StepOrder::order_steps() {
  std::vector<std::vector<std::size_t>> next(places_.size());
  std::vector<int> open(places_.size(), 0);
  for (std::size_t i = 0; i < places_.size(); ++i) {
    for (const std::size_t before : {previous(i), wanted(i), sender_[i]}) {
      if (before != kNoStep) {
        next[before].push_back(i);
        ++open[i];
      }
    }
  }
  std::queue<std::size_t> ready;
  for (std::size_t i = 0; i < places_.size(); ++i) {
    if (open[i] == 0) {
      ready.push(i);
    }
  }
  while (!ready.empty()) {
    const std::size_t now = ready.front();
    ready.pop();
    runnable_.push_back(now);
    for (const std::size_t after : next[now]) {
      if (--open[after] == 0) {
        ready.push(after);
      }
    }
  }
  if (runnable_.size() < places_.size()) {
    const auto stuck = static_cast<std::size_t>(
        std::ranges::find_if(open, [](int count) { return count > 0; }) - open.begin());
    throw ConfigError(ErrorContext{file_, name(stuck), "a wait that never ends",
                                   "steps that do not wait for each other in a circle"});
  }
}

void StepOrder::set_clocks() {
  for (const std::size_t i : runnable_) {
    const std::size_t blocks = program_.gpus[places_[i].gpu].blocks.size();
    for (const std::size_t before : {previous(i), wanted(i)}) {
      if (before == kNoStep) {
        continue;
      }
      for (std::size_t b = 0; b < blocks; ++b) {
        std::uint32_t& clock = clocks_[clock_begin_[i] + b];
        clock = std::max(clock, clocks_[clock_begin_[before] + b]);
      }
      std::uint32_t& of_block = clocks_[clock_begin_[i] + places_[before].block];
      of_block = std::max(of_block, places_[before].step + 1);
    }
  }
}

bool StepOrder::is_before(std::size_t first, std::size_t second) const {
  return clocks_[clock_begin_[second] + places_[first].block] > places_[first].step;
}

}  // namespace rackrail::plan::msccl
