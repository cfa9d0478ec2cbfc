// Which bytes a lossy transfer sends: rule 6 of plan/transfer_graph.hpp, worked out once for all
// interpreters.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/transfer_graph.hpp"

namespace rackrail::plan {

enum class EncodingKind : std::uint8_t {
  kOwn,        ///< encoded for this transfer (FP32 transfers too: nothing to do)
  kShared,     ///< what transfer `from` encoded of the same version of the same range
  kForwarded,  ///< what arrived with transfer `from`, which copied the same range in the same codec
};

struct EncodingSource {
  EncodingKind kind = EncodingKind::kOwn;
  TransferId from{};
};

/// One entry per transfer. O(transfers · chunks per transfer).
std::vector<EncodingSource> encoding_sources(const TransferGraph& graph);

}  // namespace rackrail::plan
