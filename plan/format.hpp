// Plans as files: the Protocol Buffers message of plan/plan.proto as JSON (readable) or binary.
//
// The format has a version; a newer one than this program knows is refused with both numbers.
// Writing is deterministic: the same plan gives the same bytes. Loading verifies.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "plan/plan.hpp"
#include "plan/workload.hpp"
#include "topology/topology.hpp"

namespace rackrail::plan {

/// The newest; a plan is written with the oldest version that says all of it.
inline constexpr int kPlanFormatVersion = 6;

/// Both throw PlanError for a plan with a text that is not UTF-8.
std::string to_json(const Plan& plan);
std::string to_binary(const Plan& plan);
/// SHA-256 of the binary form: what workers compare before they start.
std::string digest(const Plan& plan);

/// Either form, told by content; `file` is for messages. Checks structure and verifies every
/// schedule; throws PlanError or ConfigError.
Plan parse_plan(std::string_view content, const std::string& file);

/// Reads and parses only. Who has the plan's cluster or workload verifies it with them
/// (require_right), as the plan names both.
Plan load_unverified(const std::filesystem::path& path);

/// Throws PlanError with the first problem that verify() finds; what is null is not checked.
void require_right(const Plan& plan, const topology::Topology* topology, const Workload* workload,
                   const std::string& file);

/// Reads, parses and verifies; with a topology also checks that the plan was made for it.
Plan load_plan(const std::filesystem::path& path, const topology::Topology* topology = nullptr);

/// JSON when the name ends in .json, else binary; atomic.
void save_plan(const Plan& plan, const std::filesystem::path& path);

}  // namespace rackrail::plan
