// MSCCL programs: XML that says for every GPU which thread block sends, receives and adds what, in
// which order. Written by msccl-tools and by papers on collectives, run by Azure's executor for
// NCCL (msccl-executor-nccl) and by RCCL.
//
// A thread block has at most one peer to send to and one to receive from, and runs its steps in
// order. The k-th send over a connection (from, to, channel) meets the k-th receive. A step waits
// for at most one step of another block; a `nop` before it lets it wait for more. Buffers are equal
// chunks: of an all-reduce, all of them; of an all-gather's output and a reduce-scatter's input,
// the ranks' parts in order.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "plan/transfer_graph.hpp"

namespace rackrail::plan::msccl {

enum class Buffer : std::uint8_t { kInput, kOutput, kScratch };

enum class StepType : std::uint8_t {
  kNop,
  kSend,                   ///< s
  kReceive,                ///< r
  kCopy,                   ///< cpy
  kReduce,                 ///< re: adds a local chunk to another
  kReceiveReduceCopy,      ///< rrc: adds what came
  kReceiveCopySend,        ///< rcs: keeps what came and sends it on
  kReceiveReduceSend,      ///< rrs: sends the sum on and does not keep it
  kReceiveReduceCopySend,  ///< rrcs: keeps the sum and sends it on
};

bool receives(StepType type);
bool sends(StepType type);
bool adds(StepType type);

struct Place {
  Buffer buffer = Buffer::kInput;
  int offset = 0;  ///< in chunks
};

struct Step {
  StepType type = StepType::kNop;
  Place source;  ///< what is sent, copied or added; of rrs the local summand
  Place target;  ///< what is written
  int count = 0;
  int wanted_block = -1;  ///< of the same GPU, whose step must be done; -1: none
  int wanted_step = -1;
  bool is_wanted = false;  ///< whether a step waits for this one
};

struct ThreadBlock {
  int send_to = -1;  ///< rank; -1: none
  int receive_from = -1;
  int channel = 0;
  std::vector<Step> steps;
};

struct Gpu {
  int input_chunks = 0;
  int output_chunks = 0;
  int scratch_chunks = 0;
  std::vector<ThreadBlock> blocks;
};

struct Program {
  std::string name;
  std::string protocol = "Simple";  ///< Simple, LL or LL128
  Collective collective = Collective::kAllReduce;
  int channels = 1;
  int chunks = 1;  ///< nchunksperloop: of the whole buffer
  bool is_in_place = true;
  bool is_out_of_place = false;
  std::vector<Gpu> gpus;  ///< by rank
};

/// Whether the text begins as such a file does: with the element `algo`.
bool looks_like_program(std::string_view content);

/// `file` is for messages. Throws ConfigError with file and place for what is no such program, or
/// names a buffer, block, step or rank that is not there.
Program parse_program(const std::string& content, const std::string& file);
std::string to_xml(const Program& program);

}  // namespace rackrail::plan::msccl
