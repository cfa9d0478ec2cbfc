// Where hosts are in the network, for Kubernetes: node labels as NVIDIA topograph spells them
// (fabric.topograph.run/tier-0 is nearest to the host), and a Topology object for Kueue's
// topology-aware scheduling with the annotations that a job wants
// (kueue.sigs.k8s.io/docs/concepts/topology_aware_scheduling).
#include <fmt/format.h>

#include <map>

#include "base/error.hpp"
#include "export/exporter.hpp"
#include "export/rank_text.hpp"
#include "topology/tiers.hpp"

namespace rackrail::exporting {

namespace {

std::string label_of(std::size_t tier) { return fmt::format("fabric.topograph.run/tier-{}", tier); }

/// Partitions of hosts that are more than single hosts and less than all, from the inside out: by
/// rank the name of its group. A group without a name of its own is called by its number.
std::vector<std::vector<std::string>> tiers_of_hosts(const topology::Topology& cluster) {
  const std::size_t hosts = topology::ranks_by_host(cluster).size();
  std::vector<std::vector<std::string>> tiers;
  for (const std::vector<topology::RankGroup>& groups : topology::nested_groups(cluster)) {
    if (groups.size() >= hosts || groups.size() < 2) {
      continue;
    }
    std::vector<std::string> names(cluster.rank_count());
    for (std::size_t g = 0; g < groups.size(); ++g) {
      for (const Rank rank : groups[g].ranks) {
        names[rank.value()] = fmt::format("group{}", g);
      }
    }
    tiers.push_back(std::move(names));
  }
  return tiers;
}

std::string labels_script(std::span<const HostSlots> hosts,
                          const std::vector<std::vector<std::string>>& tiers) {
  std::string text =
      "#!/bin/sh -e\n"
      "# Labels of the nodes; nothing to do where topograph labels them already.\n";
  std::size_t rank = 0;
  for (const HostSlots& host : hosts) {
    text += "kubectl label --overwrite node " + host.name;
    for (std::size_t t = 0; t < tiers.size(); ++t) {
      text += fmt::format(" {}={}", label_of(t), tiers[t][rank]);
    }
    text += "\n";
    rank += host.ranks;
  }
  return text;
}

std::string topology_object(std::size_t tiers) {
  std::string text =
      "apiVersion: kueue.x-k8s.io/v1beta1\n"
      "kind: Topology\n"
      "metadata:\n"
      "  name: rackrail\n"
      "spec:\n"
      "  levels:\n";
  for (std::size_t t = tiers; t-- > 0;) {
    text += fmt::format("  - nodeLabel: {}\n", label_of(t));
  }
  return text + "  - nodeLabel: kubernetes.io/hostname\n";
}

/// Of a job on as many hosts as the cluster has, which needs more than one group of each tier.
std::string annotations(std::size_t tiers) {
  return fmt::format(
      R"(# In the pod template of the job. `required` in place of `preferred` holds a job back until it fits.
metadata:
  annotations:
    kueue.x-k8s.io/podset-preferred-topology: {}
)",
      label_of(tiers - 1));
}

class KueueExporter : public Exporter {
 public:
  std::string_view kind() const override { return "kueue"; }
  std::string_view what() const override {
    return "racks and pods of hosts for Kubernetes: node labels, Kueue's Topology, annotations";
  }
  std::vector<ExportedFile> write(const Subject& subject,
                                  const ExportOptions& /*options*/) const override {
    const std::vector<HostSlots> hosts = host_slots(subject.cluster);
    const auto tiers = tiers_of_hosts(subject.cluster);
    if (tiers.empty()) {
      throw ConfigError(ErrorContext{"", "cluster '" + subject.cluster.name() + "'",
                                     "hosts that are all equally near",
                                     "several racks, which a scheduler could choose from"});
    }
    return {{"labels.sh", labels_script(hosts, tiers)},
            {"topology.yaml", topology_object(tiers.size())},
            {"annotations.yaml", annotations(tiers.size())}};
  }
};

}  // namespace

std::unique_ptr<Exporter> make_kueue_exporter() { return std::make_unique<KueueExporter>(); }

}  // namespace rackrail::exporting
