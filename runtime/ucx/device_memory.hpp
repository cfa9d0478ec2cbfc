// Whether UCX can be given memory of a GPU: asked of the library that the program finds when it
// runs, which may be another build than it was linked with (LD_LIBRARY_PATH).
#pragma once

#include <cstddef>
#include <optional>
#include <span>

#include "runtime/ucx/handles.hpp"

namespace rackrail::runtime {

/// The memory of GPUs as requests of this context name it; none where UCX was built without CUDA,
/// finds no driver, or UCX_TLS leaves CUDA's transports out.
std::optional<ucs_memory_type_t> ucx_device_memory(const UcpContext& context);

/// Has UCX ask now what memory this is, which it remembers for all contexts of the process. It asks
/// at the first message otherwise, and the driver answers (UCX 1.22: cuCtxSetFlags) only once the
/// device has nothing left to do: never, where what it does waits for that message.
void ucx_learn(const UcpContext& context, std::span<const std::byte> memory);

}  // namespace rackrail::runtime
