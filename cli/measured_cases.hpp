// Measurements of files, as `validate` predicts them.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "cli/session.hpp"
#include "sim/measured/measurements.hpp"
#include "sim/nccl/calibrate.hpp"
#include "sim/nccl/model.hpp"

namespace rackrail::cli {

struct MeasuredCases {
  std::vector<sim::nccl::Measured> all_reduces;
  std::vector<sim::nccl::Measured> chosen;  ///< of these, whose choice by NCCL a log says
  std::set<std::string> measured_with;      ///< "NCCL", "MSCCL++"
};

/// All-reduces from `from` on. What `forced` names replaces what the files say. Notes what was left
/// out. Throws ConfigError as the readers do.
MeasuredCases read_measured_cases(Session& session, const std::vector<std::string>& files,
                                  Bytes from, const sim::nccl::Choice& forced);

/// Where NCCL's choice, as logs say it, differs from that of the model's formula: a note, or empty.
std::string choice_note(const std::vector<sim::nccl::Measured>& chosen,
                        sim::nccl::Machines& machines);

}  // namespace rackrail::cli
