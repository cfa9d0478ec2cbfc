#include "base/error.hpp"
#include "export/nccl/tuner_exporter.hpp"
#include "export/nccl/tuner_page.hpp"
#include "export/nccl/tuner_tables.hpp"

namespace rackrail::exporting {

namespace {

std::string rccl_file(const topology::Topology& cluster) {
  std::string file = nccl::rccl_table(cluster);
  if (file.empty()) {
    const std::string& device = cluster.node(cluster.node_of(Rank(0))).device_class;
    throw ConfigError(
        ErrorContext{"", "cluster '" + cluster.name() + "'",
                     device.empty() ? "GPUs of an unknown class" : "GPUs of class " + device,
                     "AMD GPUs, which RCCL is for; --device-class names them"});
  }
  return file;
}

}  // namespace

std::unique_ptr<Exporter> make_rccl_tuner_exporter() {
  return nccl::make_tuner_exporter(
      {.kind = "rccl-tuner",
       .what = "table for RCCL's built-in tuner, of AMD GPUs alone",
       .file = rccl_file,
       .text = [](std::span<const nccl::ShapeTuning> shapes, std::string_view title) {
         return nccl::to_nccl_csv(nccl::overriding_rows(shapes), title, false);
       }});
}

}  // namespace rackrail::exporting
