#pragma once

// Where a test finds what it reads, and where it may write.

#include <filesystem>

namespace rackrail::test {

/// The root of the source tree: "configs/", "tests/golden/data/" and so on are below it.
std::filesystem::path source_dir();

/// The rackrail command of this build. Throws std::runtime_error when the test was not started by
/// ctest or scripts/run-tests, which say where it is, and RACKRAIL_COMMAND is not set either.
std::filesystem::path command_path();

/// A new, empty directory, removed with its contents when the owner is destroyed.
class TemporaryDirectory {
 public:
  TemporaryDirectory();
  ~TemporaryDirectory();
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
  TemporaryDirectory(TemporaryDirectory&&) = delete;
  TemporaryDirectory& operator=(TemporaryDirectory&&) = delete;

  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace rackrail::test
