// What both ends of the coordinator's connection agree on besides the protocol.
#pragma once

#include <string>
#include <string_view>

namespace rackrail::runtime {

/// Metadata key of the job's token, in every call.
inline constexpr const char* kTokenKey = "rackrail-job-token";

/// Largest message that a worker accepts (a plan with explicit transfers may be large) …
inline constexpr int kLargestWelcome = 512 << 20;
/// … and that the coordinator accepts, of who has the job's token.
inline constexpr int kLargestReport = 64 << 20;
/// Of one connection: a worker has its membership's stream, a heartbeat and a few reports.
inline constexpr int kMostCallsAtOnce = 32;

/// Before the first use of gRPC: its library must not write to stderr unless GRPC_VERBOSITY asks.
void prepare_grpc();

/// The text as one line of at most 1,000 characters: what others send goes into messages.
std::string one_line(std::string_view text);

}  // namespace rackrail::runtime
