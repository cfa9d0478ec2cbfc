// Questions to a topology: routes, cuts and bounds.
//
// Routes are shortest by latency, then by number of links, then widest at the bottleneck; or by the
// time of a message, or number of links, first (Distance). Equal ones (ECMP) are told apart by a
// hash of the two ranks, so that a pair always takes the same route and different pairs spread;
// inside the machine of either end, by the rank's number in it, so that GPUs use one near NIC each.
// Routes pass through another rank's vertex only where that is the only way (rings and tori of
// linked GPUs).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/ids.hpp"
#include "base/units.hpp"
#include "topology/topology.hpp"

namespace rackrail::topology {

/// Links from the source's vertex to the destination's, in order; empty only for src == dst.
using Route = std::vector<LinkId>;

/// What of all bytes passes a link, above 0 and at most 1.
struct LinkShare {
  LinkId link;
  double share = 1;
};

/// Which of several equal routes between switches a pair takes.
enum class EqualRoutes : std::uint8_t {
  kHashed,  ///< one by a hash of the two ranks, as networks choose
  kDealt,   ///< what the source's turn is: ranks of a rack take equal routes in turn, as evenly as
            ///< they divide, so that where a cluster is symmetric its routes are, too
};

/// Which routes are shortest.
enum class Distance : std::uint8_t {
  kLatency,  ///< of least latency, then of fewest links: what a plan takes, where it may choose
  kMessage,  ///< likewise, with what a message of kRoutedMessage takes on each link on its own
             ///< added to its latency: a slow cable is no short cut
  kHops,     ///< as switches choose, who do not know how long cables are: of fewest links, among
             ///< those of least latency inside machines, which leave by the NIC that is near, and
             ///< only for another machine
};

inline constexpr Bytes kRoutedMessage = 256_KiB;

/// Route lookups with a cache. Not safe for concurrent use; cheap to make. The topology
/// must outlive it and must not change; routes stay valid as long as the router.
class Router {
 public:
  /// Another `seed` is another hash for equal routes; plans are made with 0.
  explicit Router(const Topology& topology, std::uint64_t seed = 0);
  Router(const Topology& topology, Distance distance, std::uint64_t seed = 0);
  Router(const Topology& topology, Distance distance, EqualRoutes equal);
  ~Router();
  Router(Router&&) noexcept;
  Router& operator=(Router&&) noexcept;
  Router(const Router&) = delete;
  Router& operator=(const Router&) = delete;

  /// Throws ConfigError when there is no way from src to dst.
  const Route& route(Rank src, Rank dst);

  /// Routes of the cost and width of route(), at most so many: the one first that is dealt to the
  /// source (EqualRoutes::kDealt), whichever route() takes; what the machine of either end decides
  /// stays decided. None for src == dst. Throws as route().
  std::vector<Route> equal_routes(Rank src, Rank dst, std::size_t most);

