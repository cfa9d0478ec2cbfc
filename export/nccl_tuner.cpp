#include "export/exporter.hpp"
#include "export/nccl/tuner_page.hpp"
#include "export/nccl/tuner_tables.hpp"

namespace rackrail::exporting {

namespace {

class NcclTunerExporter : public Exporter {
 public:
  std::string_view kind() const override { return "nccl-tuner"; }
  std::string_view what() const override {
    return "table for rackrail's NCCL tuner plugin: all-reduces that NCCL would choose wrongly";
  }
  std::vector<ExportedFile> write(const Subject& subject,
                                  const ExportOptions& options) const override {
    const auto shapes = nccl::tune_all_reduces(subject.cluster, options.nccl, options.progress);
    return {{std::string(nccl::kPluginTable),
             nccl::to_nccl_csv(nccl::overriding_rows(shapes), subject.cluster.name(), true)}};
  }
};

}  // namespace

std::unique_ptr<Exporter> make_nccl_tuner_exporter() {
  return std::make_unique<NcclTunerExporter>();
}

}  // namespace rackrail::exporting
