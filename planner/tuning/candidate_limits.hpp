// Limits on candidates under which a search looks for plans.
#pragma once

#include <utility>

#include "planner/tuning/candidates.hpp"

namespace rackrail::planner {

/// On codecs, by the name of what is found under each.
inline constexpr std::pair<const char*, bool (*)(const Candidate&)> kCodecLimits[] = {
    {"best fp32", is_fp32}, {"best fp16", is_at_most_fp16}, {"best", any_candidate}};

inline CandidateFilter both(CandidateFilter first, CandidateFilter second) {
  return [first = std::move(first), second = std::move(second)](const Candidate& candidate) {
    return first(candidate) && second(candidate);
  };
}

}  // namespace rackrail::planner
