// Pieces of a self-contained HTML page: escaping, and drawings as inline SVG. No script, no
// network.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "plan/cost_model.hpp"
#include "sim/simulator.hpp"
#include "topology/topology.hpp"

namespace rackrail::cli {

std::string escape_html(std::string_view text);

/// A page with the report's style sheet around `body`.
std::string html_page(const std::string& title, const std::string& body);

/// Rows of cells; the first row is the head. Cells are escaped; those that start with a digit, a
/// sign or "<" are set to the right.
std::string html_table(const std::vector<std::vector<std::string>>& rows);

/// The cluster in layers (core, spine, ToR, hosts), links coloured by utilisation. Host insides are
/// drawn as one box; clusters of more than 32 hosts show the first hosts of each rack.
std::string topology_svg(const topology::Topology& topology,
                         const std::vector<sim::LinkUse>& links);

/// Tracks as rows over a common time axis. `horizon` is the right end of the axis.
std::string timeline_svg(const std::vector<plan::TimelineEvent>& events, Duration horizon);

/// Horizontal bars with their times, the first marked as the reference.
struct Bar {
  std::string label;
  Duration time;
  bool emphasised = false;
};
std::string bars_svg(const std::vector<Bar>& bars);

/// A line over steps, for example the loss. Leaves out what is no finite number; empty with fewer
/// than two values.
std::string curve_svg(const std::vector<double>& values, const std::string& label);

}  // namespace rackrail::cli
