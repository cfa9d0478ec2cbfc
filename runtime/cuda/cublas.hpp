// cuBLAS, loaded when the program runs (dlopen), so that one build serves machines with and without
// it: the few functions that the built-in trainer's matrix products take.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <optional>
#include <string>

#include "runtime/unique_handle.hpp"

namespace rackrail::runtime {

/// cublasHandle_t
using CublasHandle = struct cublasContext*;
/// cublasOperation_t
enum class CublasOperation : int { kPlain = 0, kTransposed = 1 };

/// Called as in cuBLAS, without the prefix; they return 0 where all is well (cublasStatus_t).
struct CublasFunctions {
  int (*create)(CublasHandle* handle) = nullptr;
  int (*destroy)(CublasHandle handle) = nullptr;
  int (*get_version)(CublasHandle handle, int* version) = nullptr;
  int (*set_stream)(CublasHandle handle, cudaStream_t stream) = nullptr;
  /// Matrices lie column by column; alpha and beta are on the host.
  int (*sgemm)(CublasHandle handle, CublasOperation op_a, CublasOperation op_b, int m, int n, int k,
               const float* alpha, const float* a, int lda, const float* b, int ldb,
               const float* beta, float* c, int ldc) = nullptr;
};

struct CublasLibrary {
  CublasFunctions functions;
  std::optional<std::string> unavailable;  ///< why there is none here
  std::string file;                        ///< else where it was found
};

/// The file that RACKRAIL_CUBLAS_LIBRARY names, else that of the CUDA version of this build where
/// the loader finds it or where CUDA was then, else that of CUDA 13 or 12 where the loader finds
/// it. Looks once per process; thread-safe. What is loaded stays so until the process ends.
const CublasLibrary& cublas_library();

/// A matrix row by row, or its transpose.
struct MatrixOperand {
  const float* data = nullptr;
  std::size_t columns = 0;  ///< of the matrix as it lies there
  bool is_transposed = false;
};

/// Products of FP32 matrices on one stream of the current device, in full FP32 (no TF32). The same
/// operands give the same bits on the same kind of device.
class Cublas {
 public:
  /// Throws RuntimeFailure where there is no cuBLAS.
  explicit Cublas(cudaStream_t stream);

  /// c [rows × columns] = (or +=) a · b, over `inner` columns of a. Throws RuntimeFailure.
  void multiply(const MatrixOperand& a, const MatrixOperand& b, float* c, std::size_t rows,
                std::size_t columns, std::size_t inner, bool accumulate) const;

 private:
  struct Traits {
    using Handle = CublasHandle;
    static void release(Handle handle) noexcept;
  };
  UniqueHandle<Traits> handle_;
};

}  // namespace rackrail::runtime
