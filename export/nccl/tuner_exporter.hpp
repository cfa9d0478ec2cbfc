// Exporters of tables for NCCL's tuners: one computation, and for each kind its own text.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "export/exporter.hpp"
#include "export/nccl/tuning.hpp"

namespace rackrail::exporting::nccl {

struct TunerKind {
  std::string_view kind;
  std::string_view what;
  /// Name of the file; may throw ConfigError for a cluster that the kind is not for.
  std::function<std::string(const topology::Topology&)> file;
  std::function<std::string(std::span<const ShapeTuning>, std::string_view title)> text;
};

std::unique_ptr<Exporter> make_tuner_exporter(TunerKind kind);

}  // namespace rackrail::exporting::nccl
