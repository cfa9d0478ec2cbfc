// Writers of files that other programs read: tables for NCCL's tuner, schedules for MSCCL++, rank
// orders. One exporter per kind of file, one registration each.
//
// To add a kind: write export/<kind>.cpp with a class derived from Exporter and its factory
// make_<kind>_exporter(), add the line RACKRAIL_REGISTER(<kind>) to export/exports.def, and put a
// test beside the others in tests/unit/export/: a round trip, or an independent reader of the
// format. Nothing else changes.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "plan/plan.hpp"
#include "plan/workload.hpp"
#include "sim/nccl/parameters.hpp"
#include "topology/topology.hpp"

namespace rackrail::exporting {

/// What is exported: a cluster by itself, or a plan with the cluster and the model it is for.
struct Subject {
  const topology::Topology& cluster;
  const plan::Plan* plan = nullptr;
  const plan::Workload* workload = nullptr;
};

struct ExportOptions {
  sim::nccl::Parameters nccl = sim::nccl::usual_parameters();  ///< constants of the NCCL model
  std::function<void(double)> progress;                        ///< called with the share done, 0..1
};

struct ExportedFile {
  std::string name;  ///< as it is called in a folder
  std::string content;
};

class Exporter {
 public:
  virtual ~Exporter() = default;
  Exporter() = default;
  Exporter(const Exporter&) = delete;
  Exporter& operator=(const Exporter&) = delete;
  /// Name for --to: "nccl-tuner", "mscclpp".
  virtual std::string_view kind() const = 0;
  /// What it writes and for whom, in one line.
  virtual std::string_view what() const = 0;
  /// Throws ConfigError for a subject that this kind cannot say.
  virtual std::vector<ExportedFile> write(const Subject& subject,
                                          const ExportOptions& options) const = 0;
};

/// All exporters, in the order of exports.def.
std::span<const std::unique_ptr<Exporter>> exporters();

/// Throws ConfigError that lists the kinds.
const Exporter& exporter_of(std::string_view kind);

}  // namespace rackrail::exporting
