// Which bytes a lossy transfer sends: rule 6 of plan/transfer_graph.hpp, worked out once for all
// interpreters.
//
// In id order, each chunk of each rank remembers its last writer: the transfer that copied or added
// there, or the lossy copy that replaced it at its own sender. An encoding of a range stands as
// long as no chunk of it has been written after it; a range whose chunks were all written last by
// one copy of just that range, in the same codec, is forwarded. Rule 4 makes this the same in every
// legal execution. O(transfers · chunks per transfer), and nothing for graphs without lossy codecs.
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
  TransferId from{};  ///< smaller than the transfer's own id
};

/// One entry per transfer. A shared encoding is always of a transfer with the same op.
std::vector<EncodingSource> encoding_sources(const TransferGraph& graph);

}  // namespace rackrail::plan
