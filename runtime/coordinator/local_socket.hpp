// Where processes of one user on one host meet without a port that others could take or reach: a
// Unix socket in a folder that only this user can enter.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "runtime/coordinator/host_port.hpp"

namespace rackrail::runtime {

/// The meeting place of this name: the same for all processes of this user on this host.
HostPort local_meeting(std::string_view name);
bool is_local_meeting(const HostPort& address);

/// Its socket: in /tmp/rackrail-<user id>, which is made (mode 700). Throws ConfigError where
/// somebody else has made that folder or can enter it.
std::filesystem::path local_socket(const HostPort& meeting);

/// Holds a meeting place, so that a second job of the same name cannot take its socket away. A
/// killed process holds nothing.
class MeetingClaim {
 public:
  /// Throws RuntimeFailure where another process holds it, and as local_socket().
  explicit MeetingClaim(const HostPort& meeting);
  ~MeetingClaim();
  MeetingClaim(const MeetingClaim&) = delete;
  MeetingClaim& operator=(const MeetingClaim&) = delete;

 private:
  std::filesystem::path lock_;
  int descriptor_ = -1;
};

/// What gRPC calls the address: host:port, or its socket (which throws as local_socket()).
std::string grpc_address(const HostPort& address);

}  // namespace rackrail::runtime
