// Tables that NCCL's tuners read, made of a tuning.
//
// Four programs read such tables, each with its own columns and its own idea of what happens to a
// size that no line covers:
//
//  - rackrail's plugin: NVIDIA's ten columns and an eleventh, the chunk. A size without a line is
//    NCCL's own affair.
//  - NVIDIA's example plugin (plugins/tuner/example in NVIDIA/nccl): a size without a line gets one
//    channel, so its table covers every size of every collective. Lines below 256 characters; an
//    unknown name silently becomes all-reduce, ring or simple.
//  - RCCL's built-in tuner (projects/rccl/tuner in ROCm/rocm-systems): NVIDIA's columns.
//  - NCCLX (comms/ncclx/meta/tuner in meta-pytorch/torchcomms): intervals of bytes per rank, hosts
//    and GPUs of each host; a bad line fails the communicator's initialisation.
//
// In all of them the first line that matches wins, `#` begins a comment and -1 stands for any.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "export/nccl/tuning.hpp"
#include "topology/topology.hpp"

namespace rackrail::exporting::nccl {

enum class Collective : std::uint8_t {
  kAllReduce,
  kAllGather,
  kReduceScatter,
  kBroadcast,
  kReduce
};

/// What NCCL is told for collectives of a range of sizes.
struct TableRow {
  Collective collective = Collective::kAllReduce;
  /// Both inclusive, as NCCL counts: of an all-gather what each rank ends with, of a reduce-scatter
  /// what each begins with.
  std::uint64_t least_bytes = 0;
  std::uint64_t most_bytes = 0;
  Setting setting;
  std::size_t nodes = 1;  ///< 0: any
  std::size_t ranks = 1;  ///< 0: any
  bool needs_registered_buffers = false;
};

/// The sizes for which another choice than NCCL's own is worth it; neighbours with the same choice
/// are one row. A size between two that were looked at is with the nearer one, by ratio.
std::vector<TableRow> overriding_rows(std::span<const ShapeTuning> shapes);
/// Every size of every collective; those other than all-reduces by a ring, with registered buffers
/// by NVLS where there is one. Communicators of other shapes have rings, too.
std::vector<TableRow> covering_rows(std::span<const ShapeTuning> shapes);

/// NVIDIA's ten columns; `with_chunk` adds the eleventh.
std::string to_nccl_csv(std::span<const TableRow> rows, std::string_view title, bool with_chunk);
std::string to_ncclx_csv(std::span<const TableRow> rows, std::string_view title);

/// "MI300X" → "gfx942"; empty for what is not an AMD GPU.
std::string_view gfx_architecture(std::string_view device_class);

/// As the tables spell them: "nvls_tree", "ll128".
std::string table_name(sim::nccl::Algorithm algorithm);
std::string table_name(sim::nccl::Protocol protocol);

}  // namespace rackrail::exporting::nccl
