// The kernels of the built-in trainer, besides the matrix products (cublas.hpp). They do what the
// layers of runtime/trainer/ do, in the same order of additions.
//
// As in kernels.hpp: pointers are to device memory, sizes have been checked by the caller, nothing
// is allocated and nothing waits. Activations are row-major [sample][height][width][channel].
#pragma once

#include <cstddef>
#include <cstdint>

#include "runtime/cuda/kernels.hpp"

namespace rackrail::runtime {

struct ImageSize {
  unsigned height = 1;
  unsigned width = 1;
  unsigned channels = 1;
};

/// values[row][column] += bias[column].
void add_bias(const float* bias, std::size_t rows, std::size_t columns, float* values,
              Launch launch);
void relu_forward(const float* input, std::size_t elements, float* output, Launch launch);
/// `output` is that of relu_forward.
void relu_backward(const float* output, const float* output_gradient, std::size_t elements,
                   float* input_gradient, Launch launch);

/// The 3×3 windows around each pixel as rows of a matrix, zeros outside of the image.
void gather_windows(const float* images, std::size_t samples, ImageSize size, float* windows,
                    Launch launch);
/// To each pixel, what the windows have of it: added in the order of the windows.
void scatter_windows(const float* windows, std::size_t samples, ImageSize size, float* images,
                     Launch launch);

/// 2×2 with stride 2 of images of an even height and width; `winner` is the index of the largest
/// (of equals the first) among the inputs.
void max_pool_forward(const float* input, std::size_t samples, ImageSize size, float* output,
                      std::uint32_t* winner, Launch launch);
void max_pool_backward(const float* output_gradient, const std::uint32_t* winner,
                       std::size_t samples, ImageSize size, float* input_gradient, Launch launch);

/// Of each row its loss and whether its largest output is the label; where `gradient` is not null,
/// weight · ∂loss/∂outputs too.
void softmax_rows(const float* outputs, const std::int32_t* labels, std::size_t rows,
                  std::size_t classes, double weight, float* gradient, double* losses,
                  std::uint32_t* correct, Launch launch);

/// The most sums that add_squares() makes, on every device.
inline constexpr unsigned kSquareSums = 64;
/// Adds Σ values² to `sums`, in parts; which element is in which part depends on `elements` alone.
void add_squares(const float* values, std::size_t elements, double* sums, cudaStream_t stream);

/// values[i] *= factor.
void multiply_values(float* values, std::size_t elements, float factor, Launch launch);

/// v ← momentum·v + (scale·g + decay·w), w ← w − rate·v.
struct UpdateStep {
  float momentum = 0;
  float scale = 1;
  float decay = 0;
  float rate = 0;
};
void update_parameters(float* parameters, float* momentum, const float* gradients,
                       std::size_t elements, UpdateStep step, Launch launch);

}  // namespace rackrail::runtime
