// Measured collectives, as benchmarks write them. There are three formats, told apart by content:
//
//  - CSV with a header: a size (`size_bytes`, `size(B)`), a time (`time_us`, `time(ns)`: the first
//    such column, which nccl-tests has out of place), and where they are there `gpus` (in all),
//    `nodes`, `op`, `algo`, `proto`, `placement` (numbers of the cluster's hosts, "0;4"). Without a
//    column the number of GPUs is that in the file's name
//    ("…-4gpu.csv").
//  - JSON lines of MSCCL++'s benchmark: name, ranks, ranksPerNode, size, time in µs.
//  - the log of nccl-tests, with its "# Rank" lines.
//
// "default" in `algo` leaves the choice to NCCL's formula; what follows it in brackets is ignored.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "sim/nccl/calibrate.hpp"

namespace rackrail::cli {

struct Measurements {
  std::vector<sim::nccl::Measured> cases;  ///< all-reduces
  std::size_t others = 0;                  ///< rows of other collectives, which were left out
  bool are_of_mscclpp = false;             ///< of its kernels, not of NCCL's
};

/// Throws ConfigError with file and line for what it cannot take.
Measurements read_measurements(const std::filesystem::path& path);

/// Whether the file begins as a CSV of measurements does: with a header that has a size and a time.
/// False for what cannot be read.
bool has_measurement_header(const std::filesystem::path& path);

/// "nvls-tree", "NVLSTree", "ring", "LL128" …; none for "default", "auto" and nothing at all.
/// Throws ConfigError that lists the known names.
sim::nccl::Choice parse_choice(const std::string& algorithm, const std::string& protocol);

}  // namespace rackrail::cli
