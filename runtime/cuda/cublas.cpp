#include "runtime/cuda/cublas.hpp"

#include <limits>

#include "base/error.hpp"

namespace rackrail::runtime {
namespace {

void check_cublas(int status, const char* call) {
  if (status != 0) {
    throw RuntimeFailure(std::string("cuBLAS: ") + call + " returned " + std::to_string(status));
  }
}

int size_of(std::size_t value) {
  if (value > static_cast<std::size_t>(std::numeric_limits<int>::max())) {
    throw RuntimeFailure("cuBLAS: a matrix of " + std::to_string(value) +
                         " rows or columns, expected at most 2147483647");
  }
  return static_cast<int>(value);
}

CublasOperation operation(const MatrixOperand& matrix) {
  return matrix.is_transposed ? CublasOperation::kTransposed : CublasOperation::kPlain;
}

}  // namespace

Cublas::Cublas(cudaStream_t stream) {
  const CublasLibrary& library = cublas_library();
  if (library.unavailable) {
    throw RuntimeFailure(*library.unavailable);
  }
  CublasHandle handle = nullptr;
  check_cublas(library.functions.create(&handle), "cublasCreate");
  handle_ = UniqueHandle<Traits>(handle);
  check_cublas(library.functions.set_stream(handle, stream), "cublasSetStream");
}

void Cublas::multiply(const MatrixOperand& a, const MatrixOperand& b, float* c, std::size_t rows,
                      std::size_t columns, std::size_t inner, bool accumulate) const {
  // A matrix that lies row by row is, read column by column, its transpose: cᵀ = bᵀ · aᵀ.
  const float one = 1;
  const float beta = accumulate ? 1 : 0;
  check_cublas(cublas_library().functions.sgemm(handle_.get(), operation(b), operation(a),
                                                size_of(columns), size_of(rows), size_of(inner),
                                                &one, b.data, size_of(b.columns), a.data,
                                                size_of(a.columns), &beta, c, size_of(columns)),
               "cublasSgemm");
}

void Cublas::Traits::release(Handle handle) noexcept {
  static_cast<void>(cublas_library().functions.destroy(handle));
}

}  // namespace rackrail::runtime
