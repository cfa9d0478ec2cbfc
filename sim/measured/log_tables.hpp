// The tables in a log of nccl-tests, each with what stands around it.
#pragma once

#include <cstddef>
#include <optional>
#include <set>
#include <vector>

#include "sim/measured/log_lines.hpp"
#include "sim/measured/nccl_table.hpp"
#include "sim/measured/operation.hpp"
#include "sim/measured/rank_list.hpp"

namespace rackrail::sim::measured {

struct Table {
  TableHeader header;
  std::size_t line = 0;       ///< of the header
  std::size_t last_line = 0;  ///< of its last row
  std::vector<TableRow> rows;
  std::vector<ListedRank> ranks;
  std::optional<double> unit;           ///< seconds, where the header says
  std::optional<double> average_busbw;  ///< GB/s, over all times
  std::optional<Operation> started;     ///< "# Collective test starting: all_reduce_perf"
  std::set<Operation> programs;         ///< named since the table before
  Operation operation = Operation::kUnknown;
};

struct LogTables {
  std::vector<Table> tables;         ///< those with rows
  std::size_t not_understood = 0;    ///< lines in tables
  ProgramLine first_not_understood;  ///< the first of them
};

LogTables read_tables(const std::vector<ProgramLine>& lines);

}  // namespace rackrail::sim::measured
