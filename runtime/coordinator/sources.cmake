# Read by runtime/CMakeLists.txt; paths are relative to runtime/.
rackrail_add_proto(rackrail_coordinator_proto PROTO coordinator/coordinator.proto GRPC)
set(RACKRAIL_COORDINATOR_SOURCES
  coordinator/certificates.cpp
  coordinator/channel.cpp
  coordinator/client.cpp
  coordinator/grpc_setup.cpp
  coordinator/host_port.cpp
  coordinator/inquiry.cpp
  coordinator/job_control.cpp
  coordinator/job_inquiries.cpp
  coordinator/job_newcomers.cpp
  coordinator/job_regroup.cpp
  coordinator/job_store.cpp
  coordinator/job_token.cpp
  coordinator/lasting_ports.cpp
  coordinator/local_socket.cpp
  coordinator/member_calls.cpp
  coordinator/membership.cpp
  coordinator/messages.cpp
  coordinator/own_addresses.cpp
  coordinator/pair_rates.cpp
  coordinator/regroup.cpp
  coordinator/server.cpp
  coordinator/service.cpp
  coordinator/status_messages.cpp
  coordinator/task_thread.cpp
  coordinator/tls.cpp)
set(RACKRAIL_COORDINATOR_LIBRARIES rackrail_coordinator_proto fmt::fmt PkgConfig::SQLITE
  OpenSSL::Crypto)
