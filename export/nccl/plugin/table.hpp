// The table that the tuner plugin answers from: lines of CSV, the first that matches wins.
//
//   collective,min_bytes,max_bytes,algorithm,protocol,channels,nNodes,nRanks[,numPipeOps[,regBuff[,chunk_bytes]]]
//
// as NVIDIA's example plugin has them, and the chunk; -1 (0 for the chunk) stands for any, or for
// NCCL's own. Other than there, a line that cannot be read is an error: a misspelt word must not
// become all-reduce by rings without a word.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "export/nccl/plugin/tuner_abi.hpp"

namespace rackrail::nccl_tuner {

struct Rule {
  Function function = Function::kAllReduce;
  std::uint64_t least_bytes = 0;
  std::uint64_t most_bytes = 0;
  Algorithm algorithm = Algorithm::kRing;
  Protocol protocol = Protocol::kSimple;
  long channels = -1;
  long nodes = -1;
  long ranks = -1;
  long operations = -1;
  long registered = -1;
  long chunk_bytes = 0;
};

/// A collective that NCCL asks about.
struct Question {
  int function = 0;
  std::size_t bytes = 0;
  std::size_t nodes = 1;
  std::size_t ranks = 1;
  int operations = 1;
  int registered = -1;  ///< -1: not known
};

struct Table {
  std::vector<Rule> rules;
  std::string problem;  ///< the first line that could not be read; `rules` are empty then
};

Table parse_table(std::string_view text);
bool matches(const Rule& rule, const Question& question);

std::string_view name_of(Algorithm algorithm);
std::string_view name_of(Protocol protocol);
std::string_view name_of(Function function);

}  // namespace rackrail::nccl_tuner
