// NCCL's settings that follow from a cluster, and the buckets of a plan, each with its reason. What
// NCCL finds out by itself (NVLS, GPUDirect RDMA where it works) is left to it.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <map>
#include <optional>
#include <set>

#include "base/parse_units.hpp"
#include "export/exporter.hpp"
#include "topology/adapters.hpp"

namespace rackrail::exporting {

namespace {

struct Setting {
  std::string name;
  std::string value;
  std::string reason;
  bool is_optional = false;  ///< right on some networks that a cluster file does not tell apart
};

/// The leaf that an adapter's first link leads to.
NodeId leaf_of(const topology::Topology& cluster, const topology::Adapter& adapter) {
  return cluster.link(adapter.out.front()).to;
}

/// The names of each host's adapters, where all hosts have the same and they are names of devices.
std::optional<Setting> hca(const std::vector<topology::Adapter>& adapters) {
  std::map<std::string, std::string> names;  // by host
  for (const topology::Adapter& adapter : adapters) {
    const std::string device = adapter.devices.substr(0, adapter.devices.find(' '));
    const bool is_plain = std::ranges::all_of(
        device, [](unsigned char c) { return std::isalnum(c) != 0 || c == '_' || c == '.'; });
    if (!is_plain || (!device.starts_with("mlx") && !device.starts_with("bnxt") &&
                      !device.starts_with("irdma"))) {
      return std::nullopt;
    }
    std::string& list = names[adapter.host];
    list += (list.empty() ? "" : ",") + device;
  }
  const bool is_one = !names.empty() && std::ranges::all_of(names, [&](const auto& one) {
    return one.second == names.begin()->second;
  });
  if (!is_one) {
    return std::nullopt;
  }
  return Setting{
      "NCCL_IB_HCA", "=" + names.begin()->second,
      "the adapters that the cluster file names; others, such as those of storage, stay out"};
}

/// Whether no two adapters of a host are on one switch, and each switch has those of several hosts.
std::optional<Setting> cross_nic(const topology::Topology& cluster,
                                 const std::vector<topology::Adapter>& adapters) {
  std::set<std::pair<std::string, NodeId>> leaves_of_hosts;
  std::map<NodeId, std::set<std::string>> hosts_of_leaves;
  for (const topology::Adapter& adapter : adapters) {
    if (!leaves_of_hosts.emplace(adapter.host, leaf_of(cluster, adapter)).second) {
      return std::nullopt;
    }
    hosts_of_leaves[leaf_of(cluster, adapter)].insert(adapter.host);
  }
  const bool are_rails =
      !hosts_of_leaves.empty() &&
      std::ranges::all_of(hosts_of_leaves, [](const auto& leaf) { return leaf.second.size() > 1; });
  if (!are_rails) {
    return std::nullopt;
  }
  return Setting{
      "NCCL_CROSS_NIC", "0",
      "NICs of one number share a leaf (a rail), those of different numbers meet above it: "
      "a ring that changes rails crosses the spine"};
}

/// Where one message cannot fill the NIC, so many sockets do.
std::optional<Setting> sockets(const topology::Topology& cluster,
                               const std::vector<topology::Adapter>& adapters) {
  constexpr int kMostSockets = 64;  // NCCL's limit for threads times sockets
  for (const topology::Adapter& adapter : adapters) {
    const topology::Link& link = cluster.link(adapter.out.front());
    if (link.flow_bandwidth > Bandwidth() && link.flow_bandwidth < link.bandwidth) {
      const int wanted = static_cast<int>(std::ceil(link.bandwidth / link.flow_bandwidth));
      return Setting{"NCCL_NSOCKS_PERTHREAD", std::to_string(std::min(wanted, kMostSockets)),
                     fmt::format("one connection carries {} of a NIC's {}; of use with TCP alone",
                                 to_string(link.flow_bandwidth), to_string(link.bandwidth))};
    }
  }
  return std::nullopt;
}

/// Queues, so that a connection is spread over the uplinks of its leaf.
std::optional<Setting> queue_pairs(const topology::Topology& cluster,
                                   const std::vector<topology::Adapter>& adapters) {
  constexpr std::size_t kMostQueues = 4;
  std::size_t uplinks = 0;
  for (const topology::Adapter& adapter : adapters) {
    std::size_t here = 0;
    for (const LinkId link : cluster.links_out_of(leaf_of(cluster, adapter))) {
      here += cluster.link(link).kind == topology::LinkKind::kUplink ? 1 : 0;
    }
    uplinks = std::max(uplinks, here);
  }
  if (uplinks < 2) {
    return std::nullopt;
  }
  return Setting{
      "NCCL_IB_QPS_PER_CONNECTION", std::to_string(std::min(uplinks, kMostQueues)),
      fmt::format("a leaf has {} uplinks, and a queue pair keeps to one of them where switches "
                  "choose by hash. Of use on RoCE without adaptive routing alone",
                  uplinks),
      true};
}

std::optional<Setting> staging(const topology::Topology& cluster) {
  for (std::size_t r = 0; r < cluster.rank_count(); ++r) {
    if (cluster.node(cluster.node_of(Rank(r))).host_staging > Bandwidth()) {
      return Setting{"NCCL_NET_GDR_LEVEL", "LOC",
                     "the cluster file says that NICs cannot read the GPUs' memory (host_staging)"};
    }
  }
  return std::nullopt;
}

/// For PyTorch, whose DistributedDataParallel makes all buckets but the first of one size.
std::string bucket_note(const plan::Plan& plan) {
  std::int64_t largest = 0;
  for (const plan::Bucket& bucket : plan.buckets) {
    largest = std::max(largest, bucket.elements);
  }
  constexpr double kBytesPerElement = 4;
  const double mebibytes = static_cast<double>(largest) * kBytesPerElement / (1 << 20);
  return fmt::format(
      "# The plan has {} buckets, the largest of {:.0f} MiB:\n"
      "# DistributedDataParallel(model, bucket_cap_mb={:.0f})\n",
      plan.buckets.size(), mebibytes, std::max(1.0, mebibytes));
}

class NcclEnvExporter : public Exporter {
 public:
  std::string_view kind() const override { return "nccl-env"; }
  std::string_view what() const override {
    return "NCCL's settings that follow from the cluster, each with its reason";
  }
  std::vector<ExportedFile> write(const Subject& subject,
                                  const ExportOptions& /*options*/) const override {
    const topology::Topology& cluster = subject.cluster;
    const std::vector<topology::Adapter> adapters = topology::adapters_of(cluster);
    std::string text =
        fmt::format("# NCCL on {}, from the cluster file; nothing was measured.\n", cluster.name());
    bool is_empty = true;
    for (const std::optional<Setting>& one :
         {hca(adapters), cross_nic(cluster, adapters), queue_pairs(cluster, adapters),
          sockets(cluster, adapters), staging(cluster)}) {
      if (one) {
        text += fmt::format("\n# {}\n{}export {}={}\n", one->reason, one->is_optional ? "# " : "",
                            one->name, one->value);
        is_empty = false;
      }
    }
    if (is_empty) {
      text += "# Nothing follows from it: NCCL finds out the rest by itself.\n";
    }
    if (subject.plan != nullptr && !subject.plan->buckets.empty()) {
      text += "\n" + bucket_note(*subject.plan);
    }
    return {{"nccl.env", text}};
  }
};

}  // namespace

std::unique_ptr<Exporter> make_nccl_env_exporter() { return std::make_unique<NcclEnvExporter>(); }

}  // namespace rackrail::exporting
