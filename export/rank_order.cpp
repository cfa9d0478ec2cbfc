#include "export/exporter.hpp"
#include "export/rank_text.hpp"

namespace rackrail::exporting {

namespace {

class RankOrderExporter : public Exporter {
 public:
  std::string_view kind() const override { return "rank-order"; }
  std::string_view what() const override {
    return "the order of ranks: hostfiles of Open MPI and Slurm, a script for torchrun";
  }
  std::vector<ExportedFile> write(const Subject& subject,
                                  const ExportOptions& /*options*/) const override {
    const std::vector<HostSlots> hosts = host_slots(subject.cluster);
    return {{"hostfile.openmpi", openmpi_hostfile(hosts)},
            {"hostfile.slurm", slurm_hostfile(hosts)},
            {"torchrun.sh", torchrun_script(hosts)}};
  }
};

}  // namespace

std::unique_ptr<Exporter> make_rank_order_exporter() {
  return std::make_unique<RankOrderExporter>();
}

}  // namespace rackrail::exporting
