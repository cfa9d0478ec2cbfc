// Results of sweeps and searches as tables for people.
#pragma once

#include <string>
#include <vector>

#include "explore/rows.hpp"

namespace rackrail::cli {

/// The best `most` rows by the objective, best first, then what failed (as many again at most).
std::string sweep_table(const std::vector<explore::Row>& rows, const explore::Objective& objective,
                        std::size_t most);

/// Whether no cell's executions differ; false when all cells failed.
bool all_executions_equal(const std::vector<explore::Row>& rows);

}  // namespace rackrail::cli
