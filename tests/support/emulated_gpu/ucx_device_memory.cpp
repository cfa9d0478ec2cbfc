// runtime/ucx/device_memory.hpp for the emulated GPU, whose memory is the host's: where
// EMULATED_UCX_WITH_CUDA is 1, UCX is taken for one that was built with CUDA.
#include "runtime/ucx/device_memory.hpp"

#include <cstdlib>
#include <string_view>

namespace rackrail::runtime {

std::optional<ucs_memory_type_t> ucx_device_memory(const UcpContext& /*context*/) {
  const char* said = std::getenv("EMULATED_UCX_WITH_CUDA");
  return said != nullptr && std::string_view(said) == "1" ? std::optional(UCS_MEMORY_TYPE_HOST)
                                                          : std::nullopt;
}

void ucx_learn(const UcpContext& /*context*/, std::span<const std::byte> /*memory*/) {}

}  // namespace rackrail::runtime
