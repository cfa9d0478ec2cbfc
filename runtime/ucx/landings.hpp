// Messages that have arrived in UCX's memory and shall lie in a GPU's: UCX keeps each until it was
// copied there.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <vector>

#include "runtime/transport.hpp"
#include "runtime/ucx/handles.hpp"
#include "runtime/ucx/peers.hpp"

namespace rackrail::runtime {

/// Stays where it is. Its copies end in ucp_worker_progress(), in which it must still be there.
class UcxLandings {
 public:
  /// `memory`: of landings, as UCX calls it; none: there will be none.
  explicit UcxLandings(std::optional<ucs_memory_type_t> memory) : memory_(memory) {}
  UcxLandings(const UcxLandings&) = delete;
  UcxLandings& operator=(const UcxLandings&) = delete;

  /// A message of `peer` that UCX was told to keep, for start(); `landing.memory` has its size.
  void add(UcxPeer& peer, const UcpWorker& worker, void* data, Landing landing);
  /// Has UCX copy what was added since: not from its callbacks. A copy that fails fails the peer.
  /// Returns how many.
  std::size_t start();
  /// Copies that UCX has not ended yet.
  std::size_t under_way() const { return under_way_; }
  /// Gives back what start() has not taken.
  void drop();

 private:
  struct Arrived {
    UcxPeer* peer = nullptr;
    const UcpWorker* worker = nullptr;
    void* data = nullptr;
    Landing landing;
  };
  /// One that is being copied.
  struct Copy {
    UcxLandings* landings = nullptr;
    UcxPeer* peer = nullptr;
    std::function<void(bool)> done;
  };

  void finish(const Copy& copy, ucs_status_t status);
  static void on_landed(void* request, ucs_status_t status, std::size_t length, void* user_data);

  std::optional<ucs_memory_type_t> memory_;
  std::vector<Arrived> arrived_;
  std::size_t under_way_ = 0;
};

}  // namespace rackrail::runtime
