#include "export/exporter.hpp"
#include "export/nccl/tuner_page.hpp"
#include "export/nccl/tuner_tables.hpp"

namespace rackrail::exporting {

namespace {

class NcclExampleTunerExporter : public Exporter {
 public:
  std::string_view kind() const override { return "nccl-example-tuner"; }
  std::string_view what() const override {
    return "table for NVIDIA's example tuner plugin: every size of every collective";
  }
  std::vector<ExportedFile> write(const Subject& subject,
                                  const ExportOptions& options) const override {
    const auto shapes = nccl::tune_all_reduces(subject.cluster, options.nccl, options.progress);
    return {{std::string(nccl::kExampleTable),
             nccl::to_nccl_csv(nccl::covering_rows(shapes), subject.cluster.name(), false)}};
  }
};

}  // namespace

std::unique_ptr<Exporter> make_nccl_example_tuner_exporter() {
  return std::make_unique<NcclExampleTunerExporter>();
}

}  // namespace rackrail::exporting
