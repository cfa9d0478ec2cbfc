// The page that goes with the tables: how NCCL is told to read them, and what they should gain.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "export/nccl/tuning.hpp"
#include "topology/topology.hpp"

namespace rackrail::exporting::nccl {

// Names of the files in the folder that `rackrail tune-nccl` writes.
inline constexpr std::string_view kPlugin = "librackrail-nccl-tuner.so";
inline constexpr std::string_view kPluginTable = "rackrail-tuner.csv";
inline constexpr std::string_view kExampleTable = "nccl-example-tuner.csv";
inline constexpr std::string_view kNcclxTable = "ncclx-tuner.csv";
/// "rccl_tuner_gfx942.csv"; empty where the first rank is no AMD GPU.
std::string rccl_table(const topology::Topology& cluster);

/// Markdown.
std::string tuner_page(const topology::Topology& cluster, std::span<const ShapeTuning> shapes);

/// "nvls-tree simple, chunks of 128 KiB (NCCL 2.30)".
std::string to_text(const Setting& setting);

}  // namespace rackrail::exporting::nccl
