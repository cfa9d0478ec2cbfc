// Runs the cells of a scenario: on all cores, shared among processes, and never twice.
//
// Every finished cell is appended to the results file at once, so a sweep that is stopped loses
// only what was in work; when all are there, the file is put into the order of the cells, which
// makes it independent of the number of threads. A cell is known again by the digest of all that
// its result depends on: more values, another order or another name of the scenario keep what is
// finished.
#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <vector>

#include "explore/cells.hpp"
#include "explore/rows.hpp"
#include "explore/share.hpp"

namespace rackrail::explore {

struct SweepOptions {
  /// Of the whole sweep; a share of it writes Share::own_file. Nothing is kept if empty.
  std::filesystem::path results;
  std::size_t threads = 0;    ///< one per core if 0
  bool retry_failed = false;  ///< run cells again whose row is an error
  Share share;
  /// Called after every cell with how many of how many are finished; from one thread at a time.
  std::function<void(std::size_t, std::size_t)> progress;
  /// Asked between cells: from the first true on the sweep ends with the rows so far. May be empty.
  std::function<bool()> stop;
  /// What a cell comes to; `evaluate` if empty.
  std::function<Figures(const Cell&)> evaluate;
};

struct SweepResult {
  std::vector<Row> rows;     ///< of this share, in the order of the cells
  std::size_t ran = 0;       ///< cells that were run now; the others were finished before
  std::size_t failed = 0;    ///< rows that are errors
  std::size_t left_out = 0;  ///< cells without a row, as SweepOptions::stop came first
  std::size_t kept = 0;      ///< rows of the file that are none of this scenario's cells
};

/// Throws ConfigError when the results cannot be read or written. What a cell throws becomes its
/// row, unless it is no std::exception.
SweepResult run_sweep(const Cells& cells, const SweepOptions& options);

/// What becomes of one cell, by options.evaluate.
Row run_cell(const Cell& cell, const SweepOptions& options);

/// The row whose objective is best, the earlier one of equals; null when all failed.
const Row* best_row(const std::vector<Row>& rows, const Objective& objective);

}  // namespace rackrail::explore
