#include "runtime/ucx/device_memory.hpp"

#include <cstdint>

namespace rackrail::runtime {

std::optional<ucs_memory_type_t> ucx_device_memory(const UcpContext& context) {
  ucp_context_attr_t attributes = {};
  attributes.field_mask = UCP_ATTR_FIELD_MEMORY_TYPES;
  if (ucp_context_query(context.get(), &attributes) != UCS_OK) {
    return std::nullopt;
  }
  const std::uint64_t cuda = std::uint64_t{1} << static_cast<unsigned>(UCS_MEMORY_TYPE_CUDA);
  return (attributes.memory_types & cuda) != 0 ? std::optional(UCS_MEMORY_TYPE_CUDA) : std::nullopt;
}

void ucx_learn(const UcpContext& context, std::span<const std::byte> memory) {
  ucp_mem_map_params_t parameters = {};
  parameters.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH;
  parameters.address =
      const_cast<std::byte*>(memory.data());  // NOLINT(*-const-cast): only looked at
  parameters.length = memory.size();
  ucp_mem_h handle = nullptr;
  if (ucp_mem_map(context.get(), &parameters, &handle) == UCS_OK) {  // else it has asked as well
    (void)ucp_mem_unmap(context.get(), handle);
  }
}

}  // namespace rackrail::runtime
