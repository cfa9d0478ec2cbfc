#include "export/nccl/tuner_exporter.hpp"
#include "export/nccl/tuner_page.hpp"
#include "export/nccl/tuner_tables.hpp"

namespace rackrail::exporting {

std::unique_ptr<Exporter> make_ncclx_tuner_exporter() {
  return nccl::make_tuner_exporter(
      {.kind = "ncclx-tuner",
       .what = "table for the built-in tuner of NCCLX (torchcomms)",
       .file = [](const topology::Topology&) { return std::string(nccl::kNcclxTable); },
       .text =
           [](std::span<const nccl::ShapeTuning> shapes, std::string_view title) {
             return nccl::to_ncclx_csv(nccl::overriding_rows(shapes), title);
           }});
}

}  // namespace rackrail::exporting
