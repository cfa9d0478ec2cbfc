#include "explore/share.hpp"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <string_view>
#include <utility>

#include "base/error.hpp"

namespace rackrail::explore {
namespace {

constexpr std::size_t kMostProcesses = 1'000'000;

std::size_t read(const char* name, std::string_view text, std::size_t least, std::size_t most) {
  std::size_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || value < least || value > most) {
    throw ConfigError(ErrorContext{"<environment>", name, fmt::format("'{}'", text),
                                   fmt::format("a whole number from {} to {}", least, most)});
  }
  return value;
}

}  // namespace

std::filesystem::path Share::own_file(const std::filesystem::path& results) const {
  if (count == 1) {
    return results;
  }
  return results.parent_path() /
         fmt::format("{}.rank{}{}", results.stem().string(), rank, results.extension().string());
}

Share share_from_environment(const std::function<const char*(const char*)>& variable) {
  constexpr std::array<std::pair<const char*, const char*>, 4> kLaunchers{
      {{"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
       {"PMI_RANK", "PMI_SIZE"},
       {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS"},
       {"SLURM_PROCID", "SLURM_NTASKS"}}};
  const char* step = variable("SLURM_STEP_ID");
  const bool is_in_step = step != nullptr && std::string_view(step) != "batch";
  for (const auto& [rank_name, count_name] : kLaunchers) {
    if (rank_name == std::string_view("SLURM_PROCID") && !is_in_step) {
      continue;
    }
    const char* rank = variable(rank_name);
    const char* count = variable(count_name);
    if (rank != nullptr && count != nullptr) {
      const std::size_t processes = read(count_name, count, 1, kMostProcesses);
      return {read(rank_name, rank, 0, processes - 1), processes};
    }
  }
  return {};
}

}  // namespace rackrail::explore
