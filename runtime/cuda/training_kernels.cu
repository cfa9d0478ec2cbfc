// What is between the matrix products of the built-in trainer. A thread has an element of the
// output at a time and neighbours have neighbouring ones; sums go the other way round than on a
// processor (each output collects what belongs to it), so that they need no atomics and have one
// order.
#include <cmath>

#include "runtime/cuda/launch_device.cuh"
#include "runtime/cuda/training_kernels.hpp"

namespace rackrail::runtime {
namespace {

constexpr unsigned kWindow = 3;

/// Where an index lies in [sample][height][width][channel].
struct Pixel {
  std::size_t sample;
  unsigned y, x, channel;
};

__device__ __forceinline__ Pixel pixel_of(std::size_t index, ImageSize size) {
  Pixel pixel;
  pixel.channel = static_cast<unsigned>(index % size.channels);
  index /= size.channels;
  pixel.x = static_cast<unsigned>(index % size.width);
  index /= size.width;
  pixel.y = static_cast<unsigned>(index % size.height);
  pixel.sample = index / size.height;
  return pixel;
}
__device__ __forceinline__ std::size_t index_of(const Pixel& pixel, ImageSize size) {
  return ((pixel.sample * size.height + pixel.y) * size.width + pixel.x) * size.channels +
         pixel.channel;
}
__device__ __forceinline__ bool is_inside(unsigned y, unsigned x, ImageSize size) {
  return y < size.height && x < size.width;  // what is left of 0 or above it wraps around
}

std::size_t blocks_for(std::size_t elements) {
  return ceil_divide<std::size_t>(elements, kThreads);
}

__global__ void __launch_bounds__(kThreads)
    bias_kernel(const float* bias, std::size_t elements, std::size_t columns, float* values) {
  for (std::size_t i = thread_in_grid(); i < elements; i += threads_in_grid()) {
    values[i] += bias[i % columns];
  }
}

__global__ void __launch_bounds__(kThreads)
    relu_kernel(const float* input, std::size_t elements, float* output) {
  for (std::size_t i = thread_in_grid(); i < elements; i += threads_in_grid()) {
    // Lets not-a-number through, so that a diverged model shows it.
    output[i] = input[i] < 0.0F ? 0.0F : input[i];
  }
}

__global__ void __launch_bounds__(kThreads)
    relu_gradient_kernel(const float* output, const float* output_gradient, std::size_t elements,
                         float* input_gradient) {
  for (std::size_t i = thread_in_grid(); i < elements; i += threads_in_grid()) {
    input_gradient[i] = output[i] > 0.0F ? output_gradient[i] : 0.0F;
  }
}

__global__ void __launch_bounds__(kThreads)
    gather_kernel(const float* images, std::size_t elements, ImageSize size, float* windows) {
  for (std::size_t i = thread_in_grid(); i < elements; i += threads_in_grid()) {
    // Rows are pixels, and a row has 3×3 pixels: an image of as many more channels.
    ImageSize wide = size;
    wide.channels *= kWindow * kWindow;
    Pixel pixel = pixel_of(i, wide);
    const unsigned place = pixel.channel / size.channels;
    pixel.channel %= size.channels;
    pixel.y += place / kWindow - 1;
    pixel.x += place % kWindow - 1;
    windows[i] = is_inside(pixel.y, pixel.x, size) ? images[index_of(pixel, size)] : 0.0F;
  }
}

__global__ void __launch_bounds__(kThreads)
    scatter_kernel(const float* windows, std::size_t elements, ImageSize size, float* images) {
  for (std::size_t i = thread_in_grid(); i < elements; i += threads_in_grid()) {
    const Pixel pixel = pixel_of(i, size);
    float sum = 0;
    // The window around (y, x) has this pixel at (pixel.y − y + 1, pixel.x − x + 1).
    for (unsigned row = 0; row < kWindow; ++row) {
      for (unsigned column = 0; column < kWindow; ++column) {
        const unsigned y = pixel.y + row - 1;
        const unsigned x = pixel.x + column - 1;
        if (is_inside(y, x, size)) {
          const unsigned place = (kWindow - 1 - row) * kWindow + (kWindow - 1 - column);
          const std::size_t window = (pixel.sample * size.height + y) * size.width + x;
          sum += windows[(window * kWindow * kWindow + place) * size.channels + pixel.channel];
        }
      }
    }
    images[i] = sum;
  }
}

__global__ void __launch_bounds__(kThreads)
    pool_kernel(const float* input, std::size_t elements, ImageSize size, float* output,
                std::uint32_t* winner) {
  ImageSize half = size;
  half.height /= 2;
  half.width /= 2;
  for (std::size_t i = thread_in_grid(); i < elements; i += threads_in_grid()) {
    Pixel corner = pixel_of(i, half);
    corner.y *= 2;
    corner.x *= 2;
    std::size_t best = index_of(corner, size);
    for (unsigned place = 1; place < 4; ++place) {
      Pixel other = corner;
      other.y += place / 2;
      other.x += place % 2;
      const std::size_t index = index_of(other, size);
      best = input[best] < input[index] ? index : best;
    }
    winner[i] = static_cast<std::uint32_t>(best);
    output[i] = input[best];
  }
}

__global__ void __launch_bounds__(kThreads)
    pool_gradient_kernel(const float* output_gradient, const std::uint32_t* winner,
                         std::size_t elements, ImageSize size, float* input_gradient) {
  ImageSize half = size;
  half.height /= 2;
  half.width /= 2;
  for (std::size_t i = thread_in_grid(); i < elements; i += threads_in_grid()) {
    Pixel pixel = pixel_of(i, size);
    pixel.y /= 2;
    pixel.x /= 2;
    const std::size_t window = index_of(pixel, half);
    input_gradient[i] = winner[window] == i ? output_gradient[window] : 0.0F;
  }
}

__global__ void __launch_bounds__(kThreads)
    softmax_kernel(const float* outputs, const std::int32_t* labels, std::size_t rows,
                   std::size_t classes, double weight, float* gradient, double* losses,
                   std::uint32_t* correct) {
  for (std::size_t row = thread_in_grid(); row < rows; row += threads_in_grid()) {
    const float* values = outputs + row * classes;
    const auto label = static_cast<std::size_t>(labels[row]);
    // Relative to the largest output, so that no exponential overflows.
    std::size_t largest = 0;
    for (std::size_t c = 1; c < classes; ++c) {
      largest = values[largest] < values[c] ? c : largest;
    }
    const auto shift = static_cast<double>(values[largest]);
    double total = 0;
    for (std::size_t c = 0; c < classes; ++c) {
      total += exp(static_cast<double>(values[c]) - shift);
    }
    const double log_total = log(total) + shift;
    losses[row] = log_total - static_cast<double>(values[label]);
    correct[row] = largest == label ? 1 : 0;
    if (gradient != nullptr) {
      for (std::size_t c = 0; c < classes; ++c) {
        const double probability = exp(static_cast<double>(values[c]) - log_total);
        gradient[row * classes + c] =
            static_cast<float>(weight * (probability - (c == label ? 1.0 : 0.0)));
      }
    }
  }
}

__global__ void __launch_bounds__(kThreads)
    squares_kernel(const float* values, std::size_t elements, double* sums) {
  __shared__ double of_threads[kThreads];
  double sum = 0;
  for (std::size_t i = thread_in_grid(); i < elements; i += threads_in_grid()) {
    const auto value = static_cast<double>(values[i]);
    sum += value * value;
  }
  of_threads[threadIdx.x] = sum;
  for (unsigned half = kThreads / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half) {
      of_threads[threadIdx.x] += of_threads[threadIdx.x + half];
    }
  }
  if (threadIdx.x == 0) {
    sums[blockIdx.x] += of_threads[0];
  }
}

__global__ void __launch_bounds__(kThreads)
    update_kernel(float* parameters, float* momentum, const float* gradients, std::size_t elements,
                  UpdateStep step) {
  for (std::size_t i = thread_in_grid(); i < elements; i += threads_in_grid()) {
    const float v =
        step.momentum * momentum[i] + (step.scale * gradients[i] + step.decay * parameters[i]);
    momentum[i] = v;
    parameters[i] -= step.rate * v;
  }
}

__global__ void __launch_bounds__(kThreads)
    multiply_kernel(float* values, std::size_t elements, float factor) {
  for (std::size_t i = thread_in_grid(); i < elements; i += threads_in_grid()) {
    values[i] *= factor;
  }
}

std::size_t pixels_of(std::size_t samples, ImageSize size) {
  return samples * size.height * size.width * size.channels;
}

}  // namespace

