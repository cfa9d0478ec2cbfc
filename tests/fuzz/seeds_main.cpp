// The option of all fuzzers that is none of libFuzzer's: --seeds=FOLDER.
#include <filesystem>
#include <fstream>
#include <string_view>

#include "tests/fuzz/fuzz.hpp"

namespace {

void write_seeds(const std::filesystem::path& folder) {
  std::filesystem::create_directories(folder);
  std::size_t number = 0;
  for (const std::string& seed : rackrail::fuzz::seeds()) {
    std::ofstream(folder / ("made-" + std::to_string(number++)), std::ios::binary) << seed;
  }
}

}  // namespace

extern "C" int LLVMFuzzerInitialize(int* count, char*** arguments) {
  constexpr std::string_view kOption = "--seeds=";
  for (int i = 1; i < *count; ++i) {
    const std::string_view argument = (*arguments)[i];
    if (argument.starts_with(kOption)) {
      write_seeds(argument.substr(kOption.size()));
      std::exit(0);
    }
  }
  return 0;
}
