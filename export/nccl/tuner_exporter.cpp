#include "export/nccl/tuner_exporter.hpp"

#include <utility>

namespace rackrail::exporting::nccl {

namespace {

class TunerExporter : public Exporter {
 public:
  explicit TunerExporter(TunerKind kind) : kind_(std::move(kind)) {}

  std::string_view kind() const override { return kind_.kind; }
  std::string_view what() const override { return kind_.what; }
  std::vector<ExportedFile> write(const Subject& subject,
                                  const ExportOptions& options) const override {
    const std::string file = kind_.file(subject.cluster);
    const auto shapes = tune_all_reduces(subject.cluster, options.nccl, options.progress);
    return {{file, kind_.text(shapes, subject.cluster.name())}};
  }

 private:
  TunerKind kind_;
};

}  // namespace

std::unique_ptr<Exporter> make_tuner_exporter(TunerKind kind) {
  return std::make_unique<TunerExporter>(std::move(kind));
}

}  // namespace rackrail::exporting::nccl
