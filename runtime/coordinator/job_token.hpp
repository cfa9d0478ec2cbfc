// The secret that the workers of one job share with its coordinator.
//
// It comes from a file or from the environment variable RACKRAIL_JOB_TOKEN, never from the command
// line, which every user of a machine can read.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

namespace rackrail::runtime {

inline constexpr const char* kJobTokenVariable = "RACKRAIL_JOB_TOKEN";

/// The first line of the file, or the variable where `file` is empty; empty when there is neither.
/// Throws ConfigError when the file cannot be read or others than its owner may read it, and when
/// the token has fewer than 16 or more than 4096 characters or is not printable ASCII.
std::string read_job_token(const std::filesystem::path& file);
/// The token, if it can be one; ConfigError with this file and place where it cannot.
std::string checked_job_token(std::string token, const std::string& file, const std::string& where);

/// 256 random bits from the operating system, as text. Throws RuntimeFailure where it has none.
std::string make_job_token();
/// 64 of them.
std::uint64_t random_key();

/// Whether the two are equal, in a time that does not depend on where they differ.
bool same_token(std::string_view a, std::string_view b);

}  // namespace rackrail::runtime
