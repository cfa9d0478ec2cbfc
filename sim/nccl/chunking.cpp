#include <algorithm>

#include "sim/nccl/schedules.hpp"

namespace rackrail::sim::nccl {

namespace {

constexpr std::int64_t kKibi = 1024;
constexpr std::int64_t kPassBytes = 64 * kKibi;
// NCCL's buffers: 4 MiB in 8 steps (Simple); 120 B of 128 B lines, 640 threads (LL128); 512
// threads, 64 lines of 16 B in 8 steps, half of them flags (LL). A ring's chunk is 4 steps of
// Simple.
constexpr std::int64_t kSimpleStep = 512 * kKibi;
constexpr std::int64_t kRingSimpleChunk = 4 * kSimpleStep;
constexpr std::int64_t kLl128Chunk = 576'000;
constexpr std::int64_t kLlChunk = 32 * kKibi;
constexpr std::int64_t kLeastSlice = 32 * kKibi;
constexpr std::int64_t kNvlsChunk = 128 * kKibi;
constexpr std::size_t kManyHosts = 4;  // from here on NVLS trees have a chunk size of their own

std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

}  // namespace

Chunking ring_chunking(std::int64_t bytes, std::size_t ranks, int channels, Protocol protocol) {
  const std::int64_t largest = protocol == Protocol::kSimple  ? kRingSimpleChunk
                               : protocol == Protocol::kLl128 ? kLl128Chunk
                                                              : kLlChunk;
  const std::int64_t parts = static_cast<std::int64_t>(ranks) * channels;
  Chunking chunking;
  chunking.chunk_bytes = std::min(largest, ceil_div(bytes, parts));
  chunking.loops = bytes / (chunking.chunk_bytes * parts);
  chunking.rest_bytes = ceil_div(bytes - chunking.loops * chunking.chunk_bytes * parts, parts);
  if (chunking.loops == 0) {  // the chunk was rounded up
    chunking.loops = 1;
    chunking.rest_bytes = 0;
  }
  chunking.slices = protocol == Protocol::kSimple && chunking.chunk_bytes > kLeastSlice ? 2 : 1;
  return chunking;
}

Chunking tree_chunking(std::int64_t bytes, std::int64_t parts, std::size_t hosts, std::size_t gpus,
                       Algorithm algorithm, Protocol protocol, Bytes nvls_tree_chunk) {
  // Smaller chunks where the buffer would not fill the pipeline (enqueue.cc).
  std::int64_t chunk = kLlChunk;
  const auto halve_while = [&](double loops, std::int64_t least) {
    while (chunk > least &&
           static_cast<double>(bytes) < loops * static_cast<double>(parts * chunk)) {
      chunk /= 2;
    }
  };
  const auto depth = static_cast<double>(tree_depth(hosts));
  const auto per_host = static_cast<double>(gpus);
  if (algorithm == Algorithm::kNvls || algorithm == Algorithm::kNvlsTree) {
    const bool is_deep = algorithm == Algorithm::kNvlsTree && hosts >= kManyHosts;
    chunk = is_deep ? nvls_tree_chunk.count() : kNvlsChunk;
    halve_while(4, kNvlsChunk / 2);
    halve_while(1, kNvlsChunk / 4);
  } else if (protocol == Protocol::kSimple) {
    const double steps = std::max(1.0, depth + per_host - 1);
    chunk = kSimpleStep;
    halve_while(8 * steps, 128 * kKibi);
    halve_while(4 * steps, 64 * kKibi);
    halve_while(steps, 32 * kKibi);
  } else if (protocol == Protocol::kLl128) {
    const double steps = 1 + depth + 0.1 * per_host;
    chunk = kLl128Chunk;
    halve_while(steps * 64 / per_host, 128 * kKibi);
    halve_while(steps * 16 / per_host, 32 * kKibi);
  }
  Chunking chunking;
  chunking.loops = std::max<std::int64_t>(1, ceil_div(bytes, parts * chunk));
  chunking.chunk_bytes = ceil_div(bytes, parts * chunking.loops);
  return chunking;
}

double block_bytes(std::int64_t slice_bytes, double pass_share, Protocol protocol) {
  if (protocol != Protocol::kSimple) {
    return static_cast<double>(slice_bytes);
  }
  const std::int64_t unfilled = ceil_div(slice_bytes, kPassBytes) * kPassBytes - slice_bytes;
  return static_cast<double>(slice_bytes) + pass_share * static_cast<double>(unfilled);
}

}  // namespace rackrail::sim::nccl
