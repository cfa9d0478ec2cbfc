#pragma once

// Running code with each of the instruction sets that vectorised loops are compiled for.

#include <hwy/targets.h>

#include <cstdint>
#include <string>
#include <vector>

namespace rackrail::test {

/// Those that this machine has, as Highway numbers them; the last is what every processor has.
inline std::vector<std::int64_t> instruction_sets() { return hwy::SupportedAndGeneratedTargets(); }

inline std::string instruction_set_name(std::int64_t set) { return hwy::TargetName(set); }

/// While this lives, loops that are chosen at run time are those of one instruction set.
class UseInstructionSet {
 public:
  explicit UseInstructionSet(std::int64_t set) { choose(set); }
  ~UseInstructionSet() { choose(kBest); }
  UseInstructionSet(const UseInstructionSet&) = delete;
  UseInstructionSet& operator=(const UseInstructionSet&) = delete;

 private:
  static constexpr std::int64_t kBest = 0;
  static void choose(std::int64_t set) {
    hwy::SetSupportedTargetsForTest(set);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  }
};

}  // namespace rackrail::test
