// The schedule of one collective as data: who sends which part of a buffer to whom, after what.
//
// Model. n ranks each hold a buffer of E floats. The buffer is divided into chunks in proportion
// to integer weights, so a graph is independent of E. A transfer moves a range of chunks from one
// rank to another and there copies or adds it, in place. Interpreters (verifier, simulator,
// executor) follow these rules and nothing else:
//
//  1. A transfer reads its chunk range at `src` and writes the same range at `dst`.
//  2. Slices. A range of e elements moves in max(1, ⌈e / slice_elements⌉) slices (the bucket says
//     how large). Slice k of a transfer may start when slice k of every dependency with the same
//     chunk range is done, and when every slice of each other dependency is done. Ranges of no
//     elements are not sent and count as done.
//  3. A dependency is something the sender can see. It ends at `src` (dep.dst == src; done =
//     applied to the buffer) or starts there (dep.src == src; done = read and encoded).
//  4. Ids are a topological order: a dependency has a smaller id. Everything that touches the same
//     chunk of the same rank is ordered by dependencies, except reads among themselves and
//     additions among themselves; additions are applied in the order of their ids (so sums are the
//     same in every run). A chain of dependencies counts only as far as its transfers move that
//     chunk too: any other chunk may be empty in a small buffer, and then orders nothing.
//  5. Transfers of the same (src, dst) pair over the same route leave in the order of their ids,
//     slice by slice.
//  6. Codecs. A lossy transfer sends C(x) of its range, slice by slice; other ranges of the same
//     elements have other codes, unless the codec works element by element. For a copy the sender
//     also replaces its own x by D(C(x)), which is a write that makes a new version. Copies of one
//     version of one range with one codec send the same bytes, encoded once, and so do reductions;
//     a range that arrived with a copy in the same codec is forwarded as it came.
//     encoding_source.hpp works out which is which. So after an all-reduce all ranks hold the same
//     bits. For rule 4, transfers that send the same bytes need not be ordered among themselves,
//     though the first one writes.
//  7. Groups. Copies of one range out of one rank, or additions of one into one rank, may be one
//     operation of the network's switches. plan/in_network.hpp says when, and which links the bytes
//     then pass, several times where switches only forward them. The members have consecutive ids
//     and do not wait for each other. Slice k of all of them moves together, when it may start for
//     each. Groups over the same tree of links leave in the order of their ids, but rule 5 does not
//     order them among transfers of their own. Where switches lack these abilities, the members are
//     sent one by one, by rules 1 to 6. The result is then the same, except for the order of
//     additions.
//  8. Rates. A route may have a rate: a transfer over it (a group: over the slowest of its routes)
//     moves no faster in the mean, counting encoded bytes. The runtime holds those of several
//     buckets to it together, and lets each slice go in one piece (plan/send_pace.hpp); so does the
//     simulator where it knows a sender's cores, else no slice moves faster. Where trees of unequal
//     shares meet on a link, none waits at its rate.
//  9. Mutual sums. Additions of one range in FP32 between each two of several ranks, in both
//  directions, may
//     be a mutual sum (plan/mutual_sum.hpp): each member sends what it had before, and then has the
//     sum of all in the order of ranks. So the addition of a slice waits until its destination's
//     own transfers of the sum have read that slice. The members have consecutive ids and do not
//     wait for each other.
//
// An all-reduce is right when every rank ends with each rank's contribution exactly once
// (plan/verifier.hpp).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/ids.hpp"
#include "base/units.hpp"
#include "plan/codec.hpp"

namespace rackrail::plan {

enum class TransferOp : std::uint8_t { kCopy, kReduce };

enum class Collective : std::uint8_t { kAllReduce, kReduceScatter, kAllGather };

struct Transfer {
  Rank src;
  Rank dst;
  std::uint32_t chunk_begin = 0;
  std::uint32_t chunk_count = 1;
  TransferOp op = TransferOp::kCopy;
  std::uint8_t codec = 0;  ///< index into TransferGraph::codecs()
  RouteId route{};         ///< index into TransferGraph::routes()
};

/// Transfers [first, first + count): an operation of switches (rule 7) or a mutual sum (rule 9).
struct TransferGroup {
  TransferId first;
  std::uint32_t count = 0;
};

/// Half-open range of elements of a buffer.
struct ElementRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::int64_t size() const { return end - begin; }
};

class TransferGraph {
 public:
  TransferGraph() = default;
  /// `chunk_weights` must be non-empty with a positive sum; throws PlanError otherwise.
  TransferGraph(std::string name, Collective collective, std::size_t rank_count,
                std::vector<std::uint32_t> chunk_weights);

