// NCCL topology XML → Topology.
#include "base/text.hpp"
#include "topology/readers/formats.hpp"
#include "topology/readers/nccl_cluster.hpp"

namespace rackrail::topology {
namespace {

class NcclXmlReader : public Reader {
 public:
  std::string_view format() const override { return "nccl-xml"; }

  bool accepts(const std::filesystem::path& path, std::string_view content) const override {
    return path.extension() == ".xml" || trimmed(content).starts_with("<");
  }

  ReadResult read(const std::filesystem::path& path, std::string_view content,
                  const ReadOptions& options) const override {
    return cluster_of_machines(path, parse_nccl_xml(path.string(), std::string(content)), options);
  }
};

}  // namespace

std::unique_ptr<Reader> make_nccl_xml_reader() { return std::make_unique<NcclXmlReader>(); }

}  // namespace rackrail::topology
