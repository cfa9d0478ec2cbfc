#include "export/nccl/tuner_exporter.hpp"
#include "export/nccl/tuner_page.hpp"
#include "export/nccl/tuner_tables.hpp"

namespace rackrail::exporting {

std::unique_ptr<Exporter> make_nccl_tuner_exporter() {
  return nccl::make_tuner_exporter(
      {.kind = "nccl-tuner",
       .what = "table for rackrail's NCCL tuner plugin: all-reduces that NCCL would choose wrongly",
       .file = [](const topology::Topology&) { return std::string(nccl::kPluginTable); },
       .text =
           [](std::span<const nccl::ShapeTuning> shapes, std::string_view title) {
             return nccl::to_nccl_csv(nccl::overriding_rows(shapes), title, true);
           }});
}

}  // namespace rackrail::exporting
