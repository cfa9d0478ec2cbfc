// Runs an MSCCL program on numbers: an interpreter of the format that knows nothing of transfer
// graphs. Blocks take turns at random, and a connection holds few messages, so that an order which
// the program does not enforce shows in some of the runs, and a deadlock in all.
#pragma once

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdint>
#include <deque>
#include <map>
#include <random>
#include <tuple>
#include <vector>

#include "plan/msccl/program.hpp"

namespace rackrail::test {

class MscclInterpreter {
 public:
  using Numbers = std::vector<std::int64_t>;

  /// `inputs` by rank, as many numbers as the collective's input has chunks; `room`: messages that
  /// a connection holds.
  MscclInterpreter(const plan::msccl::Program& program, const std::vector<Numbers>& inputs,
                   std::uint32_t seed, std::size_t room)
      : program_(program), random_(seed), room_(room) {
    for (std::size_t g = 0; g < program.gpus.size(); ++g) {
      const plan::msccl::Gpu& gpu = program.gpus[g];
      // In place: the larger of input and output is the buffer, the other a part of it.
      const std::size_t size = static_cast<std::size_t>(program.chunks);
      Memory memory;
      memory.whole.assign(size, kUnset);
      memory.input.assign(size, kUnset);
      memory.scratch.assign(static_cast<std::size_t>(gpu.scratch_chunks), kUnset);
      const std::size_t first = is_gather() ? g * part() : 0;
      if (program.is_in_place) {
        std::ranges::copy(inputs[g], memory.whole.begin() + static_cast<std::ptrdiff_t>(first));
      } else {
        std::ranges::copy(inputs[g], memory.input.begin());
      }
      memories_.push_back(std::move(memory));
      next_.emplace_back(gpu.blocks.size(), 0);
    }
  }

  /// Whether all steps ran.
  bool run() {
    std::vector<std::pair<std::size_t, std::size_t>> blocks;
    for (std::size_t g = 0; g < program_.gpus.size(); ++g) {
      for (std::size_t b = 0; b < program_.gpus[g].blocks.size(); ++b) {
        blocks.emplace_back(g, b);
      }
    }
    for (bool has_moved = true; has_moved;) {
      has_moved = false;
      std::ranges::shuffle(blocks, random_);
      for (const auto& [g, b] : blocks) {
        has_moved = try_step(g, b) || has_moved;
      }
    }
    for (const auto& [g, b] : blocks) {
      if (next_[g][b] < program_.gpus[g].blocks[b].steps.size()) {
        return false;
      }
    }
    return true;
  }

  /// What the rank ends with.
  Numbers output(std::size_t rank) const {
    const Numbers& whole = memories_[rank].whole;
    if (program_.collective != plan::Collective::kReduceScatter || !program_.is_in_place) {
      return whole;
    }
    const auto first = whole.begin() + static_cast<std::ptrdiff_t>(rank * part());
    return {first, first + static_cast<std::ptrdiff_t>(part())};
  }

 private:
  static constexpr std::int64_t kUnset = INT64_MIN / 4;

  struct Memory {
    Numbers whole;  ///< the output; in place the input, too
    Numbers input;
    Numbers scratch;
  };

  bool is_gather() const { return program_.collective == plan::Collective::kAllGather; }
  std::size_t part() const {
    return static_cast<std::size_t>(program_.chunks) / program_.gpus.size();
  }

  std::int64_t& at(std::size_t gpu, const plan::msccl::Place& place, int i) {
    using plan::msccl::Buffer;
    Memory& memory = memories_[gpu];
    auto index = static_cast<std::size_t>(place.offset + i);
    if (place.buffer == Buffer::kScratch) {
      return memory.scratch.at(index);
    }
    const bool is_input = place.buffer == Buffer::kInput;
    if (!program_.is_in_place) {
      return (is_input ? memory.input : memory.whole).at(index);
    }
    const bool is_part = is_gather()
                             ? is_input
                             : program_.collective == plan::Collective::kReduceScatter && !is_input;
    return memory.whole.at(is_part ? gpu * part() + index : index);
  }

