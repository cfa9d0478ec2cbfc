#include "cli/record_files.hpp"

#include <fmt/format.h>

#include "base/file.hpp"
#include "cli/simulation_csv.hpp"
#include "cli/trace.hpp"

namespace rackrail::cli {

namespace {
constexpr std::size_t kTimelineBins = 200;
}  // namespace

void RecordFiles::add_outputs(Session& session) const {
  for (const std::string& file : {trace, flows, links}) {
    session.add_output(file);
  }
}

void RecordFiles::ask(sim::SimulationOptions& options) const {
  options.record_timeline = !trace.empty();
  options.record_flows = !flows.empty() || !links.empty();
}

void RecordFiles::write(const sim::Records& records, const topology::Topology& cluster,
                        const sim::Disturbances& disturbances, const std::string& name) const {
  if (!trace.empty()) {
    const TraceProcess process{name, records.timeline};
    write_file_atomically(trace, to_trace_json({&process, 1}));
  }
  if (!flows.empty()) {
    write_file_atomically(flows, flows_csv(records.flow_records, cluster));
  }
  if (!links.empty()) {
    write_file_atomically(
        links,
        links_csv(sim::link_timeline(records, cluster, disturbances, kTimelineBins), cluster));
  }
}

void RecordFiles::print_written() const {
  if (!trace.empty()) {
    fmt::print("wrote {} (open it at ui.perfetto.dev)\n", trace);
  }
  for (const std::string& file : {flows, links}) {
    if (!file.empty()) {
      fmt::print("wrote {}\n", file);
    }
  }
}

}  // namespace rackrail::cli
