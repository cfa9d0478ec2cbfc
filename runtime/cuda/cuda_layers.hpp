// The layers of runtime/trainer/ on a GPU.
#pragma once

#include <memory>

#include "runtime/trainer/layer.hpp"

namespace rackrail::runtime {

class CudaCompute;

/// Keeps a reference to `compute`, on whose stream it works.
std::unique_ptr<trainer::Layer> make_cuda_layer(CudaCompute& compute,
                                                const trainer::LayerSpec& spec);

}  // namespace rackrail::runtime
