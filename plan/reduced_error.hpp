// How far a reduced gradient is from the exact sum, by what is encoded on its way.
//
// Model. N ranks contribute vectors of like norm g that are not correlated, so a partial sum of m
// of them has the norm √m·g. Encoding it with a codec of relative error ω (plan::relative_error, or
// measured) makes of it an error of norm ω·√m·g, independent of all others, and leaves √(1 − ω²)
// of it for what follows: codecs that leave out elements do just that, and of the others ω² is next
// to nothing. So E never exceeds 1, and for small ω the relative error E of the whole sum is
//
//   E² = Σ over the encodings between the contributions and a result of (m/N) · ω²,
//
// averaged over the chunks by their size. Each contribution that is sent by itself counts 1/N, each
// hop of a chain its length so far, and what results are encoded in counts whole: 2 − 1/N for a
// parameter server, (N − 1)/2 + 1 for a ring. What is forwarded as it came is not encoded again
// (rule 6 of plan/transfer_graph.hpp).
//
// Contributions that agree in part make less: of equal ones a partial sum has m/N of the norm, not
// √(m/N). Ones that cancel each other make more, and are left out. Nor does it know of error
// feedback, which takes from the mean over steps what codecs left out of one.
#pragma once

#include <functional>

#include "plan/codec.hpp"
#include "plan/plan.hpp"
#include "plan/transfer_graph.hpp"
#include "plan/workload.hpp"

namespace rackrail::plan {

/// E of an all-reduce, on the rank where it is largest. `error_of` is ω of one encoding, not asked
/// for FP32. O(movements of chunks); of graphs of very many chunks and ranks some chunks, evenly
/// spaced, speak for all.
double reduced_error(const TransferGraph& graph,
                     const std::function<double(const Codec&)>& error_of);

/// Of all buckets, as if all elements of the gradient had the same norm: errors of codecs are those
/// of the workload.
double reduced_error(const Plan& plan, const Workload& workload);

}  // namespace rackrail::plan
