#include <fmt/format.h>

#include <algorithm>

#include "base/error.hpp"
#include "export/exporter.hpp"
#include "plan/msccl/from_graph.hpp"

namespace rackrail::exporting {

namespace {

/// "all-reduce-0.xml": letters, digits and dashes.
std::string file_name(const plan::TransferGraph& graph, std::size_t number) {
  std::string name = graph.name();
  std::ranges::replace_if(
      name, [](unsigned char c) { return std::isalnum(c) == 0 && c != '-'; }, '-');
  return fmt::format("{}-{}.xml", name, number);
}

class MscclExporter : public Exporter {
 public:
  std::string_view kind() const override { return "msccl"; }
  std::string_view what() const override {
    return "MSCCL programs (XML) for msccl-executor-nccl and RCCL, one per schedule of a plan";
  }
  std::vector<ExportedFile> write(const Subject& subject,
                                  const ExportOptions& /*options*/) const override {
    if (subject.plan == nullptr) {
      throw ConfigError(ErrorContext{"", "", "a cluster", "a plan, whose schedules are written"});
    }
    std::vector<ExportedFile> files;
    for (const plan::TransferGraph& graph : subject.plan->schedules) {
      files.push_back(
          {file_name(graph, files.size()), plan::msccl::to_xml(plan::msccl::from_graph(graph))});
    }
    return files;
  }
};

}  // namespace

std::unique_ptr<Exporter> make_msccl_exporter() { return std::make_unique<MscclExporter>(); }

}  // namespace rackrail::exporting
