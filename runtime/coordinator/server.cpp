#include "runtime/coordinator/server.hpp"

#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "runtime/coordinator/grpc_setup.hpp"
#include "runtime/coordinator/job_control.hpp"
#include "runtime/coordinator/job_token.hpp"
#include "runtime/coordinator/lasting_ports.hpp"
#include "runtime/coordinator/local_socket.hpp"
#include "runtime/coordinator/service.hpp"

namespace rackrail::runtime {
namespace {

constexpr std::chrono::milliseconds kPortRetry{50};
constexpr std::chrono::seconds kPortPatience{5};

void check(const CoordinatorOptions& options) {
  constexpr std::size_t kLargestPlan = kLargestWelcome / 2;
  if (options.plan.size() > kLargestPlan) {
    throw ConfigError(ErrorContext{.file = "",
                                   .where = "the plan's binary form",
                                   .found = std::to_string(options.plan.size()) + " bytes",
                                   .expected = "at most " + std::to_string(kLargestPlan)});
  }
  if (options.token.empty() && !is_loopback(options.listen.host)) {
    throw ConfigError(ErrorContext{
        .file = "<environment>",
        .where = kJobTokenVariable,
        .found = "nothing",
        .expected = "a secret that all workers have, because the coordinator listens at " +
                    to_string(options.listen)});
  }
  if (!options.is_network_private) {
    require_private(options.listen, options.tls);
  }
}

std::shared_ptr<grpc::ServerCredentials> credentials(const std::optional<TlsCertificates>& tls) {
  if (!tls) {
    return grpc::InsecureServerCredentials();
  }
  grpc::SslServerCredentialsOptions options(
      GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  options.pem_root_certs = tls->authority;
  options.pem_key_cert_pairs = {{.private_key = tls->key, .cert_chain = tls->certificate}};
  return grpc::SslServerCredentials(options);
}

}  // namespace

struct CoordinatorServer::Impl {
  explicit Impl(CoordinatorOptions given) : options(std::move(given)), control(options) {
    check(options);
    if (is_local_meeting(options.listen)) {
      claim.emplace(options.listen);
    }
    prepare_grpc();
    listen();
  }

  ~Impl() {
    if (server != nullptr) {
      control.post([this] { control.end_all("the coordinator was shut down"); });
      server->Shutdown(std::chrono::system_clock::now() + std::chrono::seconds(1));
    }
    service.wait_for_streams();
    control.finish();
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  /// What is kept names the address, for those who come back after a kill: see lasting_ports().
  void listen() {
    if (options.recovered) {
      const auto deadline = std::chrono::steady_clock::now() + kPortPatience;
      while (!listens_at(options.listen.port) && std::chrono::steady_clock::now() < deadline) {
        std::this_thread::sleep_for(kPortRetry);
      }
    } else if (options.keep && options.listen.port == 0) {
      const std::vector<std::uint16_t> ports = lasting_ports();
      std::ignore = std::any_of(ports.begin(), ports.end(),
                                [this](std::uint16_t port) { return listens_at(port); }) ||
                    listens_at(0);
    } else {
      listens_at(options.listen.port);
    }
    if (server == nullptr) {
      throw RuntimeFailure("the coordinator cannot listen at " + to_string(options.listen) +
                           ": the port is taken or the address is not of this host");
    }
  }

  bool listens_at(std::uint16_t given) {
    grpc::ServerBuilder builder;
    int port = 0;
    // Otherwise two coordinators could share a port, and each would get some of the workers.
    builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
    builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, kMostCallsAtOnce);
    // What may come over a stream before somebody reads it does not grow with the connection's
    // rate.
    builder.AddChannelArgument(GRPC_ARG_HTTP2_BDP_PROBE, 0);
    builder.SetMaxReceiveMessageSize(kLargestReport);
    builder.AddListeningPort(grpc_address({options.listen.host, given}), credentials(options.tls),
                             &port);
    calls = service.calls();
    builder.RegisterCallbackGenericService(calls.get());
    server = builder.BuildAndStart();
    if (server == nullptr || port <= 0) {
      server.reset();
      return false;
    }
    address = {options.listen.host, static_cast<std::uint16_t>(port)};
    return true;
  }

  CoordinatorOptions options;
  std::optional<MeetingClaim> claim;
  HostPort address;
  JobControl control;
  CoordinatorService service{control, options};
  std::unique_ptr<grpc::CallbackGenericService> calls;
  std::unique_ptr<grpc::Server> server;  // last: its threads use everything above
};

CoordinatorServer::CoordinatorServer(CoordinatorOptions options)
    : impl_(std::make_unique<Impl>(std::move(options))) {}

CoordinatorServer::~CoordinatorServer() = default;

const HostPort& CoordinatorServer::address() const { return impl_->address; }

void CoordinatorServer::stop(const std::string& reason) { impl_->control.stop(reason); }

bool CoordinatorServer::has_started() const { return impl_->control.has_started(); }

void CoordinatorServer::worker_ended(Rank seat, std::int64_t pid) {
  impl_->control.post([&control = impl_->control, seat, pid] { control.worker_ended(seat, pid); });
}

std::optional<CoordinatorOutcome> CoordinatorServer::wait_for(Duration at_most) {
  return impl_->control.wait_for(at_most);
}

}  // namespace rackrail::runtime
