// A cluster as a directed graph: devices and switches joined by links.
//
// Vertices are typed (NodeKind), links have a bandwidth and a latency, and the participants of
// collectives (ranks) are some of the vertices, numbered 0..n-1 in the order in which they were
// added. A cable that works in both directions is two links. The graph is a Boost.Graph inside;
// no Boost header is reachable from here.
//
// A Topology is a value: copies are independent. Reading is safe from several threads.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.hpp"
#include "base/units.hpp"
#include "topology/device_figures.hpp"

namespace rackrail::topology {

enum class NodeKind : std::uint8_t {
  kGpu,        ///< an accelerator that takes part in training
  kCpu,        ///< a CPU socket or NUMA domain
  kPciSwitch,  ///< a PCIe switch, or the root complex of a NUMA domain
  kNic,        ///< a network adapter
  kNvSwitch,   ///< a switch of the node's GPU fabric (NVSwitch, xGMI hub)
  kHost,       ///< a whole machine seen as one device (CPU training, coarse models)
  kTor,        ///< top-of-rack or leaf switch
  kSpine,      ///< spine or aggregation switch
  kCore,       ///< core switch
  kSwitch,     ///< a switch of unknown role
};

enum class LinkKind : std::uint8_t {
  kNvlink,    ///< between GPUs, or GPU and NVSwitch (xGMI too)
  kPcie,      ///< PCIe at any place
  kSocket,    ///< between CPU sockets (QPI, UPI, Infinity Fabric)
  kHostLink,  ///< between a NIC or host and its ToR
  kUplink,    ///< between switches
  kShared,    ///< a resource that all traffic of a machine shares (memory, cores)
  kOther,
};

struct Node {
  std::string name;  ///< unique in the topology
  NodeKind kind = NodeKind::kSwitch;
  std::string host;             ///< name of the machine it is part of; empty for network switches
  std::string rack;             ///< name of its rack; empty where there are none
  std::string device_class;     ///< of ranks: "V100", "A100", "H100", "cpu" …; empty if unknown
  std::optional<Bytes> memory;  ///< of ranks: memory for training; none if unknown
  /// Of ranks whose NICs cannot read their memory (no GPUDirect RDMA): what the device copies to
  /// and from its host's memory at, in each direction. Messages that leave the host, or come from
  /// another one, are staged there. 0: they are not.
  Bandwidth host_staging;
  bool multicasts = false;  ///< can copy one input to several outputs in the network
  bool reduces = false;     ///< can add its inputs in the network (SHARP, NVLS)
  /// Of ranks whose device class the cluster file describes; null: as files of device classes do.
  /// No part of the digest.
  std::shared_ptr<const DeviceFigures> figures = nullptr;
};

struct Link {
  NodeId from;
  NodeId to;
  Bandwidth bandwidth;
  Duration latency;
  LinkKind kind = LinkKind::kOther;
  /// Name of the tier it belongs to ("nvlink", "host", "uplink"), for tables; its kind by default.
  std::string tier;
  /// What a message costs its sender before it leaves (LogP's o_s); those to others do not wait.
  Duration overhead;
  double cpu_share = 0;  ///< share of the host's cores used at full rate (TCP about 0.35), 0..1
  /// What it costs its receiver before anything is done with it, one by one (LogP's o_r).
  Duration receive_overhead;
  /// The most of the bandwidth that one message takes, as one TCP connection or one of several
  /// queues does, though they can fill the link together; 0: no such limit.
  Bandwidth flow_bandwidth;
  /// What it lets pass at once, beyond its bandwidth, when it was idle for long: the bucket of a
  /// token-bucket shaper, which fills by what is not used of the bandwidth. 0: none, as of cables.
  Bytes burst;
  /// What the machine at one of its ends may call its adapter there, separated by spaces, the most
  /// exact first: names of devices ("mlx5_0", "eth1") or PCI addresses ("0000:1b:00.0"). Empty if
  /// nobody said. No part of the digest: routes do not depend on it.
  std::string adapter;
};

/// What somebody measured of the processors that stand for ranks (`rackrail calibrate`): bytes of
/// FP32 that one takes in or gives out per second.
struct MeasuredProcessor {
  struct Codec {
    Bandwidth encode;
    Bandwidth decode;
  };
  std::map<std::string, Codec, std::less<>> codecs;  ///< by name; others are not known
  Bandwidth reduce;                                  ///< adding what was received
  Duration launch;                                   ///< of each call beyond its bytes
};

class Topology {
 public:
  Topology();
  explicit Topology(std::string name);
  Topology(const Topology&);
  Topology(Topology&&) noexcept;
  Topology& operator=(const Topology&);
  Topology& operator=(Topology&&) noexcept;
  ~Topology();