  const std::string& name() const { return name_; }
  /// How it was made: the mechanism and its parameters, for people ("rail rings, 24 rounds"); empty
  /// where the name says it.
  const std::string& mechanism() const { return mechanism_; }
  void set_mechanism(std::string mechanism) { mechanism_ = std::move(mechanism); }
  /// "hierarchical: rail rings, 24 rounds".
  std::string label() const { return mechanism_.empty() ? name_ : name_ + ": " + mechanism_; }
  Collective collective() const { return collective_; }
  std::size_t rank_count() const { return rank_count_; }
  std::size_t chunk_count() const { return chunk_weights_.size(); }
  std::span<const std::uint32_t> chunk_weights() const { return chunk_weights_; }
  std::span<const Transfer> transfers() const { return transfers_; }
  const Transfer& transfer(TransferId id) const { return transfers_[id.index()]; }
  std::span<const TransferId> dependencies(TransferId id) const;
  std::span<const Codec> codecs() const { return codecs_; }
  /// A route is the links from src to dst; an empty one means that none is pinned. Route 0 is
  /// always empty.
  std::span<const std::vector<LinkId>> routes() const { return routes_; }
  /// By route, the most that a transfer gets on it (rule 8); 0: no limit.
  std::span<const Bandwidth> rates() const { return rates_; }
  Bandwidth rate(RouteId route) const { return rates_[route.index()]; }
  bool has_rates() const;

  /// In the order of their first transfers; they do not overlap.
  std::span<const TransferGroup> groups() const { return groups_; }
  /// The same of mutual sums.
  std::span<const TransferGroup> mutual_sums() const { return mutual_sums_; }

  /// Codec 0 is always "none". Returns the index of an equal codec if there is one.
  std::uint8_t add_codec(const Codec& codec);
  /// All transfers send FP32 from now on.
  void remove_codecs();
  /// Adds a route for several transfers to share; an empty one is route 0, and has no rate. Throws
  /// PlanError when the rate is negative.
  RouteId add_route(std::vector<LinkId> links, Bandwidth rate = {});
  /// Appends; `dependencies` are ids given out before, so ids are a topological order. Throws
  /// PlanError when an index is out of range or src == dst.
  TransferId add_transfer(const Transfer& transfer, std::span<const TransferId> dependencies);
  /// Makes the transfers from `first` on, `count` of them, a group. Throws PlanError unless there
  /// are at least two and all exist and come after the last group. What else a group must be is the
  /// verifier's to say.
  void add_group(TransferId first, std::uint32_t count);
  /// Makes them a mutual sum; throws as add_group() does.
  void add_mutual_sum(TransferId first, std::uint32_t count);
  /// Those of another graph, whose transfers these are.
  void add_groups_of(const TransferGraph& other);
  void add_mutual_sums_of(const TransferGraph& other);
  void reserve(std::size_t transfers, std::size_t dependencies);

  /// Elements [begin, end) of chunks [begin, begin + count) of a buffer of `elements`.
  ElementRange range(std::uint32_t chunk_begin, std::uint32_t chunk_count,
                     std::int64_t elements) const;
  ElementRange range(const Transfer& t, std::int64_t elements) const {
    return range(t.chunk_begin, t.chunk_count, elements);
  }

  /// For reduce-scatter and all-gather: the rank that owns each chunk at the end (at the start).
  /// Empty for all-reduce.
  std::span<const Rank> owners() const { return owners_; }
  /// One rank per chunk; throws PlanError for another count, an unknown rank or an all-reduce.
  void set_owners(std::vector<Rank> owners);

 private:
  void add_to(std::vector<TransferGroup>& groups, const char* what, TransferId first,
              std::uint32_t count) const;

  std::string name_;
  std::string mechanism_;
  Collective collective_ = Collective::kAllReduce;
  std::size_t rank_count_ = 0;
  std::vector<std::uint32_t> chunk_weights_;
  std::vector<std::uint64_t> cumulative_weights_;
  std::vector<Transfer> transfers_;
  std::vector<std::uint32_t> dependency_begin_{0};
  std::vector<TransferId> dependencies_;
  std::vector<TransferGroup> groups_;
  std::vector<TransferGroup> mutual_sums_;
  std::vector<Codec> codecs_{Codec{}};
  std::vector<std::vector<LinkId>> routes_{std::vector<LinkId>{}};
  std::vector<Bandwidth> rates_{Bandwidth{}};  // by route
  std::vector<Rank> owners_;
};

/// By route of the graph: the first that has the same links (rule 5 knows no difference, whatever
/// their rates).
std::vector<RouteId> distinct_routes(const TransferGraph& graph);

/// Number of slices of a range, and the elements of one of them relative to the buffer. A range of
/// no elements has no slices. `slice_elements` is positive (PlanError otherwise), `index` below the
/// number of slices.
std::int64_t slice_count(ElementRange range, std::int64_t slice_elements);
ElementRange slice(ElementRange range, std::int64_t slice_elements, std::int64_t index);

}  // namespace rackrail::plan
