#include "base/error.hpp"
#include "export/exporter.hpp"
#include "export/nccl/tuner_page.hpp"
#include "export/nccl/tuner_tables.hpp"

namespace rackrail::exporting {

namespace {

class RcclTunerExporter : public Exporter {
 public:
  std::string_view kind() const override { return "rccl-tuner"; }
  std::string_view what() const override {
    return "table for RCCL's built-in tuner, of AMD GPUs alone";
  }
  std::vector<ExportedFile> write(const Subject& subject,
                                  const ExportOptions& options) const override {
    const std::string file = nccl::rccl_table(subject.cluster);
    if (file.empty()) {
      const std::string& device =
          subject.cluster.node(subject.cluster.node_of(Rank(0))).device_class;
      throw ConfigError(
          ErrorContext{"", "cluster '" + subject.cluster.name() + "'",
                       device.empty() ? "GPUs of an unknown class" : "GPUs of class " + device,
                       "AMD GPUs, which RCCL is for; --device-class names them"});
    }
    const auto shapes = nccl::tune_all_reduces(subject.cluster, options.nccl, options.progress);
    return {
        {file, nccl::to_nccl_csv(nccl::overriding_rows(shapes), subject.cluster.name(), false)}};
  }
};

}  // namespace

std::unique_ptr<Exporter> make_rccl_tuner_exporter() {
  return std::make_unique<RcclTunerExporter>();
}

}  // namespace rackrail::exporting
