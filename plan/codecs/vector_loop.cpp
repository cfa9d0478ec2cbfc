#include "plan/codecs/vector_loop.hpp"

#include <bit>
#include <vector>

#if defined(RACKRAIL_X86_LOOPS)
#include <cpuid.h>
#endif

static_assert(std::endian::native == std::endian::little, "encoded forms are little-endian");

namespace rackrail::plan {
namespace {

#if defined(RACKRAIL_X86_LOOPS)
bool has_f16c() {
  unsigned eax = 0;
  unsigned ebx = 0;
  unsigned ecx = 0;
  unsigned edx = 0;
  return __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0;
}
#endif

std::vector<InstructionSet> find_instruction_sets() {
  std::vector<InstructionSet> found{InstructionSet::kPortable};
#if defined(RACKRAIL_X86_LOOPS)
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx2") && has_f16c()) {
    found.push_back(InstructionSet::kAvx2);
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw")) {
      found.push_back(InstructionSet::kAvx512);
    }
  }
#endif
  return found;
}

}  // namespace

std::span<const InstructionSet> usable_instruction_sets() {
  static const std::vector<InstructionSet> kFound = find_instruction_sets();
  return kFound;
}

InstructionSet best_instruction_set() { return usable_instruction_sets().back(); }

}  // namespace rackrail::plan
