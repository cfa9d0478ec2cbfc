// Distinct integer types for the things that have numbers, so that a rank is never taken for a
// vertex. Ids count from 0 and index the containers of the object that gave them out.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>

namespace rackrail {

/// An index that belongs to one kind of thing only. `Tag` is never defined.
template <typename Tag>
class Id {
 public:
  constexpr Id() = default;
  constexpr explicit Id(std::uint32_t value) : value_(value) {}
  constexpr explicit Id(std::size_t value) : value_(static_cast<std::uint32_t>(value)) {}
  constexpr explicit Id(int value) : value_(static_cast<std::uint32_t>(value)) {}

  constexpr std::uint32_t value() const { return value_; }
  constexpr std::size_t index() const { return value_; }
  constexpr auto operator<=>(const Id&) const = default;

 private:
  std::uint32_t value_ = 0;
};

using NodeId = Id<struct NodeTag>;          ///< a vertex of a topology
using LinkId = Id<struct LinkTag>;          ///< a directed link of a topology
using Rank = Id<struct RankTag>;            ///< a participant of a collective
using TransferId = Id<struct TransferTag>;  ///< a transfer of one transfer graph
using BucketId = Id<struct BucketTag>;      ///< a bucket of one plan, in launch order
using RouteId = Id<struct RouteTag>;        ///< a route in the route table of one transfer graph

}  // namespace rackrail

template <typename Tag>
struct std::hash<rackrail::Id<Tag>> {
  std::size_t operator()(const rackrail::Id<Tag>& id) const noexcept {
    return std::hash<std::uint32_t>{}(id.value());
  }
};
