// Plan ↔ the message of plan.proto; used by format.cpp only.
#pragma once

#include "plan/plan.hpp"

namespace rackrail::v1 {
class Plan;
}  // namespace rackrail::v1

namespace rackrail::plan {

/// Fills everything but the checksum. Throws PlanError for a text that is not UTF-8.
void write_message(const Plan& plan, v1::Plan& message);

/// Checks every index and number that the parts of a plan are made from, so that a message from
/// anywhere can be read; whether the plan is right is for the verifier. Throws PlanError or
/// ConfigError without the name of the file.
Plan read_message(const v1::Plan& message);

}  // namespace rackrail::plan
