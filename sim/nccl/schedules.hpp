// NCCL's all-reduce algorithms as schedules of the simulator.
//
// Channels. NCCL runs the same algorithm in several channels (thread blocks) at once, each on its
// share of the buffer and of the links. They are identical, so the schedules move the sum of all
// channels; chunk sizes are those of NCCL's channels, multiplied. Rails are the same, one level
// down (machine.hpp).
//
// Ring (Simple): the buffer is cut into loops of channels · ranks · 2 MiB; in a loop each rank's
// chunk goes around once to be summed and once to be copied, in two slices. A thread block does one
// thing after another, so a loop starts when the one before has ended, and begins and ends with a
// copy that no transfer overlaps (`tail`). Within a slice a block moves passes of 64 KiB (512
// threads, 8 · 16 B each); an unfilled pass costs a share of a full one. That share is what makes
// the saw-tooth in measured times, with teeth of channels · ranks · 128 KiB.
//
// Tree: per host a chain of GPUs, its heads in a double binary tree of the hosts, half of every
// loop in each tree. Chunks are pipelined: up and down are different connections.
//
// NVLS: each GPU is the head of one n-th of the buffer, which the switch adds on the way to it and
// multicasts on the way back. NVLS tree: the heads of one number, one in each host, are a double
// binary tree across hosts in between.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "plan/regular_schedule.hpp"
#include "plan/transfer_graph.hpp"
#include "sim/nccl/machine.hpp"
#include "sim/nccl/parameters.hpp"

namespace rackrail::sim::nccl {

/// How a buffer is cut: whole loops of one chunk size, and a last smaller one (ring); or loops of
/// about equal size (trees).
struct Chunking {
  std::int64_t loops = 1;        ///< whole ones
  std::int64_t chunk_bytes = 0;  ///< of one channel, in whole loops
  std::int64_t rest_bytes = 0;   ///< chunk of one channel in the last loop; 0: none
  int slices = 1;                ///< per chunk
};

/// Of a ring over `ranks` in `channels` channels.
Chunking ring_chunking(std::int64_t bytes, std::size_t ranks, int channels, Protocol protocol);
/// Loops of the tree algorithms over hosts of `gpus`, in `parts` parts of the buffer that move at
/// the same time (channels; channels · heads for NVLS).
Chunking tree_chunking(std::int64_t bytes, std::int64_t parts, std::size_t hosts, std::size_t gpus,
                       Algorithm algorithm, Protocol protocol, Bytes nvls_tree_chunk);
/// What a thread block spends on a slice, in bytes moved at full speed: the slice, and of its
/// unfilled last pass the share `pass_share`. LL and LL128 have no passes.
double block_bytes(std::int64_t slice_bytes, double pass_share, Protocol protocol);

/// Hosts of the double binary tree: parent of each host in tree 0 or 1; the root is its own.
std::vector<std::uint32_t> tree_parents(std::size_t hosts, int tree);
std::size_t tree_depth(std::size_t hosts);

/// Directed pairs of hosts that talk.
std::vector<HostPair> ring_pairs(std::size_t hosts);
std::vector<HostPair> tree_pairs(std::size_t hosts);

/// One loop of each algorithm over `hosts` hosts of `gpus` GPUs, ranks numbered host by host: an
/// all-reduce. Chunks: two halves (tree); `gpus` parts (NVLS); two halves per GPU (NVLS tree).
plan::TransferGraph tree_loop(std::size_t hosts, std::size_t gpus);
plan::TransferGraph nvls_loop(std::size_t gpus);
plan::TransferGraph nvls_tree_loop(std::size_t hosts, std::size_t gpus);

/// `loop` repeated: repetition r does with chunks [r·c, (r+1)·c) what the loop does with its c
/// chunks. Every transfer has a lane of its own, so the repetitions follow each other through the
/// loop as a pipeline, and transfers of one pair of ranks share its channel without waiting for
/// each other's turn. NCCL's connections buffer `steps` chunks each (positive), so as many
/// repetitions may be under way as fit into the connections of the loop's longest chain: a transfer
/// that waits for nothing in the loop waits for the copy of its chunk that ended the loop at its
/// sender that many repetitions before.
///
/// Takes loops without codecs whose chunks have equal weights. Sums are not put in an order: the
/// switch or thread block adds what is there, so rule 4's order of additions is not simulated.
inline constexpr std::uint32_t kBufferSteps = 8;
std::unique_ptr<plan::RegularSchedule> repeat(const plan::TransferGraph& loop, std::uint32_t times,
                                              std::uint32_t steps = kBufferSteps);

}  // namespace rackrail::sim::nccl
