#include "export/exporter.hpp"
#include "export/schedule_files.hpp"
#include "plan/msccl/from_graph.hpp"

namespace rackrail::exporting {

namespace {

class MscclExporter : public Exporter {
 public:
  std::string_view kind() const override { return "msccl"; }
  std::string_view what() const override {
    return "MSCCL programs (XML) for msccl-executor-nccl and RCCL, one per schedule of a plan";
  }
  std::vector<ExportedFile> write(const Subject& subject,
                                  const ExportOptions& /*options*/) const override {
    return schedule_files(subject, ".xml",
                          [](const plan::TransferGraph& graph, const std::string& /*name*/) {
                            return plan::msccl::to_xml(plan::msccl::from_graph(graph));
                          });
  }
};

}  // namespace

std::unique_ptr<Exporter> make_msccl_exporter() { return std::make_unique<MscclExporter>(); }

}  // namespace rackrail::exporting
