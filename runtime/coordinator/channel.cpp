#include "runtime/coordinator/channel.hpp"

#include <grpcpp/grpcpp.h>

#include "runtime/coordinator/grpc_setup.hpp"
#include "runtime/coordinator/local_socket.hpp"

namespace rackrail::runtime {
namespace {

std::shared_ptr<grpc::ChannelCredentials> credentials(const std::optional<TlsCertificates>& tls,
                                                      grpc::ChannelArguments& arguments) {
  if (!tls) {
    return grpc::InsecureChannelCredentials();
  }
  arguments.SetSslTargetNameOverride(kCoordinatorTlsName);
  return grpc::SslCredentials({.pem_root_certs = tls->authority,
                               .pem_private_key = tls->key,
                               .pem_cert_chain = tls->certificate});
}

}  // namespace

std::shared_ptr<grpc::Channel> make_channel(const HostPort& coordinator,
                                            const std::optional<TlsCertificates>& tls) {
  prepare_grpc();
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(kLargestWelcome);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);  // an address in the cluster, not on the web
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  // The coordinator may come a little later than its workers: ask often.
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 1000);
  const auto how = credentials(tls, arguments);
  return grpc::CreateCustomChannel(grpc_address(coordinator), how, arguments);
}

}  // namespace rackrail::runtime
