// An MSCCL program as a transfer graph, so that it is verified, simulated and executed like our
// own.
//
// Each message is a transfer: what receives it says whether it copies or adds. The graph has one
// buffer per rank, so input and output are one, as where a program works in place; a scratch
// buffer holds what came until a step adds or copies it, and the transfer is counted from there.
// Both are refused where the difference would show: where a step reads what the one buffer no
// longer has (an input after its place in the output was written, a summand after `rrs`, which
// does not keep the sum), and where scratch is sent on.
//
// What a step reads or adds to must have been written before by the order of its GPU: steps of a
// block and their waits. Without it they race, which is refused. Whether a copy may come too soon,
// before what it replaces was read, is the verifier's to say (plan/verifier.hpp).
#pragma once

#include <string>

#include "plan/msccl/program.hpp"
#include "plan/transfer_graph.hpp"

namespace rackrail::plan::msccl {

/// `file` is for messages. Throws ConfigError with the GPU, block and step of what cannot be said,
/// of a race, and of a wait that never ends.
TransferGraph to_graph(const Program& program, const std::string& file);

}  // namespace rackrail::plan::msccl
