// Errors of the CUDA runtime as exceptions.
#pragma once

#include <cuda_runtime_api.h>

#include <string>

#include "base/error.hpp"

namespace rackrail::runtime {

class CudaError : public RuntimeFailure {
 public:
  CudaError(const char* call, cudaError_t code)
      : RuntimeFailure(std::string("CUDA: ") + call + ": " + cudaGetErrorString(code) + " (" +
                       cudaGetErrorName(code) + ")"),
        code_(code) {}

  cudaError_t code() const noexcept { return code_; }

 private:
  cudaError_t code_;
};

/// Throws CudaError unless the call that is named went well.
inline void check_cuda(cudaError_t code, const char* call) {
  if (code != cudaSuccess) {
    throw CudaError(call, code);
  }
}

}  // namespace rackrail::runtime
