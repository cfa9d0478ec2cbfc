#include <fmt/format.h>

#include <cstdint>
#include <vector>

#include "base/error.hpp"
#include "export/exporter.hpp"
#include "export/rank_text.hpp"
#include "export/schedule_files.hpp"
#include "plan/mscclpp/from_graph.hpp"

namespace rackrail::exporting {

namespace {

/// The number of each rank's host. Throws ConfigError where hosts have unequal numbers of ranks, or
/// a host's are not side by side: the executor divides a rank by the ranks of a host.
std::vector<std::uint32_t> hosts_of_ranks(const topology::Topology& cluster) {
  const std::vector<HostSlots> slots = host_slots(cluster);
  std::vector<std::uint32_t> hosts;
  for (std::uint32_t host = 0; host < slots.size(); ++host) {
    if (slots[host].ranks != slots.front().ranks) {
      throw ConfigError(
          ErrorContext{"", "cluster '" + cluster.name() + "'",
                       fmt::format("{} ranks on '{}' and {} on '{}'", slots.front().ranks,
                                   slots.front().name, slots[host].ranks, slots[host].name),
                       "as many on each host, as MSCCL++'s executor has them"});
    }
    hosts.insert(hosts.end(), slots[host].ranks, host);
  }
  return hosts;
}

class MscclppExporter : public Exporter {
 public:
  std::string_view kind() const override { return "mscclpp"; }
  std::string_view what() const override {
    return "execution plans (JSON) for MSCCL++, one per schedule of a plan";
  }
  std::vector<ExportedFile> write(const Subject& subject,
                                  const ExportOptions& /*options*/) const override {
    const std::vector<std::uint32_t> hosts = hosts_of_ranks(subject.cluster);
    return schedule_files(
        subject, ".json", [&](const plan::TransferGraph& graph, const std::string& name) {
          return plan::mscclpp::to_json(plan::mscclpp::from_graph(graph, hosts, name));
        });
  }
};

}  // namespace

std::unique_ptr<Exporter> make_mscclpp_exporter() { return std::make_unique<MscclppExporter>(); }

}  // namespace rackrail::exporting
