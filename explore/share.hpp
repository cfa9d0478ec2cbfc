// Who does which part of a sweep that several processes run together.
#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <string>

namespace rackrail::explore {

/// One of `count` processes; its cells are those whose number is `rank` modulo `count`.
struct Share {
  std::size_t rank = 0;
  std::size_t count = 1;

  bool has(std::size_t cell) const { return cell % count == rank; }
  /// "results.jsonl" of rank 3 is "results.rank3.jsonl"; of a process alone itself.
  std::filesystem::path own_file(const std::filesystem::path& results) const;
};

/// What the launcher says: OMPI_COMM_WORLD_RANK and _SIZE (Open MPI's mpirun), PMI_RANK and
/// PMI_SIZE (MPICH, Intel MPI), SLURM_PROCID and SLURM_STEP_NUM_TASKS or SLURM_NTASKS (srun); the
/// first pair of which both are set. srun comes last, because what mpirun starts within an
/// allocation may have its variables too; and they count only where SLURM_STEP_ID says that srun
/// started the process, since a batch script has them itself. Alone when there is none. `variable`
/// gives a variable's value or null, as std::getenv does. Throws ConfigError for values that are no
/// rank of so many.
Share share_from_environment(const std::function<const char*(const char*)>& variable);

}  // namespace rackrail::explore
