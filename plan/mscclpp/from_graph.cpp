#include "plan/mscclpp/from_graph.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "plan/equal_chunks.hpp"
#include "plan/mscclpp/block_writer.hpp"
#include "plan/mscclpp/messages.hpp"

namespace rackrail::plan::mscclpp {

namespace {

std::size_t divided_up(std::size_t number, std::size_t by) { return (number + by - 1) / by; }

/// A limit of the executor that a thread block exceeds.
struct Excess {
  std::string found;
  std::string expected;
};

std::optional<Excess> excess_of(const BlockDraft& block, std::size_t rank) {
  const auto check = [&](std::size_t found, std::size_t most,
                         const char* what) -> std::optional<Excess> {
    if (found <= most) {
      return std::nullopt;
    }
    return Excess{fmt::format("{} {} in a thread block of rank {}", found, what, rank),
                  fmt::format("at most {}, as MSCCL++'s executor has them", most)};
  };
  std::optional<Excess> excess = check(block.operations.size(), kMostOperations, "operations");
  for (const ChannelType type : kChannelTypes) {
    if (!excess) {
      excess = check(of(block.peers, type).size(), kMostChannels, "channels");
    }
    if (!excess) {
      excess = check(of(block.buffers, type).size(), kMostBuffers, "buffers of other ranks");
    }
  }
  return excess;
}

class Writer {
 public:
  Writer(const TransferGraph& graph, std::span<const std::uint32_t> hosts)
      : graph_(graph), hosts_(hosts), units_(graph, "MSCCL++") {
    for (std::uint32_t c = 0; c < graph.chunk_count(); ++c) {
      if (units_.count(c) > 0) {
        chunks_.push_back(c);
      }
    }
    std::ranges::sort(chunks_, {}, [&](std::uint32_t chunk) { return units_.begin(chunk); });
  }

  Program write() {
    // Fewer chunks to a group while one exceeds a limit.
    const std::size_t fewest = divided_up(chunks_.size(), kMostBlocks);
    for (std::size_t chunks = divided_up(chunks_.size(), kUsualBlocks); chunks > 0; --chunks) {
      const std::optional<Excess> excess = try_groups(chunks);
      if (!excess) {
        break;
      }
      if (chunks <= fewest) {
        refuse_schedule(graph_, excess->found,
                        excess->expected + ": plan with --schedule of a family with fewer " +
                            "messages or peers to a rank");
      }
    }
    add_scratch();
    return std::move(program_);
  }

 private:
  Buffer buffer() const {
    return graph_.collective() == Collective::kAllGather ? Buffer::kOutput : Buffer::kInput;
  }

  /// Writes all with groups of so many chunks.
  std::optional<Excess> try_groups(std::size_t chunks) {
    program_.gpus.assign(graph_.rank_count(), {});
    scratch_.assign(graph_.rank_count(), 0);
    const std::size_t groups = divided_up(chunks_.size(), chunks);
    slices_ = chunks == 1 ? static_cast<int>(std::max<std::size_t>(1, kUsualBlocks / groups)) : 1;
    for (std::size_t g = 0; g < groups; ++g) {
      const std::size_t begin = g * chunks;
      const Group group(graph_, units_,
                        std::span(chunks_).subspan(begin, std::min(chunks, chunks_.size() - begin)),
                        hosts_, scratch_);
      if (const std::optional<std::uint32_t> rank = group.crowded_rank()) {
        return Excess{fmt::format("more than {} operations in a thread block of rank {}",
                                  kMostOperations, *rank),
                      fmt::format("at most {}, as MSCCL++'s executor has them", kMostOperations)};
      }
      for (std::size_t rank = 0; rank < graph_.rank_count(); ++rank) {
        const BlockDraft draft = write_block(group, Rank(rank), hosts_, buffer());
        if (const std::optional<Excess> excess = excess_of(draft, rank)) {
          return excess;
        }
        for (int slice = 0; slice < slices_ && !draft.operations.empty(); ++slice) {
          append(program_.gpus[rank], draft, slice);
        }
      }
    }
    return std::nullopt;
  }

  /// Blocks have channels of their own, so those of a pair meet in the order of blocks.
  void append(Gpu& gpu, const BlockDraft& draft, int slice) const {
    ThreadBlock block{.operations = draft.operations, .slice = slice, .slices = slices_};
    for (const ChannelType type : kChannelTypes) {
      for (const int peer : of(draft.peers, type)) {
        of(block.channels, type).push_back(static_cast<int>(of(gpu.channels, type).size()));
        of(gpu.channels, type).push_back(peer);
      }
      for (const RemoteBuffer& buffer : of(draft.buffers, type)) {
        const auto found = std::ranges::find(gpu.remote_buffers, buffer);
        of(block.buffers, type).push_back(static_cast<int>(found - gpu.remote_buffers.begin()));
        if (found == gpu.remote_buffers.end()) {
          gpu.remote_buffers.push_back(buffer);
        }
      }
    }
    gpu.blocks.push_back(std::move(block));
  }

  void add_scratch() {
    const int total = units_.total();
    const auto ranks = static_cast<int>(graph_.rank_count());
    int largest = total;
    for (std::size_t rank = 0; rank < graph_.rank_count(); ++rank) {
      Gpu& gpu = program_.gpus[rank];
      gpu.input_chunks = graph_.collective() == Collective::kAllGather ? total / ranks : total;
      gpu.output_chunks = graph_.collective() == Collective::kReduceScatter ? total / ranks : total;
      gpu.scratch_chunks = scratch_[rank];
      largest = std::max(largest, scratch_[rank]);
    }
    const auto buffer = static_cast<std::uint64_t>(total);
    const std::uint64_t offsets = UINT32_MAX / kAlignment / static_cast<std::uint64_t>(largest);
    program_.collective = graph_.collective();
    program_.least_bytes = buffer * kAlignment * static_cast<std::uint64_t>(slices_);
    program_.most_bytes = buffer * kAlignment * offsets;
  }

  const TransferGraph& graph_;
  std::span<const std::uint32_t> hosts_;
  EqualChunks units_;
  std::vector<std::uint32_t> chunks_;  // that have elements, in the order of their places
  std::vector<int> scratch_;           // by rank: units
  int slices_ = 1;
  Program program_;
};

}  // namespace

Program from_graph(const TransferGraph& graph, std::span<const std::uint32_t> hosts,
                   const std::string& name) {
  require_no_codecs(graph);
  Program program = Writer(graph, hosts).write();
  program.name = name;
  return program;
}

}  // namespace rackrail::plan::mscclpp
