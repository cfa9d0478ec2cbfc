// Inner loops that are written once and compiled for several instruction sets.
//
// Which one runs is decided at run time, because one binary must run on every machine of a cluster.
// All give the same bits: loops use only operations that IEEE 754 defines exactly, in an order that
// does not depend on the width of vectors, and nothing is contracted to a fused multiply-add.
//
// A loop is a type of the file that uses it, in its unnamed namespace:
//
//   struct Halve {
//     RACKRAIL_LOOP void run(float* values, std::size_t count) { … }
//   };
//   vectorised<Halve>(set, values, count);
//
// It may call only functions that are marked in the same way or are constexpr: one of the standard
// library, compiled here for a newer processor, could be the one that all other code is linked to.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#if defined(__x86_64__)
#define RACKRAIL_X86_LOOPS 1
#define RACKRAIL_AVX2 __attribute__((target("avx2,f16c")))
#define RACKRAIL_AVX512 __attribute__((target("avx2,f16c,avx512f,avx512vl,avx512dq,avx512bw")))
#endif

#define RACKRAIL_LOOP static inline __attribute__((always_inline))

namespace rackrail::plan {

enum class InstructionSet : std::uint8_t {
  kPortable,  ///< what every processor of this architecture has
  kAvx2,      ///< with F16C
  kAvx512,    ///< F, VL, DQ and BW
};

/// Those that this machine can run, the plainest first.
std::span<const InstructionSet> usable_instruction_sets();
/// The last of them.
InstructionSet best_instruction_set();

#if defined(RACKRAIL_X86_LOOPS)
template <typename Loop, typename... Arguments>
RACKRAIL_AVX2 auto run_with_avx2(Arguments... arguments) {
  return Loop::run(arguments...);
}
template <typename Loop, typename... Arguments>
RACKRAIL_AVX512 auto run_with_avx512(Arguments... arguments) {
  return Loop::run(arguments...);
}
#endif

/// Loop::run(arguments...) with the instructions of `set`, which this machine must have.
template <typename Loop, typename... Arguments>
auto vectorised(InstructionSet set, Arguments... arguments) {
#if defined(RACKRAIL_X86_LOOPS)
  switch (set) {
    case InstructionSet::kAvx512:
      return run_with_avx512<Loop>(arguments...);
    case InstructionSet::kAvx2:
      return run_with_avx2<Loop>(arguments...);
    case InstructionSet::kPortable:
      break;
  }
#else
  (void)set;
#endif
  return Loop::run(arguments...);
}

/// The same for a loop that waits for memory, not for arithmetic: with vectors of at most 32 bytes.
/// Slices are aligned to 16 bytes only, so that every vector of 64 would lie in two cache lines.
template <typename Loop, typename... Arguments>
auto vectorised_stream(InstructionSet set, Arguments... arguments) {
  return vectorised<Loop>(std::min(set, InstructionSet::kAvx2), arguments...);
}

/// The value whose bytes start at `from`, which needs no alignment.
template <typename T>
RACKRAIL_LOOP T load(const std::byte* from) {
  T value;
  __builtin_memcpy(&value, from, sizeof value);
  return value;
}

template <typename T>
RACKRAIL_LOOP void store(std::byte* to, T value) {
  __builtin_memcpy(to, &value, sizeof value);
}

template <typename To, typename From>
RACKRAIL_LOOP To bits_as(From from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  __builtin_memcpy(&to, &from, sizeof to);
  return to;
}

}  // namespace rackrail::plan