void add_bias(const float* bias, std::size_t rows, std::size_t columns, float* values,
              Launch where) {
  launch("add_bias", bias_kernel, blocks_for(rows * columns), kThreads, where, bias, rows * columns,
         columns, values);
}

void relu_forward(const float* input, std::size_t elements, float* output, Launch where) {
  launch("relu_forward", relu_kernel, blocks_for(elements), kThreads, where, input, elements,
         output);
}

void relu_backward(const float* output, const float* output_gradient, std::size_t elements,
                   float* input_gradient, Launch where) {
  launch("relu_backward", relu_gradient_kernel, blocks_for(elements), kThreads, where, output,
         output_gradient, elements, input_gradient);
}

void gather_windows(const float* images, std::size_t samples, ImageSize size, float* windows,
                    Launch where) {
  const std::size_t elements = pixels_of(samples, size) * kWindow * kWindow;
  launch("gather_windows", gather_kernel, blocks_for(elements), kThreads, where, images, elements,
         size, windows);
}

void scatter_windows(const float* windows, std::size_t samples, ImageSize size, float* images,
                     Launch where) {
  const std::size_t elements = pixels_of(samples, size);
  launch("scatter_windows", scatter_kernel, blocks_for(elements), kThreads, where, windows,
         elements, size, images);
}