  /// All routes of the cost and width of route() with equal parts of what is sent, by link, in the
  /// order of the cost of their ends; what the machine of either end decides stays decided. None
  /// for src == dst. O(links of those routes). Throws as route().
  std::vector<LinkShare> spread(Rank src, Rank dst);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

Duration route_latency(const Topology& topology, const Route& route);
/// No collective takes less, however small: each rank has something that each other one needs, so
/// the least latency between two ranks that are far from each other, as three sweeps from rank to
/// farthest rank find them; on most clusters the largest of all pairs. O(links · log vertices).
Duration latency_bound(const Topology& topology);
/// What one message gets on the idle route: the smallest bandwidth, or Link::flow_bandwidth. The
/// route must not be empty.
Bandwidth route_bandwidth(const Topology& topology, const Route& route);

/// Rates of the copies of a message that is staged in host memory (Node::host_staging), at its
/// sender and at its receiver; 0: it is not.
struct Staging {
  Bandwidth out;
  Bandwidth in;
};
/// Of messages from src to dst over these links: none inside one host, and none over NVLink alone.
Staging staging_between(const Topology& topology, Rank src, Rank dst,
                        std::span<const LinkId> links);

/// A directed cut: the ranks and vertices on the source side, and what leaves it.
struct Cut {
  std::vector<NodeId> source_side;
  std::size_t ranks_inside = 0;
  std::vector<LinkId> links;  ///< links that leave the source side
  Bandwidth capacity;         ///< sum of their bandwidths
};

/// The smaller of the cut's two sides, by racks where they are whole, else by hosts, else by ranks,
/// and whether the cut's links leave or enter it: "24 ranks of rack2, rack3, leaving". `reversed`:
/// a cut whose links enter its source side, as those of reducescatter_bound do.
std::string describe(const Topology& topology, const Cut& cut, bool reversed = false);
/// The same with what its links share and some of their names: "… can send at most 80 GB/s together
/// (u5, u6)".
std::string describe_with_links(const Topology& topology, const Cut& cut, bool reversed = false);

/// Largest flow from one vertex to another and a smallest cut that proves it.
struct MaxFlow {
  Bandwidth value;
  Cut cut;
};
MaxFlow max_flow(const Topology& topology, NodeId from, NodeId to);

/// Bound of all-gather: no schedule moves M bytes in less than (M/n) · p/q seconds, where p/q = max
/// over cuts S of |ranks in S| / capacity leaving S, which trees reach where every switch can send
/// as much as it receives (Zhao et al., arXiv 2402.06787). Newton's method on max-flows, exact.
struct AllGatherBound {
  /// Ranks behind the binding cut, reduced by the common factor; 0 where the optimum is known to
  /// some digits only.
  std::int64_t p = 0;
  std::int64_t q = 1;  ///< capacity of the cut in bytes/s, reduced by the common factor
  Cut cut;             ///< the certificate; where no single cut is it, the tightest one
  Bandwidth algbw;     ///< n · q/p: bytes of the whole result per second, rounded down
  /// k of the optimal forest; 0 where no cut is the certificate.
  std::int64_t trees_per_root = 0;
  /// Of allgather_optimum() where no single cut binds: which do together.
  std::string reason;
  /// Of allgather_optimum() where switches do not send what they receive: bytes/s on each link
  /// that reach it, with which they do.
  std::vector<double> rates;
  LinkId widest;  ///< a link of those that bind
  /// Whether what trees reach may be less.
  bool may_be_out_of_reach = false;
};
AllGatherBound allgather_bound(const Topology& topology);
/// The same on the reversed graph.
AllGatherBound reducescatter_bound(const Topology& topology);
/// What trees can reach: the bound, or where switches cannot pass on all that they receive, or
/// receive less than they could pass on, the optimum over what they can. Exact as
/// joint_allreduce_bound is; above 256 ranks, and in builds without a solver for linear programs,
/// it is the bound there, and says that it may be out of reach. With `in_network`, switches that
/// say they multicast (reduce, for a reduce-scatter) may pass on more (less) than they receive;
/// where none says so, all that stand in the network. No such trees are made yet.
AllGatherBound allgather_optimum(const Topology& topology, bool in_network = false);
AllGatherBound reducescatter_optimum(const Topology& topology, bool in_network = false);
/// The same cluster with the link, and the opposite one where there is one, twice as wide: what a
/// second cable there, or bundle of cables, would make of it.
Topology with_wider_link(const Topology& topology, LinkId link);

/// A lower bound for the time of any all-reduce without reduction in the network: of 1 byte per
/// rank, as seconds per byte, with the cut or partition that gives it.
///
/// Two facts give it. Any cut that parts two ranks must carry the whole sum (M bytes) in each
/// direction: T ≥ M / min-cut. And if the ranks are parted into k groups, at least 2(k−1) messages
/// of each element must enter groups (k−1 before the first group knows the sum, k−1 after it), and
/// have left others, so T ≥ 2(k−1)·M / Σ (capacity into the groups, or out of them). Partitions
/// tried: single ranks, hosts, racks; what may enter or leave a group is the smallest cut between
/// its ranks and what is outside it.
struct AllReduceBound {
  /// T/M is p/q seconds per byte, reduced by the common factor; p is 0 where it is known to some
  /// digits only.
  std::int64_t p = 0;
  std::int64_t q = 1;
  Bandwidth algbw;               ///< M/T, rounded down
  std::string reason;            ///< "cut: 1 rank of host3, …" or "partition into 8 hosts: …"
  Cut cut;                       ///< the certificate where a single cut binds
  std::optional<LinkId> widest;  ///< a link of those that bind, whose width would give most
  /// Whether the joint optimum, which may be less, was not looked for, or not to the end.
  bool may_be_out_of_reach = false;
};
AllReduceBound allreduce_bound(const Topology& topology, bool in_network = false);
/// Whether any vertex says that it multicasts or reduces; else, in the network, all switches may.
bool says_what_switches_do(const Topology& topology);

/// The joint optimum of all-reduce over free root weights, where reduction and broadcast share the
/// links (topology/joint_allreduce_bound.cpp): never above `allreduce_bound`, and what trees can
/// reach. With `in_network`, the switches that say they multicast or reduce may; where none says
/// so, all may. Exact where p says so, as nearly always, else to about 1e-6; above 256 ranks that
/// differ (alike_ranks.hpp) or 1,024 in all, and without a solver for linear programs, it is
/// `allreduce_bound`, and says so where less is known to be reached.
AllReduceBound joint_allreduce_bound(const Topology& topology, bool in_network = false);

/// How the joint optimum without reduction in the network is reached, in bytes per second.
struct JointAllReduce {
  double algbw = 0;
  std::vector<double> roots;      ///< by rank: what is summed there and broadcast from there
  std::vector<double> broadcast;  ///< by link
  std::vector<double> reduction;  ///< by link
};
/// None where a reduce-scatter followed by an all-gather is as good, where there is no solver, and
/// above 64 ranks. Rates may be a little too small where the search for cuts was broken off.
std::optional<JointAllReduce> joint_allreduce(const Topology& topology);

}  // namespace rackrail::topology