  const std::string& name() const;
  void set_name(std::string name);

  /// Throws ConfigError when the name is empty or taken.
  NodeId add_node(Node node);
  /// Makes a vertex the next rank. Throws ConfigError when it is one already.
  Rank add_rank(NodeId node);
  /// Throws ConfigError when an end does not exist, the ends are the same, or the bandwidth is 0.
  LinkId add_link(Link link);
  /// Both directions with the same properties; returns the first, the second is the next id.
  LinkId add_duplex_link(Link link);
  /// Replaces bandwidth and latency of one link (degradation, calibration).
  void set_link_rate(LinkId link, Bandwidth bandwidth, Duration latency);
  /// Of every link, what it lets pass at once after it was idle, to nothing.
  void remove_bursts();
  /// Replaces the properties that an overlay may add to a vertex; its name stays.
  void set_node_properties(NodeId node, const Node& properties);

  std::size_t node_count() const;
  std::size_t link_count() const;
  std::size_t rank_count() const;
  const Node& node(NodeId id) const;
  const Link& link(LinkId id) const;
  /// "a→b" of the two ends' names; "a→b#2" for the second of several.
  std::string link_name(LinkId id) const;
  std::span<const LinkId> links_out_of(NodeId id) const;
  std::span<const LinkId> links_into(NodeId id) const;
  /// The vertex of a rank, and the rank of a vertex if it is one.
  NodeId node_of(Rank rank) const;
  std::optional<Rank> rank_of(NodeId node) const;
  std::optional<NodeId> find_node(std::string_view name) const;

  /// A shared resource of all ranks of a machine (see LinkKind::kShared), if the topology models
  /// one: compute and codec work of the rank is charged to it too. None by default.
  std::optional<LinkId> processor_of(Rank rank) const;
  void set_processor(Rank rank, LinkId link);

  /// What ranks of device class "cpu" (or of an unknown one) encode and add at, if it is known.
  const std::optional<MeasuredProcessor>& measured_processor() const;
  void set_measured_processor(std::optional<MeasuredProcessor> processor);

  /// SHA-256 of a canonical text of all vertices, links and ranks: a plan names its cluster by it.
  /// What was measured is not in it, so that a plan may be judged with other figures.
  std::string digest() const;

  /// Throws ConfigError with the names of the two parts unless every rank can reach every other.
  void require_connected() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

std::string_view to_string(NodeKind kind);
std::string_view to_string(LinkKind kind);
std::optional<NodeKind> parse_node_kind(std::string_view text);
std::optional<LinkKind> parse_link_kind(std::string_view text);

/// Ranks grouped by a name (host or rack), in order of their first rank. Ranks without the name
/// form a group of their own each.
struct RankGroup {
  std::string name;
  std::vector<Rank> ranks;
};
std::vector<RankGroup> ranks_by_host(const Topology& topology);
std::vector<RankGroup> ranks_by_rack(const Topology& topology);

/// The links of a name as people type it: "a→b" or "a->b" for all from a to b, in the order of
/// their numbers, "a→b#2" for the second of them alone. Empty if there are none.
std::vector<LinkId> links_named(const Topology& topology, const std::string& typed);
/// The way back of a cable: of the links the other way the one with the same number, if there is
/// one.
std::optional<LinkId> way_back(const Topology& topology, LinkId link);

/// By how much sooner bytes may have passed a link than they take at its bandwidth: what its burst
/// takes. Zero without one.
Duration burst_time(const Link& link);
/// The longest of all links. A bound by what links carry, alone or weighed together (a cut, a
/// linear program of them), may be beaten by this much and no more: where Σ w·x ≥ s bytes must pass
/// and x ≤ c·t + b, t ≥ s / Σ w·c − max b / c.
Duration longest_burst_time(const Topology& topology);

}  // namespace rackrail::topology
