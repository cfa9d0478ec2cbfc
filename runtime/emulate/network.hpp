// An emulated network that exists: made by the constructor, gone with the object.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "base/ids.hpp"
#include "runtime/emulate/namespaces.hpp"
#include "runtime/emulate/network_plan.hpp"
#include "runtime/launch/spawn.hpp"

namespace rackrail::runtime::emulate {

/// Port of the coordinator on the host of rank 0, for launched jobs: nobody else is there.
inline constexpr int kCoordinatorPort = 29'500;

class EmulatedNetwork {
 public:
  /// Removes what dead emulations left, and builds. Throws RuntimeFailure where namespaces cannot
  /// be made, iproute2 is missing or one of its commands fails; nothing stays behind then.
  explicit EmulatedNetwork(NetworkPlan plan);
  /// Ends what still runs in it.
  ~EmulatedNetwork();
  EmulatedNetwork(const EmulatedNetwork&) = delete;
  EmulatedNetwork& operator=(const EmulatedNetwork&) = delete;

  const NetworkPlan& plan() const { return plan_; }
  const NetworkNamespace& station(std::size_t index) const { return stations_[index]; }
  /// Where the leader of a job listens, at kLeaderAddress: unshaped, and joined to all hosts.
  const NetworkNamespace& management() const { return management_; }

  /// Has a child run as this rank: in its host's namespace and under its host's name, with
  /// gradients over the shaped interfaces alone: by the first one, or by that which is an adapter
  /// of the plan. Adds to the environment UCX_TLS and UCX_NET_DEVICES (what would go through shared
  /// memory instead is no network), RACKRAIL_ADAPTERS, GLOO_SOCKET_IFNAME and NCCL_SOCKET_IFNAME.
  void place(ChildCommand& command, Rank rank) const;
  /// What makes it a rank of a launched job besides (runtime/launch/environment.hpp):
  /// RACKRAIL_RANK, _WORLD_SIZE, _LOCAL_RANK, _COORDINATOR, and the token. `number` is its own in a
  /// job of these ranks of the network.
  void launch(ChildCommand& command, Rank number, const std::vector<Rank>& ranks,
              const std::string& token) const;

 private:
  NetworkPlan plan_;
  NetworkNamespace management_;
  std::vector<NetworkNamespace> stations_;
  std::vector<NamespaceName> names_;
};

}  // namespace rackrail::runtime::emulate
