// One move-only owner per kind of CUDA handle, and of device memory. Releasing never throws.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <new>
#include <span>
#include <utility>

#include "runtime/cuda/cuda_error.hpp"
#include "runtime/unique_handle.hpp"

namespace rackrail::runtime {

/// Whether this process has the device's primary context; also where the driver cannot be asked.
inline bool has_context(int device) noexcept {
  using GetState = int (*)(int device, unsigned* flags, int* active);  // of cuda.h
  static const GetState get_state = [] {
    void* function = nullptr;
    cudaDriverEntryPointQueryResult result{};
    constexpr const char* kName = "cuDevicePrimaryCtxGetState";
#if CUDART_VERSION >= 12050
    constexpr unsigned kSince = 7000;  // the version of CUDA that it came with
    const cudaError_t error =
        cudaGetDriverEntryPointByVersion(kName, &function, kSince, cudaEnableDefault, &result);
#else
    const cudaError_t error = cudaGetDriverEntryPoint(kName, &function, cudaEnableDefault, &result);
#endif
    const bool is_found = error == cudaSuccess && result == cudaDriverEntryPointSuccess;
    return is_found ? reinterpret_cast<GetState>(function) : nullptr;
  }();
  unsigned flags = 0;
  int is_active = 0;
  return get_state == nullptr || get_state(device, &flags, &is_active) != 0 || is_active != 0;
}

/// Makes a device the thread's current one during its lifetime, and restores the previous one,
/// which the caller of rackrail may be using. It does not restore a device without a context:
/// cudaSetDevice would create one, with its memory, on device 0, which CUDA reports for a thread
/// that has never chosen a device.
class CurrentDevice {
 public:
  explicit CurrentDevice(int device) : device_(device) {
    check_cuda(cudaGetDevice(&before_), "cudaGetDevice");
    if (before_ != device_) {
      check_cuda(cudaSetDevice(device), "cudaSetDevice");
    }
  }
  /// For destructors: where the driver refuses, there is nothing left to do.
  CurrentDevice(int device, std::nothrow_t /*unused*/) noexcept : device_(device) {
    if (cudaGetDevice(&before_) != cudaSuccess) {
      before_ = device_;
    }
    static_cast<void>(cudaSetDevice(device));
  }
  ~CurrentDevice() {
    if (before_ != device_ && has_context(before_)) {
      static_cast<void>(cudaSetDevice(before_));
    }
  }
  CurrentDevice(const CurrentDevice&) = delete;
  CurrentDevice& operator=(const CurrentDevice&) = delete;

 private:
  int device_;
  int before_ = 0;
};

struct CudaStreamTraits {
  using Handle = cudaStream_t;
  static void release(Handle handle) noexcept { static_cast<void>(cudaStreamDestroy(handle)); }
};

/// A stream that does not wait for the default stream.
class CudaStream {
 public:
  CudaStream() : CudaStream(kUsualPriority) {}
  /// Thread blocks of its kernels are placed before those of other streams that wait as well.
  static CudaStream urgent() {
    int least = 0;
    int greatest = 0;
    check_cuda(cudaDeviceGetStreamPriorityRange(&least, &greatest),
               "cudaDeviceGetStreamPriorityRange");
    return CudaStream(greatest);
  }

  cudaStream_t get() const noexcept { return stream_.get(); }
  void synchronize() const { check_cuda(cudaStreamSynchronize(get()), "cudaStreamSynchronize"); }

 private:
  static constexpr int kUsualPriority = 0;

  explicit CudaStream(int priority) {
    cudaStream_t stream = nullptr;
    check_cuda(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, priority),
               "cudaStreamCreateWithPriority");
    stream_ = UniqueHandle<CudaStreamTraits>(stream);
  }

  UniqueHandle<CudaStreamTraits> stream_;
};

/// Device memory for `size` objects of a type without constructors, aligned to 256 bytes.
template <typename T>
class DeviceBuffer {
 public:
  DeviceBuffer() = default;
  explicit DeviceBuffer(std::size_t size) : size_(size) {
    if (size != 0) {
      void* memory = nullptr;
      check_cuda(cudaMalloc(&memory, size * sizeof(T)), "cudaMalloc");
      memory_ = UniqueHandle<Traits>(static_cast<T*>(memory));
    }
  }

  T* data() const noexcept { return memory_.get(); }
  std::size_t size() const noexcept { return size_; }
  std::span<T> span() const noexcept { return {data(), size_}; }

 private:
  struct Traits {
    using Handle = T*;
    static void release(Handle handle) noexcept { static_cast<void>(cudaFree(handle)); }
  };
  UniqueHandle<Traits> memory_;
  std::size_t size_ = 0;
};

/// Memory of the host that a device copies from and to without the host's help.
class PinnedBuffer {
 public:
  PinnedBuffer() = default;
  explicit PinnedBuffer(std::size_t bytes) {
    if (bytes != 0) {
      void* memory = nullptr;
      check_cuda(cudaMallocHost(&memory, bytes), "cudaMallocHost");
      memory_ = UniqueHandle<Traits>(static_cast<std::byte*>(memory));
    }
  }

  std::byte* data() const noexcept { return memory_.get(); }

 private:
  struct Traits {
    using Handle = std::byte*;
    static void release(Handle handle) noexcept { static_cast<void>(cudaFreeHost(handle)); }
  };
  UniqueHandle<Traits> memory_;
};

/// Both enqueue a copy of spans of equal size; the host's memory must last until it is done.
template <typename T>
void copy_to_device(std::span<const T> from, const DeviceBuffer<T>& to, cudaStream_t stream) {
  check_cuda(
      cudaMemcpyAsync(to.data(), from.data(), from.size_bytes(), cudaMemcpyHostToDevice, stream),
      "cudaMemcpyAsync");
}
template <typename T>
void copy_to_host(const DeviceBuffer<T>& from, std::span<T> to, cudaStream_t stream) {
  check_cuda(
      cudaMemcpyAsync(to.data(), from.data(), to.size_bytes(), cudaMemcpyDeviceToHost, stream),
      "cudaMemcpyAsync");
}

}  // namespace rackrail::runtime
