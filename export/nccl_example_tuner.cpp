#include "export/nccl/tuner_exporter.hpp"
#include "export/nccl/tuner_page.hpp"
#include "export/nccl/tuner_tables.hpp"

namespace rackrail::exporting {

std::unique_ptr<Exporter> make_nccl_example_tuner_exporter() {
  return nccl::make_tuner_exporter(
      {.kind = "nccl-example-tuner",
       .what = "table for NVIDIA's example tuner plugin: every size of every collective",
       .file = [](const topology::Topology&) { return std::string(nccl::kExampleTable); },
       .text =
           [](std::span<const nccl::ShapeTuning> shapes, std::string_view title) {
             return nccl::to_nccl_csv(nccl::covering_rows(shapes), title, false);
           }});
}

}  // namespace rackrail::exporting
