// Row-major Eigen views of spans. Private to the .cpp files of the layers: includes Eigen.
#pragma once

#include <Eigen/Core>
#include <cstdint>
#include <span>

namespace rackrail::trainer {

using Matrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using MatrixView = Eigen::Map<Matrix>;
using ConstMatrixView = Eigen::Map<const Matrix>;

/// `data` must have rows · columns elements.
inline MatrixView matrix(std::span<float> data, std::int64_t rows, std::int64_t columns) {
  return {data.data(), rows, columns};
}
inline ConstMatrixView matrix(std::span<const float> data, std::int64_t rows,
                              std::int64_t columns) {
  return {data.data(), rows, columns};
}

/// into = (or +=) value.
template <typename Value>
void assign(MatrixView into, const Value& value, bool accumulate) {
  if (accumulate) {
    into.noalias() += value;
  } else {
    into.noalias() = value;
  }
}

/// into = (or +=) a · b, without a temporary.
template <typename A, typename B>
void assign_product(MatrixView into, const A& a, const B& b, bool accumulate) {
  if (accumulate) {
    into.noalias() += a * b;
  } else {
    into.noalias() = a * b;
  }
}

}  // namespace rackrail::trainer