  bool try_step(std::size_t g, std::size_t b) {
    using plan::msccl::StepType;
    const plan::msccl::ThreadBlock& block = program_.gpus[g].blocks[b];
    if (next_[g][b] == block.steps.size()) {
      return false;
    }
    const plan::msccl::Step& step = block.steps[next_[g][b]];
    if (step.wanted_block >= 0 && next_[g][static_cast<std::size_t>(step.wanted_block)] <=
                                      static_cast<std::size_t>(step.wanted_step)) {
      return false;
    }
    auto* in = receives(step.type) ? &wire(block.receive_from, static_cast<int>(g), block.channel)
                                   : nullptr;
    auto* out =
        sends(step.type) ? &wire(static_cast<int>(g), block.send_to, block.channel) : nullptr;
    if ((in != nullptr && in->empty()) || (out != nullptr && out->size() >= room_)) {
      return false;
    }
    Numbers came = in != nullptr ? in->front() : Numbers();
    if (in != nullptr) {
      in->pop_front();
    }
    Numbers sent;
    for (int i = 0; i < step.count; ++i) {
      const auto k = static_cast<std::size_t>(i);
      switch (step.type) {
        case StepType::kNop:
          break;
        case StepType::kSend:
          sent.push_back(at(g, step.source, i));
          break;
        case StepType::kReceive:
          at(g, step.target, i) = came.at(k);
          break;
        case StepType::kCopy:
          at(g, step.target, i) = at(g, step.source, i);
          break;
        case StepType::kReduce:
          at(g, step.target, i) += at(g, step.source, i);
          break;
        case StepType::kReceiveReduceCopy:
          at(g, step.target, i) = at(g, step.source, i) + came.at(k);
          break;
        case StepType::kReceiveCopySend:
          at(g, step.target, i) = came.at(k);
          sent.push_back(came.at(k));
          break;
        case StepType::kReceiveReduceSend:
          sent.push_back(at(g, step.source, i) + came.at(k));
          break;
        case StepType::kReceiveReduceCopySend:
          at(g, step.target, i) = at(g, step.source, i) + came.at(k);
          sent.push_back(at(g, step.target, i));
          break;
      }
    }
    if (out != nullptr) {
      out->push_back(std::move(sent));
    }
    ++next_[g][b];
    return true;
  }

  std::deque<Numbers>& wire(int from, int to, int channel) { return wires_[{from, to, channel}]; }

  const plan::msccl::Program& program_;
  std::mt19937 random_;
  std::size_t room_;
  std::vector<Memory> memories_;
  std::vector<std::vector<std::size_t>> next_;  // by GPU and block
  std::map<std::tuple<int, int, int>, std::deque<Numbers>> wires_;
};

/// Runs it in several orders on numbers of which each sum is another, and checks every output.
/// Connections of NCCL hold two chunks at least; `room` is what they hold here.
inline void check_msccl_result(const plan::msccl::Program& program, std::size_t room = 2) {
  const std::size_t ranks = program.gpus.size();
  const auto chunks = static_cast<std::size_t>(program.chunks);
  const bool is_gather = program.collective == plan::Collective::kAllGather;
  const std::size_t part = chunks / ranks;
  std::vector<std::vector<std::int64_t>> inputs(ranks);
  std::vector<std::int64_t> whole(chunks, 0);
  for (std::size_t r = 0; r < ranks; ++r) {
    for (std::size_t c = 0; c < (is_gather ? part : chunks); ++c) {
      inputs[r].push_back(static_cast<std::int64_t>((r + 1) * (r + 1) * 1000 + 7 * c + r));
      whole[is_gather ? r * part + c : c] += inputs[r].back();
    }
  }
  for (std::uint32_t seed = 0; seed < 8; ++seed) {
    MscclInterpreter interpreter(program, inputs, seed, room);
    REQUIRE(interpreter.run());
    for (std::size_t r = 0; r < ranks; ++r) {
      const auto first = whole.begin() + static_cast<std::ptrdiff_t>(r * part);
      const bool is_part = program.collective == plan::Collective::kReduceScatter;
      const std::vector<std::int64_t> wanted =
          is_part ? std::vector<std::int64_t>(first, first + static_cast<std::ptrdiff_t>(part))
                  : whole;
      std::vector<std::int64_t> is = interpreter.output(r);
      is.resize(wanted.size());
      if (is != wanted) {
        FAIL("rank " << r << " ends with other numbers, seed " << seed);
      }
    }
  }
}

}  // namespace rackrail::test
