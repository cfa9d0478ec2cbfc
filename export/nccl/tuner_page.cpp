#include "export/nccl/tuner_page.hpp"

#include <fmt/format.h>

#include "base/parse_units.hpp"
#include "export/nccl/tuner_tables.hpp"

namespace rackrail::exporting::nccl {

namespace {

std::string gains(const ShapeTuning& shape) {
  std::string text = fmt::format(
      "\n### {} x {} GPUs\n\n"
      "| all-reduce | NCCL by itself | time | with this table | time | saved |\n"
      "| --- | --- | --- | --- | --- | --- |\n",
      shape.nodes, shape.gpus_per_node);
  for (const SizeTuning& size : shape.sizes) {
    text +=
        fmt::format("| {} | {} | {} | {} | {} | {} |\n", to_string(size.size), to_text(size.usual),
                    to_string(size.usual_time),
                    size.is_overridden() ? to_text(size.chosen) : "the same", to_string(size.time),
                    size.is_overridden() ? fmt::format("{:.0f} %", 100 * size.gain()) : "");
  }
  return text;
}

std::string how_to(const topology::Topology& cluster) {
  std::string text = fmt::format(
      R"(## Use

With rackrail's plugin, for NCCL 2.21 and later. Sizes without a line stay as NCCL has them:

```sh
export NCCL_TUNER_PLUGIN=$PWD/{0}      # finds {1} beside itself,
export NCCL_TUNER_CONFIG_FILE=$PWD/{1}      # or where this says
export NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,TUNING     # to see what it chooses
```

With NVIDIA's example plugin (`plugins/tuner/example` of NCCL), which gives one channel to what has no line, so that
this table has all sizes of all collectives. Communicators of other numbers of ranks go by rings:

```sh
export NCCL_TUNER_CONFIG_FILE=$PWD/{2}
```

With NCCLX:

```sh
export NCCLX_TUNER_CONFIG_FILE=$PWD/{3}
```
)",
      kPlugin, kPluginTable, kExampleTable, kNcclxTable);
  if (const std::string table = rccl_table(cluster); !table.empty()) {
    text += fmt::format(
        R"(
With RCCL, whose own choice is not NCCL's: the gains below are over NCCL's formula. The file takes the place of the
table that RCCL ships for this GPU:

```sh
export NCCL_TUNER_CONFIG_FILE=$PWD/{}
```
)",
        table);
  }
  return text;
}

}  // namespace

std::string rccl_table(const topology::Topology& cluster) {
  const std::string_view architecture =
      gfx_architecture(cluster.node(cluster.node_of(Rank(0))).device_class);
  return architecture.empty() ? std::string() : fmt::format("rccl_tuner_{}.csv", architecture);
}

std::string to_text(const Setting& setting) {
  const std::string text =
      fmt::format("{} {}", to_string(setting.algorithm), to_string(setting.protocol));
  return setting.chunk > Bytes(0)
             ? text + ", chunks of " + to_string(setting.chunk) + " (NCCL 2.30)"
             : text;
}

std::string tuner_page(const topology::Topology& cluster, std::span<const ShapeTuning> shapes) {
  std::string text = fmt::format(
      R"(# NCCL's choice on {}

Computed by rackrail from the cluster file; nothing was measured. Another choice than NCCL's own is made where it is
predicted to save {:.0f} % of an all-reduce's time or more; less is within the error of the prediction. What NCCL would
choose by itself is rackrail's copy of NCCL's formula, whose constants differ between versions and GPUs: with
NCCL_DEBUG_SUBSYS=TUNING it says what it takes. Measure with nccl-tests before and after.

{}
## What it should gain

All-reduces, times as nccl-tests shows them. Buffers of a process by themselves, no other traffic.
)",
      cluster.name(), 100 * kWorthOverriding, how_to(cluster));
  for (const ShapeTuning& shape : shapes) {
    text += gains(shape);
  }
  return text;
}

}  // namespace rackrail::exporting::nccl
