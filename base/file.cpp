#include "base/file.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>
#include <system_error>

#include "base/error.hpp"

namespace rackrail {

namespace {

[[noreturn]] void fail(const std::filesystem::path& path, const char* expected, int error) {
  throw ConfigError(ErrorContext{path.string(), "", std::strerror(error), expected});
}

}  // namespace

std::string read_file(const std::filesystem::path& path) {
  std::error_code status;
  if (std::filesystem::is_directory(path, status)) {
    throw ConfigError(ErrorContext{path.string(), "", "a folder", "a file"});
  }
  std::ifstream in(path, std::ios::binary);
  if (!in) {
    fail(path, "a readable file", errno);
  }
  std::ostringstream content;
  content << in.rdbuf();
  if (in.bad()) {
    fail(path, "a readable file", errno);
  }
  return std::move(content).str();
}

void write_file_atomically(const std::filesystem::path& path, std::string_view content) {
  constexpr const char* kExpected = "a place that can be written";
  std::error_code status;
  if (path.has_parent_path()) {
    std::filesystem::create_directories(path.parent_path(), status);
    if (status) {
      throw ConfigError(ErrorContext{path.parent_path().string(), "", status.message(), kExpected});
    }
  }
  const std::string temporary = path.string() + "." + std::to_string(getpid()) + ".tmp";
  const int descriptor = ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (descriptor < 0) {
    fail(path, kExpected, errno);
  }
  const auto abandon = [&](int error) {
    ::close(descriptor);
    ::unlink(temporary.c_str());
    fail(path, kExpected, error);
  };
  while (!content.empty()) {
    const ssize_t written = ::write(descriptor, content.data(), content.size());
    if (written < 0 && errno == EINTR) {
      continue;
    }
    if (written < 0) {
      abandon(errno);
    }
    content.remove_prefix(static_cast<std::size_t>(written));
  }
  if (::fsync(descriptor) != 0) {
    abandon(errno);
  }
  ::close(descriptor);
  if (::rename(temporary.c_str(), path.c_str()) != 0) {
    const int error = errno;
    ::unlink(temporary.c_str());
    fail(path, kExpected, error);
  }
}

}  // namespace rackrail
