// A build that has no CUDA.
#include "base/build_config.hpp"
#include "base/error.hpp"
#include "runtime/cuda/factory.hpp"

namespace rackrail::runtime {
namespace {

std::string reason() {
  return "this build has no CUDA: " + std::string(build_config::kCudaMissingReason);
}

}  // namespace

CudaStatus cuda_status() { return {.unavailable = reason(), .detail = {}, .has_mps = false}; }

bool has_cuda_codec(const plan::Codec& /*descriptor*/) { return false; }

std::unique_ptr<Codec> make_cuda_codec(const plan::Codec& descriptor) {
  throw RuntimeFailure("codec " + plan::to_string(descriptor) + " on a GPU: " + reason());
}

}  // namespace rackrail::runtime
