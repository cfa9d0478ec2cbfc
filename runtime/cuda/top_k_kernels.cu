// Top-k: the same elements as the codec of plan/codecs/ keeps, exactly, in one pass over the data.
//
// 1. A sample gives a threshold that somewhat more than k elements reach, almost certainly.
// 2. The one pass: what reaches it goes to a list of candidates. A thread block has a tile of
//    elements, counts its candidates, reserves room for all of them at once, and writes them in the
//    order of their indices; where that is, is kept for each tile.
// 3. The k-th largest candidate is found digit by digit (11, 10 and 10 bits of the magnitude).
// 4. Counts per tile of what is larger, and of what is equal, give each tile its place in what is
//    sent and its share of the ties, of which those with the lowest indices are kept. Candidates
//    are written there.
// When fewer than k elements reach the threshold, or more than there is room for (a sample that
// misleads, many equal values), steps 3 and 4 run over the data itself. The device decides that, so
// the same launches serve both, in a graph too.
//
// With error feedback the pass writes gradient + residual to the residual, but zeros for candidates
// that are in the list: those that step 4 does not send go back into the residual, unless they are
// not finite. Few of them do, while clearing all that is sent would touch as many places of memory
// as there are. What is not finite is larger than everything else, so it is among the candidates.
// Where steps 3 and 4 run over the data, all candidates go back first, and step 4 clears what it
// sends.
#include "runtime/cuda/launch_device.cuh"

