#include "export/exporter.hpp"
#include "export/nccl/tuner_page.hpp"
#include "export/nccl/tuner_tables.hpp"

namespace rackrail::exporting {

namespace {

class NcclxTunerExporter : public Exporter {
 public:
  std::string_view kind() const override { return "ncclx-tuner"; }
  std::string_view what() const override {
    return "table for the built-in tuner of NCCLX (torchcomms)";
  }
  std::vector<ExportedFile> write(const Subject& subject,
                                  const ExportOptions& options) const override {
    const auto shapes = nccl::tune_all_reduces(subject.cluster, options.nccl, options.progress);
    return {{std::string(nccl::kNcclxTable),
             nccl::to_ncclx_csv(nccl::overriding_rows(shapes), subject.cluster.name())}};
  }
};

}  // namespace

std::unique_ptr<Exporter> make_ncclx_tuner_exporter() {
  return std::make_unique<NcclxTunerExporter>();
}

}  // namespace rackrail::exporting
