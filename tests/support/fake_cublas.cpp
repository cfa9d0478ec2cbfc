// Stands in for cuBLAS where kernels run on an emulated GPU: the same function, on host memory, and
// in the order of the stream.
#include "runtime/cuda/cublas.hpp"
#include "tests/support/emulated_gpu/fibers.hpp"

struct FakeCublas {
  cudaStream_t stream = nullptr;
};

namespace rackrail::runtime {
namespace {

FakeCublas* state(CublasHandle handle) { return reinterpret_cast<FakeCublas*>(handle); }

int create(CublasHandle* handle) {
  *handle = reinterpret_cast<CublasHandle>(new FakeCublas);
  return 0;
}
int destroy(CublasHandle handle) {
  delete state(handle);
  return 0;
}
int get_version(CublasHandle /*handle*/, int* version) {
  *version = 0;
  return 0;
}
int set_stream(CublasHandle handle, cudaStream_t stream) {
  state(handle)->stream = stream;
  return 0;
}

/// As cuBLAS says it: leading dimensions at least the rows of the matrix as it lies there, and
/// nothing of c read where beta is 0.
int sgemm(CublasHandle handle, CublasOperation op_a, CublasOperation op_b, int m, int n, int k,
          const float* alpha, const float* a, int lda, const float* b, int ldb, const float* beta,
          float* c, int ldc) {
  const bool a_lies_across = op_a == CublasOperation::kTransposed;
  const bool b_lies_across = op_b == CublasOperation::kTransposed;
  constexpr int kInvalidValue = 7;
  if (m < 0 || n < 0 || k < 0 || lda < (a_lies_across ? k : m) || ldb < (b_lies_across ? n : k) ||
      ldc < m) {
    return kInvalidValue;
  }
  emulated_gpu::enqueue(state(handle)->stream, [=, scale = *alpha, old = *beta] {
    for (int column = 0; column < n; ++column) {
      for (int row = 0; row < m; ++row) {
        float sum = 0;
        for (int i = 0; i < k; ++i) {
          sum += (a_lies_across ? a[std::ptrdiff_t{row} * lda + i]
                                : a[std::ptrdiff_t{i} * lda + row]) *
                 (b_lies_across ? b[std::ptrdiff_t{i} * ldb + column]
                                : b[std::ptrdiff_t{column} * ldb + i]);
        }
        float& to = c[std::ptrdiff_t{column} * ldc + row];
        to = old == 0 ? scale * sum : scale * sum + old * to;
      }
    }
  });
  return 0;
}

}  // namespace

const CublasLibrary& cublas_library() {
  static const CublasLibrary library{.functions = {.create = create,
                                                   .destroy = destroy,
                                                   .get_version = get_version,
                                                   .set_stream = set_stream,
                                                   .sgemm = sgemm},
                                     .unavailable = {},
                                     .file = "a stand-in"};
  return library;
}

}  // namespace rackrail::runtime