namespace rackrail::runtime {
namespace {

constexpr unsigned kWarps = kThreads / kWarp;
constexpr unsigned kVectors = 8;                      // of four elements, per thread
constexpr unsigned kWarpTile = kWarp * 4 * kVectors;  // consecutive elements of a warp
constexpr unsigned kTile = kWarps * kWarpTile;        // … and of a thread block
constexpr std::size_t kSamples = std::size_t{1} << 17U;
constexpr unsigned kSampleShift = 16;  // a bin for 7 bits of the fraction
constexpr unsigned kSampleBins = 1U << (31U - kSampleShift);
constexpr unsigned kWide = 1024;  // threads of the steps of one thread block
constexpr unsigned kDigitBins = 2048;
constexpr unsigned kLevels = 3;
constexpr std::size_t kAlignment = 256;

/// What the steps hand on.
struct State {
  std::uint32_t threshold;   // candidates have a magnitude of that, or more
  std::uint32_t candidates;  // how many there are, whether or not there was room
  std::uint32_t falls_back;  // steps 3 and 4 run over all elements
  std::uint32_t prefix;      // digits of the k-th largest magnitude so far
  std::uint32_t wanted;      // its rank among those with that prefix, from 1
};

/// Where a tile's candidates are.
struct Segment {
  std::uint32_t begin;
  std::uint32_t count;
};

/// Of a tile: elements above the k-th largest, and equal ones; then where its kept elements go, and
/// how many equal ones it may keep.
struct Share {
  std::uint32_t larger_or_begin;
  std::uint32_t equal;
};

struct TopK {
  const float* input;
  float* residual;
  std::size_t elements;
  std::uint32_t kept;
  std::uint32_t room;  // for candidates
  std::uint32_t tiles;
  std::uint32_t samples;
  State* state;
  std::uint32_t* bins;
  Segment* segments;
  Share* shares;
  std::uint32_t* candidate_indices;
  float* candidate_values;
  std::uint32_t* indices;  // the output
  float* values;
};

/// Bits of the magnitude below the prefix that levels 0, 1, … find, and below their digit.
__device__ __forceinline__ unsigned shift_above(unsigned level) {
  return level == 0 ? 31 : level == 1 ? 20 : 10;
}
__device__ __forceinline__ unsigned shift_below(unsigned level) {
  return level == 0 ? 20 : level == 1 ? 10 : 0;
}

/// The sum of the values of this lane and those before it.
template <typename T>
__device__ __forceinline__ T sum_to_lane(T value) {
#pragma unroll
  for (unsigned distance = 1; distance < kWarp; distance *= 2) {
    const T other = __shfl_up_sync(kAllLanes, value, distance);
    value += threadIdx.x % kWarp >= distance ? other : 0;
  }
  return value;
}

/// The sum of the values of the threads before this one, in a thread block of kSize.
template <unsigned kSize, typename T>
__device__ T sum_before(T value) {
  __shared__ T totals[kSize / kWarp];
  const T sum = sum_to_lane(value);
  __syncthreads();  // the totals of an earlier call have been read
  if (threadIdx.x % kWarp == kWarp - 1) {
    totals[threadIdx.x / kWarp] = sum;
  }
  __syncthreads();
  T before = sum - value;
  for (unsigned warp = 0; warp < threadIdx.x / kWarp; ++warp) {
    before += totals[warp];
  }
  return before;
}

__global__ void __launch_bounds__(kThreads) sample_kernel(TopK task) {
  for (std::size_t s = thread_in_grid(); s < task.samples; s += threads_in_grid()) {
    // Somewhere in the s-th of as many equal parts.
    const std::size_t begin = s * task.elements / task.samples;
    const std::size_t end = (s + 1) * task.elements / task.samples;
    const std::size_t i =
        begin + (random_bits(task.elements, s) >> 32U) * (end - begin) / (1ULL << 32U);
    float value = task.input[i];
    if (task.residual != nullptr) {
      value += task.residual[i];
    }
    atomicAdd(&task.bins[element::magnitude_of(value) >> kSampleShift], 1U);
  }
}

/// Leaves the bins empty for the next step.
__global__ void __launch_bounds__(kWide) sample_threshold_kernel(TopK task, std::uint32_t rank) {
  constexpr unsigned kEach = kSampleBins / kWide;
  const unsigned begin = kSampleBins - kEach * (threadIdx.x + 1);  // of this thread's bins
  auto* words = reinterpret_cast<uint4*>(task.bins + begin);
  std::uint32_t counts[kEach];  // on their way all at once
  std::uint32_t sum = 0;
#pragma unroll
  for (unsigned w = 0; w < kEach / 4; ++w) {
    const uint4 four = words[w];
    words[w] = make_uint4(0, 0, 0, 0);
    counts[4 * w] = four.x;
    counts[4 * w + 1] = four.y;
    counts[4 * w + 2] = four.z;
    counts[4 * w + 3] = four.w;
    sum += four.x + four.y + four.z + four.w;
  }
  std::uint32_t before = sum_before<kWide>(sum);
#pragma unroll
  for (unsigned b = kEach; b-- > 0;) {
    if (before < rank && before + counts[b] >= rank) {
      const std::uint32_t threshold = (begin + b) << kSampleShift;
      // Whatever is not finite is a candidate.
      task.state->threshold = min(threshold, element::kInfinityBits);
    }
    before += counts[b];
  }
}

/// The first of this thread's elements of a tile.
__device__ __forceinline__ std::size_t first_of_part(std::size_t begin) {
  return begin + std::size_t{kWarpTile} * (threadIdx.x / kWarp) + 4 * (threadIdx.x % kWarp);
}

/// This thread's elements of a tile: for each v, the four from kWarpTile · warp + 128 · v + 4 ·
/// lane on. Beyond the end they are zeros; is_there has a bit for each.
struct TilePart {
  float4 values[kVectors];
  std::uint32_t is_there;
};

template <bool kHasResidual>
__device__ __forceinline__ void load_part(const TopK& task, std::size_t begin, bool in_fours,
                                          TilePart& part) {
  const std::size_t first = first_of_part(begin);
  if (in_fours) {
    part.is_there = ~0U;
#pragma unroll
    for (unsigned v = 0; v < kVectors; ++v) {
      part.values[v] = load_four(task.input, first / 4 + v * kWarp);
    }
    if constexpr (kHasResidual) {
#pragma unroll
      for (unsigned v = 0; v < kVectors; ++v) {
        part.values[v] = part.values[v] + load_four(task.residual, first / 4 + v * kWarp);
      }
    }
    return;
  }
  part.is_there = 0;
#pragma unroll
  for (unsigned v = 0; v < kVectors; ++v) {
    float four[4];
#pragma unroll
    for (unsigned j = 0; j < 4; ++j) {
      const std::size_t i = first + 4 * kWarp * v + j;
      four[j] = 0;
      if (i < task.elements) {
        four[j] = task.input[i];
        if constexpr (kHasResidual) {
          four[j] += task.residual[i];
        }
        part.is_there |= 1U << (4 * v + j);
      }
    }
    part.values[v] = make_float4(four[0], four[1], four[2], four[3]);
  }
}

/// This thread's elements of a tile to the residual, zeros where a bit of `cleared` is set.
__device__ __forceinline__ void store_part(const TopK& task, std::size_t begin, bool in_fours,
                                           const TilePart& part, std::uint32_t cleared) {
  const std::size_t first = first_of_part(begin);
#pragma unroll
  for (unsigned v = 0; v < kVectors; ++v) {
    float four[4] = {part.values[v].x, part.values[v].y, part.values[v].z, part.values[v].w};
#pragma unroll
    for (unsigned j = 0; j < 4; ++j) {
      four[j] = (cleared >> (4 * v + j) & 1U) != 0 ? 0.0F : four[j];
      if (!in_fours && (part.is_there >> (4 * v + j) & 1U) != 0) {
        task.residual[first + 4 * kWarp * v + j] = four[j];
      }
    }
    if (in_fours) {
      store_four(task.residual, first / 4 + v * kWarp,
                 make_float4(four[0], four[1], four[2], four[3]));
    }
  }
}

/// For each v, how many of a warp's bits 4v … 4v+3 are in lanes before this one (`before`) and in
/// all (`total`); four of them as the bytes of a word, none of which exceeds 128.
struct WarpCounts {
  std::uint32_t before[kVectors / 4];
  std::uint32_t total[kVectors / 4];
};

__device__ __forceinline__ WarpCounts count_in_warp(std::uint32_t bits) {
  // The population count of each group of four bits, in place.
  std::uint32_t groups = bits - (bits >> 1U & 0x55555555U);
  groups = (groups & 0x33333333U) + (groups >> 2U & 0x33333333U);
  WarpCounts counts;
  const unsigned lane = threadIdx.x % kWarp;
#pragma unroll
  for (unsigned w = 0; w < kVectors / 4; ++w) {
    std::uint32_t own = 0;
#pragma unroll
    for (unsigned b = 0; b < 4; ++b) {
      own |= (groups >> (16U * w + 4U * b) & 0xfU) << (8U * b);
    }
    std::uint32_t sum = own;
#pragma unroll
    for (unsigned distance = 1; distance < kWarp; distance *= 2) {
      const std::uint32_t other = __shfl_up_sync(kAllLanes, sum, distance);
      sum += lane >= distance ? other : 0;
    }
    counts.before[w] = sum - own;
    counts.total[w] = __shfl_sync(kAllLanes, sum, kWarp - 1);
  }
  return counts;
}

/// Whether a tile's candidates are in the list: all of them or none.
__device__ __forceinline__ bool is_listed(const TopK& task, const Segment& segment) {
  return segment.begin <= task.room && segment.count <= task.room - segment.begin;
}

template <bool kHasResidual>
__global__ void __launch_bounds__(kThreads, kHasResidual ? 3 : 4)
    candidates_kernel(TopK task, bool aligned) {
  __shared__ std::uint32_t totals[kWarps];
  __shared__ Segment shared_segment;
  const unsigned warp = threadIdx.x / kWarp;
  const std::uint32_t threshold = task.state->threshold;
  for (std::uint32_t tile = blockIdx.x; tile < task.tiles; tile += gridDim.x) {
    const std::size_t begin = std::size_t{tile} * kTile;
    const bool in_fours = aligned && begin + kTile <= task.elements;
    TilePart part;
    load_part<kHasResidual>(task, begin, in_fours, part);
    std::uint32_t reached = 0;
#pragma unroll
    for (unsigned v = 0; v < kVectors; ++v) {
      const float4 four = part.values[v];
      reached |= (element::magnitude_of(four.x) >= threshold ? 1U : 0U) << (4 * v);
      reached |= (element::magnitude_of(four.y) >= threshold ? 2U : 0U) << (4 * v);
      reached |= (element::magnitude_of(four.z) >= threshold ? 4U : 0U) << (4 * v);
      reached |= (element::magnitude_of(four.w) >= threshold ? 8U : 0U) << (4 * v);
    }
    reached &= part.is_there;
    const WarpCounts counts = count_in_warp(reached);
    std::uint32_t starts[kVectors];  // of each v in the warp's candidates
    std::uint32_t total = 0;
#pragma unroll
    for (unsigned v = 0; v < kVectors; ++v) {
      starts[v] = total + (counts.before[v / 4] >> (8U * (v % 4)) & 0xffU);
      total += counts.total[v / 4] >> (8U * (v % 4)) & 0xffU;
    }
    // Of the last tile, only this warp still read it. Its lanes have met since, but shuffles order
    // no memory.
    __syncwarp();
    if (threadIdx.x % kWarp == 0) {
      totals[warp] = total;
    }
    __syncthreads();
    if (threadIdx.x == 0) {
      std::uint32_t sum = 0;
      for (unsigned w = 0; w < kWarps; ++w) {
        const std::uint32_t count = totals[w];
        totals[w] = sum;
        sum += count;
      }
      shared_segment = {sum == 0 ? 0 : atomicAdd(&task.state->candidates, sum), sum};
      task.segments[tile] = shared_segment;
    }
    __syncthreads();
    const Segment segment = shared_segment;
    const std::uint32_t place = segment.begin + totals[warp];
    const bool listed = is_listed(task, segment);
    if constexpr (kHasResidual) {
      store_part(task, begin, in_fours, part, listed ? reached : 0);
    }
    if (reached == 0 || !listed) {
      continue;
    }
    const auto first =
        static_cast<std::uint32_t>(begin + kWarpTile * warp + 4 * (threadIdx.x % kWarp));
#pragma unroll
    for (unsigned v = 0; v < kVectors; ++v) {
      std::uint32_t to = place + starts[v];
      const float four[4] = {part.values[v].x, part.values[v].y, part.values[v].z,
                             part.values[v].w};
#pragma unroll
      for (unsigned j = 0; j < 4; ++j) {
        if ((reached >> (4 * v + j) & 1U) != 0) {
          task.candidate_indices[to] = first + 4 * kWarp * v + j;
          task.candidate_values[to] = four[j];
          ++to;
        }
      }
    }
  }
}

__device__ __forceinline__ bool has_too_few_or_many(const TopK& task) {
  return task.state->candidates < task.kept || task.state->candidates > task.room;
}

__global__ void start_selection_kernel(TopK task) {
  State& state = *task.state;
  state.falls_back = has_too_few_or_many(task) ? 1 : 0;
  state.prefix = 0;
  state.wanted = task.kept;
}

/// Where the list is of no use: what the pass has taken out of the residual for it.
__global__ void __launch_bounds__(kThreads) restore_kernel(TopK task) {
  if (!has_too_few_or_many(task)) {
    return;
  }
  for (std::size_t tile = thread_in_grid() / kWarp; tile < task.tiles;
       tile += threads_in_grid() / kWarp) {
    const Segment segment = task.segments[tile];
    if (is_listed(task, segment)) {
      for (std::uint32_t e = threadIdx.x % kWarp; e < segment.count; e += kWarp) {
        task.residual[task.candidate_indices[segment.begin + e]] =
            task.candidate_values[segment.begin + e];
      }
    }
  }
}

/// The values that steps 3 and 4 run over.
__device__ __forceinline__ const float* source_of(const TopK& task) {
  if (task.state->falls_back == 0) {
    return task.candidate_values;
  }
  return task.residual != nullptr ? task.residual : task.input;
}

__global__ void __launch_bounds__(kThreads) digits_kernel(TopK task, unsigned level) {
  __shared__ std::uint32_t counts[kDigitBins];
  for (unsigned b = threadIdx.x; b < kDigitBins; b += kThreads) {
    counts[b] = 0;
  }
  __syncthreads();
  const float* source = source_of(task);
  const std::size_t size = task.state->falls_back != 0 ? task.elements : task.state->candidates;
  const std::uint32_t prefix = task.state->prefix;
  const std::uint32_t mask = (1U << (shift_above(level) - shift_below(level))) - 1;
  for (std::size_t i = thread_in_grid(); i < size; i += threads_in_grid()) {
    const std::uint32_t magnitude = element::magnitude_of(source[i]);
    if (magnitude >> shift_above(level) == prefix) {
      atomicAdd(&counts[magnitude >> shift_below(level) & mask], 1U);
    }
  }
  __syncthreads();
  for (unsigned b = threadIdx.x; b < kDigitBins; b += kThreads) {
    if (counts[b] != 0) {
      atomicAdd(&task.bins[b], counts[b]);
    }
  }
}

/// Leaves the bins empty for the next level.
__global__ void __launch_bounds__(kWide) pick_digit_kernel(TopK task, unsigned level) {
  constexpr unsigned kEach = kDigitBins / kWide;
  const unsigned top = kDigitBins - kEach * threadIdx.x;
  const std::uint32_t wanted = task.state->wanted;
  const std::uint32_t prefix = task.state->prefix;
  const unsigned width = shift_above(level) - shift_below(level);
  std::uint32_t sum = 0;
  for (unsigned b = 1; b <= kEach; ++b) {
    sum += task.bins[top - b];
  }
  std::uint32_t before = sum_before<kWide>(sum);  // all have read the state by then
  for (unsigned b = 1; b <= kEach; ++b) {
    const std::uint32_t count = task.bins[top - b];
    task.bins[top - b] = 0;
    if (before < wanted && before + count >= wanted) {
      task.state->prefix = prefix << width | (top - b);
      task.state->wanted = wanted - before;
    }
    before += count;
  }
}

/// The entries of a tile that steps 3 and 4 run over, as a range of source_of().
__device__ __forceinline__ Segment entries_of(const TopK& task, std::uint32_t tile) {
  if (task.state->falls_back == 0) {
    return task.segments[tile];
  }
  const std::size_t begin = std::size_t{tile} * kTile;
  const std::size_t size = task.elements - begin < kTile ? task.elements - begin : kTile;
  return {static_cast<std::uint32_t>(begin), static_cast<std::uint32_t>(size)};
}

__global__ void __launch_bounds__(kThreads) count_kernel(TopK task) {
  const float* source = source_of(task);
  const std::uint32_t least = task.state->prefix;
  for (std::size_t tile = thread_in_grid() / kWarp; tile < task.tiles;
       tile += threads_in_grid() / kWarp) {
    const Segment entries = entries_of(task, static_cast<std::uint32_t>(tile));
    std::uint32_t larger = 0;
    std::uint32_t equal = 0;
    for (std::uint32_t e = threadIdx.x % kWarp; e < entries.count; e += kWarp) {
      const std::uint32_t magnitude = element::magnitude_of(source[entries.begin + e]);
      larger += magnitude > least ? 1 : 0;
      equal += magnitude == least ? 1 : 0;
    }
    larger = __reduce_add_sync(kAllLanes, larger);
    equal = __reduce_add_sync(kAllLanes, equal);
    if (threadIdx.x % kWarp == 0) {
      task.shares[tile] = {larger, equal};
    }
  }
}

/// What is larger, in the upper half of a number, and what is equal: both below 2³².
__device__ __forceinline__ std::uint64_t packed(const Share& share) {
  return static_cast<std::uint64_t>(share.larger_or_begin) << 32U | share.equal;
}

/// A warp has consecutive tiles, a row of them at a time: neighbouring lanes, neighbouring tiles.
__global__ void __launch_bounds__(kWide) share_kernel(TopK task) {
  const unsigned lane = threadIdx.x % kWarp;
  const std::uint32_t rows =
      ceil_divide(ceil_divide<std::uint32_t>(task.tiles, kWarp), kWide / kWarp);
  const std::uint32_t begin = min(threadIdx.x / kWarp * rows * kWarp, task.tiles);
  const std::uint32_t end = min(begin + rows * kWarp, task.tiles);
  const std::uint32_t ties = task.state->wanted;
  std::uint64_t sum = 0;
#pragma unroll 8
  for (std::uint32_t tile = begin + lane; tile < end; tile += kWarp) {
    sum += packed(task.shares[tile]);
  }
  std::uint64_t before = __shfl_sync(kAllLanes, sum_before<kWide>(sum), 0);
#pragma unroll 4
  for (std::uint32_t row = begin; row < end; row += kWarp) {
    const std::uint32_t tile = row + lane;
    const Share share = tile < end ? task.shares[tile] : Share{0, 0};
    const std::uint64_t to_lane = sum_to_lane(packed(share));
    const std::uint64_t before_tile = before + to_lane - packed(share);
    if (tile < end) {
      const auto equal = static_cast<std::uint32_t>(before_tile);
      const std::uint32_t taken = min(equal, ties);
      task.shares[tile] = {static_cast<std::uint32_t>(before_tile >> 32U) + taken,
                           min(share.equal, ties - taken)};
    }
    before += __shfl_sync(kAllLanes, to_lane, kWarp - 1);
  }
}

__global__ void __launch_bounds__(kThreads) emit_kernel(TopK task) {
  const float* source = source_of(task);
  const bool falls_back = task.state->falls_back != 0;
  const std::uint32_t least = task.state->prefix;
  const std::uint32_t lanes_before = (1U << (threadIdx.x % kWarp)) - 1;
  for (std::size_t tile = thread_in_grid() / kWarp; tile < task.tiles;
       tile += threads_in_grid() / kWarp) {
    const Segment entries = entries_of(task, static_cast<std::uint32_t>(tile));
    std::uint32_t to = task.shares[tile].larger_or_begin;
    std::uint32_t ties = task.shares[tile].equal;
    for (std::uint32_t row = 0; row < entries.count; row += kWarp) {
      const std::uint32_t entry = row + threadIdx.x % kWarp;
      const bool is_there = entry < entries.count;
      const float value = is_there ? source[entries.begin + entry] : 0.0F;
      const std::uint32_t magnitude = element::magnitude_of(value);
      const std::uint32_t equals = __ballot_sync(kAllLanes, is_there && magnitude == least);
      const bool is_kept =
          is_there &&
          (magnitude > least || (magnitude == least &&
                                 static_cast<std::uint32_t>(__popc(equals & lanes_before)) < ties));
      const std::uint32_t keeps = __ballot_sync(kAllLanes, is_kept);
      if (is_there) {
        const std::uint32_t index =
            falls_back ? entries.begin + entry : task.candidate_indices[entries.begin + entry];
        if (is_kept) {
          const std::uint32_t place = to + __popc(keeps & lanes_before);
          task.indices[place] = index;
          task.values[place] = value;
        }
        if (task.residual != nullptr) {
          const bool is_sent_or_lost = is_kept || !element::is_finite(value);
          if (falls_back && is_sent_or_lost) {
            task.residual[index] = 0;
          } else if (!falls_back && !is_sent_or_lost) {
            task.residual[index] = value;
          }
        }
      }
      to += __popc(keeps);
      ties -= min(ties, static_cast<std::uint32_t>(__popc(equals)));
    }
  }
}

__global__ void __launch_bounds__(kThreads)
    check_kernel(const std::uint32_t* indices, std::size_t kept, std::size_t elements,
                 std::uint32_t* refused) {
  for (std::size_t k = thread_in_grid(); k < kept; k += threads_in_grid()) {
    if (indices[k] >= elements || (k != 0 && indices[k - 1] >= indices[k])) {
      atomicAdd(refused, 1U);
    }
  }
}

__global__ void __launch_bounds__(kThreads)
    clear_kernel(float* output, std::size_t elements, const std::uint32_t* refused) {
  if (*refused != 0) {
    return;
  }
  for (std::size_t i = thread_in_grid(); i < elements; i += threads_in_grid()) {
    output[i] = 0;
  }
}

__global__ void __launch_bounds__(kThreads)
    scatter_kernel(const std::uint32_t* indices, const float* values, std::size_t kept, Into into,
                   float* output, const std::uint32_t* refused) {
  if (*refused != 0) {
    return;
  }
  for (std::size_t k = thread_in_grid(); k < kept; k += threads_in_grid()) {
    const std::uint32_t index = indices[k];
    output[index] = into == Into::kAdd ? output[index] + values[k] : values[k];
  }
}

/// How many sampled elements reach the threshold: so many that k elements do, unless the sample is
/// five standard deviations off.
std::uint32_t sample_rank(std::size_t samples, std::size_t elements, std::size_t kept) {
  const double expected =
      static_cast<double>(samples) * static_cast<double>(kept) / static_cast<double>(elements);
  const double rank = samples == elements ? expected : expected + 5 * std::sqrt(expected) + 5;
  return static_cast<std::uint32_t>(std::min(std::ceil(rank), static_cast<double>(samples)));
}

/// Half as many again as wanted, and what a bin of the sample may hold besides.
std::size_t room_for(std::size_t elements, std::size_t kept) {
  return std::min(elements, kept + kept / 2 + 65'536);
}

/// Divides scratch memory.
class Divider {
 public:
  explicit Divider(std::byte* memory) : memory_(memory) {}

  template <typename T>
  T* take(std::size_t count) {
    std::byte* begin = memory_ == nullptr ? nullptr : memory_ + used_;
    used_ += ceil_divide(count * sizeof(T), kAlignment) * kAlignment;
    return reinterpret_cast<T*>(begin);
  }
  std::size_t used() const { return used_; }

 private:
  std::byte* memory_;
  std::size_t used_ = 0;
};

/// The parts of a task that lie in scratch memory, or only how much they take.
std::size_t divide_scratch(std::byte* memory, std::size_t elements, std::size_t kept, TopK& task) {
  Divider divider(memory);
  task.room = static_cast<std::uint32_t>(room_for(elements, kept));
  task.tiles = static_cast<std::uint32_t>(ceil_divide<std::size_t>(elements, kTile));
  task.state = divider.take<State>(1);  // and the bins: cleared together
  task.bins = divider.take<std::uint32_t>(kSampleBins);
  task.segments = divider.take<Segment>(task.tiles);
  task.shares = divider.take<Share>(task.tiles);
  task.candidate_indices = divider.take<std::uint32_t>(task.room);
  task.candidate_values = divider.take<float>(task.room);
  return divider.used();
}

}  // namespace

std::size_t top_k_scratch(std::size_t elements, std::size_t kept) {
  TopK task = {};
  return divide_scratch(nullptr, elements, kept, task);
}

void encode_top_k(const EncodeBuffers& buffers, std::size_t kept, std::byte* scratch,
                  Launch where) {
  TopK task = {};
  divide_scratch(scratch, buffers.elements, kept, task);
  task.input = buffers.input;
  task.residual = buffers.residual;
  task.elements = buffers.elements;
  task.kept = static_cast<std::uint32_t>(kept);
  task.samples = static_cast<std::uint32_t>(std::min(buffers.elements, kSamples));
  task.indices = reinterpret_cast<std::uint32_t*>(buffers.output);
  task.values = reinterpret_cast<float*>(buffers.output + kept * sizeof(std::uint32_t));
  const bool aligned = is_aligned(buffers.input, 16) && is_aligned(buffers.residual, 16);
  const std::size_t spread = where.most_blocks;
  const std::size_t tile_blocks = ceil_divide<std::size_t>(task.tiles, kWarps);

  const auto cleared = reinterpret_cast<std::byte*>(task.segments) - scratch;
  check_cuda(cudaMemsetAsync(scratch, 0, static_cast<std::size_t>(cleared), where.stream),
             "cudaMemsetAsync");
  launch("top-k: sample", sample_kernel, ceil_divide<std::size_t>(task.samples, kThreads), kThreads,
         where, task);
  launch("top-k: sample threshold", sample_threshold_kernel, 1, kWide, where, task,
         sample_rank(task.samples, task.elements, kept));
  const bool has_residual = task.residual != nullptr;
  launch("top-k: candidates", has_residual ? candidates_kernel<true> : candidates_kernel<false>,
         task.tiles, kThreads, where, task, aligned);
  if (has_residual) {
    launch("top-k: restore", restore_kernel, tile_blocks, kThreads, where, task);
  }
  launch("top-k: start selection", start_selection_kernel, 1, 1, where, task);
  for (unsigned level = 0; level < kLevels; ++level) {
    launch("top-k: digits", digits_kernel,
           std::min(spread, ceil_divide<std::size_t>(task.room, 4096)), kThreads, where, task,
           level);
    launch("top-k: pick digit", pick_digit_kernel, 1, kWide, where, task, level);
  }
  launch("top-k: count", count_kernel, tile_blocks, kThreads, where, task);
  launch("top-k: shares", share_kernel, 1, kWide, where, task);
  launch("top-k: emit", emit_kernel, tile_blocks, kThreads, where, task);
}

void decode_top_k(const std::byte* encoded, std::size_t kept, Into into, float* output,
                  std::size_t elements, std::uint32_t* refused, Launch where) {
  const auto* indices = reinterpret_cast<const std::uint32_t*>(encoded);
  const auto* values = reinterpret_cast<const float*>(encoded + kept * sizeof(std::uint32_t));
  const std::size_t blocks = ceil_divide<std::size_t>(kept, kThreads);
  launch("top-k: check", check_kernel, blocks, kThreads, where, indices, kept, elements, refused);
  if (into == Into::kStore) {
    launch("top-k: clear", clear_kernel, ceil_divide<std::size_t>(elements, kThreads), kThreads,
           where, output, elements, refused);
  }
  launch("top-k: scatter", scatter_kernel, blocks, kThreads, where, indices, values, kept, into,
         output, refused);
}

}  // namespace rackrail::runtime
