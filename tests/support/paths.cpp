#include "tests/support/paths.hpp"

#include <cerrno>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <system_error>

namespace rackrail::test {

namespace fs = std::filesystem;

fs::path source_dir() {
  const char* dir = std::getenv("RACKRAIL_SOURCE_DIR");
  return dir != nullptr ? dir : RACKRAIL_TEST_SOURCE_DIR;
}

fs::path command_path() {
  const char* command = std::getenv("RACKRAIL_COMMAND");
  if (command == nullptr) {
    throw std::runtime_error("RACKRAIL_COMMAND is not set; run this test with ctest");
  }
  return command;
}

TemporaryDirectory::TemporaryDirectory() {
  std::string pattern = (fs::temp_directory_path() / "rackrail-test-XXXXXX").string();
  if (::mkdtemp(pattern.data()) == nullptr) {
    throw std::system_error(errno, std::generic_category(), pattern);
  }
  path_ = pattern;
}

TemporaryDirectory::~TemporaryDirectory() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

}  // namespace rackrail::test
