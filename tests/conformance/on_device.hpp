// Arrays on a device as a program gives them to the C interface.
#pragma once

#include <span>
#include <utility>
#include <vector>

#include "runtime/cuda/handles.hpp"
#include "tests/unit/runtime/capi/ranks.hpp"

namespace rackrail::test {

/// Values that a stream of the program's has put on the device.
struct OnDevice {
  OnDevice(std::vector<float> values, const runtime::CudaStream& stream)
      : memory(values.size()), host(std::move(values)), stream_of(stream) {
    runtime::copy_to_device<float>(host, memory, stream_of.get());
  }

  rackrail_buffer buffer() const {
    rackrail_buffer result = buffer_of(memory.data(), memory.size());
    result.device = RACKRAIL_CUDA;
    result.stream = stream_of.get();
    return result;
  }
  const std::vector<float>& read() {
    runtime::copy_to_host(memory, std::span(host), stream_of.get());
    stream_of.synchronize();
    return host;
  }

  runtime::DeviceBuffer<float> memory;
  std::vector<float> host;
  const runtime::CudaStream& stream_of;
};

}  // namespace rackrail::test
