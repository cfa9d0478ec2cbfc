#include "plan/msccl/from_graph.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <tuple>
#include <utility>

#include "plan/equal_chunks.hpp"

namespace rackrail::plan::msccl {

namespace {

/// A step of one GPU.
struct StepId {
  int block = -1;
  int step = -1;
};

class Writer {
 public:
  explicit Writer(const TransferGraph& graph)
      : graph_(graph),
        layout_(graph, "MSCCL"),
        sends_(graph.transfers().size()),
        receives_(graph.transfers().size()),
        last_sum_(graph.rank_count()) {}

  Program write() {
    program_.name = graph_.name();
    program_.collective = graph_.collective();
    program_.chunks = layout_.total();
    // An all-gather's executor puts each input into its place; the others work on the input.
    program_.is_out_of_place = graph_.collective() == Collective::kAllGather;
    program_.gpus.resize(graph_.rank_count());
    for (Gpu& gpu : program_.gpus) {
      (buffer() == Buffer::kInput ? gpu.input_chunks : gpu.output_chunks) = layout_.total();
    }
    for (std::uint32_t t = 0; t < graph_.transfers().size(); ++t) {
      add(TransferId(t));
    }
    return std::move(program_);
  }

 private:
  Buffer buffer() const {
    return graph_.collective() == Collective::kAllGather ? Buffer::kOutput : Buffer::kInput;
  }

  /// Of a transfer: its chunks as runs that are contiguous in the program, none longer than a step
  /// may be.
  std::vector<UnitRange> runs(const Transfer& transfer) const {
    std::vector<std::uint32_t> chunks(transfer.chunk_count);
    std::iota(chunks.begin(), chunks.end(), transfer.chunk_begin);
    return layout_.runs(chunks, kMostCount);
  }

  /// The block of a connection that still has room for so many steps; the next channel's if none.
  int block_of(std::uint32_t from, std::uint32_t to, bool is_sender, std::size_t steps) {
    auto& [channel, blocks] = connections_[{from, to}];
    const bool is_full = channel < 0 || room_used(from, blocks.first) + steps > kMostSteps ||
                         room_used(to, blocks.second) + steps > kMostSteps;
    if (is_sender && is_full) {
      do {
        ++channel;
      } while (channel < kMostChannels && (blocks_of_[{from, channel, true}] == kMostPeers ||
                                           blocks_of_[{to, channel, false}] == kMostPeers));
      if (channel >= kMostChannels) {
        refuse_schedule(graph_,
                        fmt::format("more steps and peers of ranks {} and {} than {} channels take",
                                    from, to, kMostChannels),
                        "fewer: a plan with larger pieces, or another --schedule");
      }
      ++blocks_of_[{from, channel, true}];
      ++blocks_of_[{to, channel, false}];
      program_.channels = std::max(program_.channels, channel + 1);
      blocks = {new_block(from, static_cast<int>(to), -1, channel),
                new_block(to, -1, static_cast<int>(from), channel)};
    }
    return is_sender ? blocks.first : blocks.second;
  }

  std::size_t room_used(std::uint32_t gpu, int block) const {
    return program_.gpus[gpu].blocks[static_cast<std::size_t>(block)].steps.size();
  }

  int new_block(std::uint32_t gpu, int send_to, int receive_from, int channel) {
    std::vector<ThreadBlock>& blocks = program_.gpus[gpu].blocks;
    blocks.push_back({send_to, receive_from, channel, {}});
    return static_cast<int>(blocks.size()) - 1;
  }

  /// Appends a step that waits for others of its GPU.
  StepId append(std::uint32_t gpu, int block, Step step, const std::map<int, int>& waits) {
    std::vector<ThreadBlock>& blocks = program_.gpus[gpu].blocks;
    std::vector<Step>& steps = blocks[static_cast<std::size_t>(block)].steps;
    std::size_t left = waits.size();
    for (const auto& [other, wanted] : waits) {
      blocks[static_cast<std::size_t>(other)].steps[static_cast<std::size_t>(wanted)].is_wanted =
          true;
      Step& waiting = --left == 0 ? step : steps.emplace_back();
      waiting.wanted_block = other;
      waiting.wanted_step = wanted;
    }
    steps.push_back(step);
    return {block, static_cast<int>(steps.size()) - 1};
  }

  static void wait_for(std::map<int, int>& waits, const StepId& step, int own_block) {
    if (step.block >= 0 && step.block != own_block) {
      int& latest = waits.try_emplace(step.block, step.step).first->second;
      latest = std::max(latest, step.step);
    }
  }

  /// Upper limit of the steps that a transfer takes at one end: its runs and what they wait for.
  std::size_t steps_of(TransferId id, std::size_t runs) const {
    return runs + graph_.dependencies(id).size() + runs;
  }

  void add(TransferId id) {
    const Transfer& transfer = graph_.transfer(id);
    const std::uint32_t from = transfer.src.value();
    const std::uint32_t to = transfer.dst.value();
    const std::vector<UnitRange> pieces = runs(transfer);
    const std::size_t steps = steps_of(id, pieces.size());
    if (steps > kMostSteps) {
      refuse_schedule(graph_, fmt::format("a transfer of {} steps", steps),
                      fmt::format("at most {}", kMostSteps));
    }
    const int sender = block_of(from, to, true, steps);
    const int receiver = block_of(from, to, false, steps);
    std::map<int, int> waits;
    for (const TransferId other : graph_.dependencies(id)) {
      const Transfer& earlier = graph_.transfer(other);
      wait_for(waits, (earlier.dst == transfer.src ? receives_ : sends_)[other.index()], sender);
    }
    for (const auto& [offset, count] : pieces) {
      const Place place{buffer(), offset};
      Step step{StepType::kSend, place, place, count};
      sends_[id.index()] = append(from, sender, step, waits);
      waits.clear();
      const bool is_sum = transfer.op == TransferOp::kReduce;
      step.type = is_sum ? StepType::kReceiveReduceCopy : StepType::kReceive;
      std::map<int, int> sums;
      for (int unit = offset; is_sum && unit < offset + count; ++unit) {
        wait_for(sums, last_sum_[to][unit], receiver);
      }
      receives_[id.index()] = append(to, receiver, step, sums);
      for (int unit = offset; unit < offset + count; ++unit) {
        last_sum_[to][unit] = is_sum ? receives_[id.index()] : StepId{};
      }
    }
  }

  const TransferGraph& graph_;
  EqualChunks layout_;
  Program program_;
  /// By pair: the channel in use, and its blocks at both ends.
  struct Connection {
    int channel = -1;
    std::pair<int, int> blocks;
  };
  std::map<std::pair<std::uint32_t, std::uint32_t>, Connection> connections_;
  /// By rank, channel and whether they send.
  std::map<std::tuple<std::uint32_t, int, bool>, int> blocks_of_;
  std::vector<StepId> sends_;                    // by transfer: its last step
  std::vector<StepId> receives_;                 // likewise
  std::vector<std::map<int, StepId>> last_sum_;  // by rank and place
};

}  // namespace

Program from_graph(const TransferGraph& graph) {
  require_no_codecs(graph);
  if (!graph.mutual_sums().empty()) {
    refuse_schedule(graph, "sums in which both sides add",
                    "another family: MSCCL adds in no fixed order");
  }
  return Writer(graph).write();
}

}  // namespace rackrail::plan::msccl
