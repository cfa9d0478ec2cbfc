// A build that has no CUDA.
#include "base/error.hpp"
#include "runtime/cuda/factory.hpp"
#include "runtime/cuda/gpu_arrays.hpp"
#include "runtime/cuda/training.hpp"

namespace rackrail::runtime {

std::vector<std::string> cuda_devices() { return {}; }

CublasStatus cublas_status() { return {cuda_status().unavailable, {}}; }

std::shared_ptr<trainer::Compute> make_cuda_compute(int /*device*/) {
  throw RuntimeFailure(*cuda_status().unavailable);
}

std::unique_ptr<GpuArrays> make_gpu_arrays(int /*device*/) {
  throw RuntimeFailure(*cuda_status().unavailable);
}

}  // namespace rackrail::runtime
