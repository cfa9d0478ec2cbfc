// Whether UCX can be given memory of a GPU: asked of the library that the program finds when it
// runs, which may be another build than it was linked with (LD_LIBRARY_PATH).
#pragma once

#include <optional>

#include "runtime/ucx/handles.hpp"

namespace rackrail::runtime {

/// The memory of GPUs as requests of this context name it; none where UCX was built without CUDA,
/// finds no driver, or UCX_TLS leaves CUDA's transports out.
std::optional<ucs_memory_type_t> ucx_device_memory(const UcpContext& context);

}  // namespace rackrail::runtime
