#include "plan/codecs/block_scaled.hpp"

namespace rackrail::plan {

Bytes block_scaled_size(std::uint32_t block, std::int64_t elements) {
  const std::int64_t blocks = elements / block + (elements % block != 0 ? 1 : 0);
  return Bytes(elements) + Bytes(blocks) * 4;
}

}  // namespace rackrail::plan
