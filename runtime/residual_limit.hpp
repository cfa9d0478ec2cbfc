// Keeps one unusual gradient from spoiling the steps after it.
//
// Error feedback adds to each gradient what its codec left out of the one before. That is a small
// part of a gradient, or some times its size where a codec sends few elements. After a step whose
// gradient is 10,000 times the usual one it is many times the next gradient, which then has another
// direction. So what such a step leaves is scaled to what a usual one would have left, and where a
// gradient is not finite, it leaves nothing.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace rackrail::runtime {

/// Gradients of at most so many times the usual norm leave what they leave.
inline constexpr double kUsualSpread = 100;

/// Euclidean; infinite or not a number where one of the values is.
double norm_of(std::span<const float> values);

/// After a slice of a gradient with this norm was encoded: scales what it left out. `usual`: the
/// running mean of the norms of each slice of that encoding place, 0 where it is not known yet; it
/// is part of the state that goes into checkpoints, so that a training that resumes has the same
/// bits.
void limit_residual(std::vector<float>& usual, std::size_t slice, double norm,
                    std::span<float> residual);

/// What the norms are called beside the residual of a place.
inline constexpr const char* kNormsSuffix = ", usual norms";

}  // namespace rackrail::runtime
