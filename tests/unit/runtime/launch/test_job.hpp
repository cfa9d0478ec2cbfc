// A small training job for tests: plan, configuration, and workers that follow a script.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "plan/plan.hpp"
#include "runtime/launch/job.hpp"

namespace rackrail::runtime::test {

/// Text of a training configuration of a small perceptron on the shipped digits.
std::string training_text(std::int64_t steps, std::int64_t checkpoint_every);

/// A plan for that model: a bucket per tensor, sums gathered by rank 0 and sent to all.
plan::Plan make_plan(std::size_t ranks);

/// Options of a job whose workers do `script` (scripted_worker.cpp), with patience for a busy
/// machine.
JobOptions make_options(const std::string& script, std::int64_t steps = 8,
                        std::int64_t checkpoint_every = 0);

}  // namespace rackrail::runtime::test
