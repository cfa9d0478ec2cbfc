// The tables of `rocm-smi --showtopo` and `amd-smi topology`: by what each GPU of a machine reaches
// each other one.
//
// The weight of a pair is the distance that the kernel adds up over the links between: each xGMI
// hop counts 15. A pair with twice that has no link of its own; its messages pass another GPU.
// (The table of hops says 1 for both.)
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/units.hpp"

namespace rackrail::topology {

struct RocmPair {
  bool is_xgmi = false;
  std::optional<std::int64_t> weight;
  std::optional<std::int64_t> hops;
  std::optional<Bandwidth> bandwidth;  ///< in one direction, where the file tells
};

struct RocmTopology {
  std::vector<std::string> gpus;  ///< "GPU0", or bus ids
  std::vector<std::string> numa;  ///< by GPU; empty: unknown
  std::vector<RocmPair> pairs;    ///< row by row
  std::string gpu_model;          ///< that the text around names; empty: none, or several

  const RocmPair& at(std::size_t row, std::size_t column) const {
    return pairs[row * gpus.size() + column];
  }
};

/// Whether the text has the table of link types.
bool has_rocm_topology(std::string_view content);

/// Throws ConfigError that names the line.
RocmTopology parse_rocm_topology(const std::string& file, std::string_view content);

}  // namespace rackrail::topology
