// What a run of `rackrail train` found out about the links of its cluster, read from what it
// printed with --json.
#pragma once

#include <string>
#include <vector>

#include "base/units.hpp"
#include "cli/session.hpp"
#include "plan/plan.hpp"

namespace rackrail::cli {

struct MeasuredRun {
  struct Link {
    std::string name;
    Bandwidth rate;  ///< positive, in the terms of the cluster
  };
  std::vector<Link> links;  ///< that have another rate than the cluster says, at the run's end
  /// Lines on what the run found besides, of which a plan for the same ranks cannot know: ranks
  /// that are slow, workers that were lost.
  std::vector<std::string> notes;
};

/// Throws ConfigError where the file is no such result, where the run did not look for slow links,
/// and where it began with another plan.
MeasuredRun read_measured_run(Session& session, const std::string& path, const plan::Plan& plan);

}  // namespace rackrail::cli
