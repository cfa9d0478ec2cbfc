// The calls of the coordinator's service: what a member or a visitor says, made an act of the job.
#pragma once

#include <memory>

namespace grpc {
class CallbackGenericService;
}  // namespace grpc

namespace rackrail::runtime {

class JobControl;
struct CoordinatorOptions;

/// Answers coordinator.proto's calls. They come as those of a generic service, because one that
/// protoc generates is handed each call together with its message, which by then has taken its
/// memory, whoever sent it. Calls of a generic service begin with their metadata: who may not talk
/// is answered by these alone, and of his message nothing is taken in but what HTTP/2 allows on any
/// stream before somebody reads it (64 KiB, as the server does not let it grow). What goes over the
/// wire is the same.
class CoordinatorService {
 public:
  /// Both outlive the service.
  CoordinatorService(JobControl& control, const CoordinatorOptions& options);
  ~CoordinatorService();
  CoordinatorService(const CoordinatorService&) = delete;
  CoordinatorService& operator=(const CoordinatorService&) = delete;

  /// What one gRPC server hands its calls to. A server keeps it, also one that then cannot listen:
  /// so each has its own. The service outlives it.
  std::unique_ptr<grpc::CallbackGenericService> calls();

  /// Returns once no member's stream is open: after the server was shut down, before the end of the
  /// job's control.
  void wait_for_streams();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace rackrail::runtime
