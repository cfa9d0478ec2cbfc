// A build that has no CUDA.
#include "base/error.hpp"
#include "runtime/cuda/factory.hpp"
#include "runtime/nccl/plan_executor.hpp"

namespace rackrail::runtime {

std::unique_ptr<PlanExecutor> make_device_plan_executor(const plan::Plan& /*plan*/, Rank /*self*/,
                                                        Transport& /*transport*/,
                                                        const DevicePlanOptions& /*options*/) {
  throw RuntimeFailure(*cuda_status().unavailable);
}

}  // namespace rackrail::runtime
