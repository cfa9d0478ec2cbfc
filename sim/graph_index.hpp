// A transfer graph prepared for interpretation: who waits for whom, in which order transfers leave
// a rank, and which encoding each lossy transfer sends. Made once per (graph, elements, slice
// size).
#pragma once

#include <cstdint>
#include <vector>

#include "plan/encoding_source.hpp"
#include "plan/transfer_graph.hpp"
#include "topology/queries.hpp"

namespace rackrail::sim {

struct TransferInfo {
  plan::ElementRange range;
  std::uint32_t slices = 0;       ///< 0: moves nothing
  std::uint32_t first_slice = 0;  ///< index of slice 0 in arrays over all slices
  std::uint32_t channel = 0;
  std::uint32_t whole_waits = 0;       ///< dependencies of which every slice must be done
  std::uint32_t slice_waits = 0;       ///< dependencies of which the same slice must be done
  std::uint32_t additions_before = 0;  ///< additions at its receiver that must be applied first
  plan::EncodingKind encoding = plan::EncodingKind::kOwn;
  std::uint32_t encoded_by = 0;  ///< kShared: the transfer that encodes
};

/// Transfers of one (src, dst) pair, in the order in which they leave.
struct Channel {
  Rank src;
  Rank dst;
  std::vector<std::uint32_t> transfers;
};

struct Dependent {
  std::uint32_t transfer = 0;
  bool whole = false;
};

struct GraphIndex {
  GraphIndex(const plan::TransferGraph& graph, std::int64_t elements, std::int64_t slice_elements,
             topology::Router& router);

  const plan::TransferGraph& graph;
  std::int64_t slice_elements;
  std::vector<TransferInfo> transfers;
  std::vector<Channel> channels;
  std::vector<std::uint32_t> dependents_begin;  ///< per transfer, into `dependents`
  std::vector<Dependent> dependents;
  /// Per transfer, the additions that may be applied after it; empty when no order is needed.
  std::vector<std::vector<Dependent>> next_additions;
  std::vector<topology::Route> routes;  ///< per channel, where transfers have none pinned
  std::vector<std::vector<std::uint32_t>> channels_of;  ///< by source rank
  std::uint32_t slice_count = 0;

  /// Links of a transfer: pinned by the graph, else the topology's route.
  const topology::Route& route(std::uint32_t transfer) const {
    const auto& pinned = graph.routes()[graph.transfers()[transfer].route.index()];
    return pinned.empty() ? routes[transfers[transfer].channel] : pinned;
  }

 private:
  void order_additions();
};

}  // namespace rackrail::sim
