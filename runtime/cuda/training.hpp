// What the rest of the runtime sees of training on a GPU. No CUDA header is seen here; a build
// without CUDA has the same functions, which say that it has none.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/trainer/compute.hpp"

namespace rackrail::runtime {

/// The GPUs that this process sees, in its order, each by its address on the machine's bus, which
/// is the same for every process. None where there is no GPU, whatever the reason: cuda_status()
/// has it.
std::vector<std::string> cuda_devices();

struct CublasStatus {
  std::optional<std::string> unavailable;  ///< why there is no cuBLAS here
  std::string detail;                      ///< else its file
};
/// Loads it, which takes a moment.
CublasStatus cublas_status();

/// A trainer's place on device `device` (0, 1, …); the calling thread's device from then on, and
/// used by this thread alone. Throws RuntimeFailure with the reason where there is none.
std::shared_ptr<trainer::Compute> make_cuda_compute(int device);

}  // namespace rackrail::runtime