void max_pool_forward(const float* input, std::size_t samples, ImageSize size, float* output,
                      std::uint32_t* winner, Launch where) {
  const std::size_t elements = pixels_of(samples, size) / 4;
  launch("max_pool_forward", pool_kernel, blocks_for(elements), kThreads, where, input, elements,
         size, output, winner);
}

void max_pool_backward(const float* output_gradient, const std::uint32_t* winner,
                       std::size_t samples, ImageSize size, float* input_gradient, Launch where) {
  const std::size_t elements = pixels_of(samples, size);
  launch("max_pool_backward", pool_gradient_kernel, blocks_for(elements), kThreads, where,
         output_gradient, winner, elements, size, input_gradient);
}

void softmax_rows(const float* outputs, const std::int32_t* labels, std::size_t rows,
                  std::size_t classes, double weight, float* gradient, double* losses,
                  std::uint32_t* correct, Launch where) {
  launch("softmax_rows", softmax_kernel, blocks_for(rows), kThreads, where, outputs, labels, rows,
         classes, weight, gradient, losses, correct);
}

void add_squares(const float* values, std::size_t elements, double* sums, cudaStream_t stream) {
  constexpr std::size_t kElementsPerThread = 16;
  launch("add_squares", squares_kernel, blocks_for(elements) / kElementsPerThread + 1, kThreads,
         Launch{.stream = stream, .most_blocks = kSquareSums}, values, elements, sums);
}

void multiply_values(float* values, std::size_t elements, float factor, Launch where) {
  launch("multiply_values", multiply_kernel, blocks_for(elements), kThreads, where, values,
         elements, factor);
}

void update_parameters(float* parameters, float* momentum, const float* gradients,
                       std::size_t elements, UpdateStep step, Launch where) {
  launch("update_parameters", update_kernel, blocks_for(elements), kThreads, where, parameters,
         momentum, gradients, elements, step);
}

}  // namespace rackrail::runtime
