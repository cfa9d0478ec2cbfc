// A folder for files that a command hands to the processes that it starts.
#pragma once

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <system_error>

#include "base/error.hpp"

namespace rackrail::cli {

class TemporaryFolder {
 public:
  /// Throws RuntimeFailure where none can be made.
  TemporaryFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "rackrail-XXXXXX").string();
    if (mkdtemp(pattern.data()) == nullptr) {
      throw RuntimeFailure("no folder can be made as " + pattern);
    }
    path_ = pattern;
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  std::string file(const char* name) const { return (path_ / name).string(); }

 private:
  std::filesystem::path path_;
};

}  // namespace rackrail::cli
