// What a device and its driver answer now and then, by the emulated one.
#include <catch2/catch.hpp>
#include <cstdlib>
#include <string>

#include "runtime/cuda/factory.hpp"
#include "runtime/cuda/graph.hpp"
#include "tests/support/emulated_gpu/fibers.hpp"

namespace rackrail::runtime::device_status_test {
namespace {

TEST_CASE("asking too early whether an event has passed leaves no error behind") {
  const CudaStream stream;
  const CudaSignal signal;
  signal.record(stream.get());
  emulated_gpu::early_questions = 1;
  CHECK_FALSE(signal.has_passed());
  CHECK(cudaGetLastError() == cudaSuccess);
  CHECK(signal.has_passed());
}

TEST_CASE("a driver that is too old is named with its version and the one that is needed") {
  CHECK_FALSE(cuda_status().unavailable);
  setenv("EMULATED_GPUS", "old driver", 1);
  const std::string reason = cuda_status().unavailable.value_or("");
  unsetenv("EMULATED_GPUS");
  CHECK_THAT(reason, Catch::StartsWith("no GPU: ") &&
                         Catch::EndsWith("the driver is for CUDA 12.0, this build for 13.0"));
}

}  // namespace
}  // namespace rackrail::runtime::device_status_test
