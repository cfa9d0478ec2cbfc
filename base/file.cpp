#include "base/file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <fstream>
#include <random>
#include <system_error>
#include <utility>

#include "base/error.hpp"
#include "base/parse_units.hpp"

namespace rackrail {

namespace {

constexpr const char* kWritablePlace = "a place that can be written";

[[noreturn]] void fail(const std::filesystem::path& path, const char* expected, int error) {
  throw ConfigError(ErrorContext{path.string(), "", std::strerror(error), expected});
}

/// Where a stream is asked for, not a file: a device, a pipe, or what /dev/stdout is here.
bool is_stream(const std::filesystem::path& path) {
  std::error_code status;
  const auto kind = std::filesystem::status(path, status).type();
  if (kind == std::filesystem::file_type::character || kind == std::filesystem::file_type::fifo) {
    return true;
  }
  const std::string name = std::filesystem::absolute(path, status).lexically_normal().string();
  return name.starts_with("/dev/std") || name.starts_with("/dev/fd/");
}

/// Returns 0, or what errno said.
int write_all(int descriptor, std::string_view content) {
  while (!content.empty()) {
    const ssize_t written = ::write(descriptor, content.data(), content.size());
    if (written < 0 && errno == EINTR) {
      continue;
    }
    if (written < 0) {
      return errno;
    }
    content.remove_prefix(static_cast<std::size_t>(written));
  }
  return 0;
}

/// While it lives, Ctrl-C waits in this thread, so that one without others leaves no temporary
/// file.
class InterruptsWait {
 public:
  InterruptsWait() {
    sigset_t interrupt;
    sigemptyset(&interrupt);
    sigaddset(&interrupt, SIGINT);
    pthread_sigmask(SIG_BLOCK, &interrupt, &before_);
  }
  ~InterruptsWait() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  InterruptsWait(const InterruptsWait&) = delete;
  InterruptsWait& operator=(const InterruptsWait&) = delete;

 private:
  sigset_t before_{};
};

}  // namespace

void require_private_file(const std::filesystem::path& path, const std::string& what) {
  struct stat found {};
  if (stat(path.c_str(), &found) != 0) {
    fail(path, "a readable file", errno);
  }
  if ((found.st_uid != geteuid() && found.st_uid != 0) ||
      (found.st_mode & (S_IRWXG | S_IRWXO)) != 0) {
    throw ConfigError(ErrorContext{path.string(), "", what + " that others may read or write",
                                   "one that its owner alone may read (mode 600)"});
  }
}

std::string read_file(const std::filesystem::path& path, Bytes most) {
  std::error_code status;
  if (std::filesystem::is_directory(path, status)) {
    throw ConfigError(ErrorContext{path.string(), "", "a folder", "a file"});
  }
  std::ifstream in(path, std::ios::binary);
  if (!in) {
    fail(path, "a readable file", errno);
  }
  const auto too_long = [&] {
    return ConfigError(
        ErrorContext{path.string(), "", "more than " + to_string(most), "a smaller file"});
  };
  // Said before it is read, where that is known; of a device or a pipe it is not.
  const std::uintmax_t size = std::filesystem::file_size(path, status);
  const auto limit = static_cast<std::size_t>(most.count());
  if (!status && size > limit) {
    throw too_long();
  }
  std::string content;
  content.reserve(status ? 0 : static_cast<std::size_t>(size));
  std::array<char, std::size_t{1} << 16U> piece{};
  do {
    in.read(piece.data(), piece.size());
    content.append(piece.data(), static_cast<std::size_t>(in.gcount()));
    if (content.size() > limit) {
      throw too_long();
    }
  } while (in);
  if (in.bad()) {
    fail(path, "a readable file", errno);
  }
  return content;
}

StagedFile::StagedFile(const std::filesystem::path& name, std::string_view content) {
  std::error_code status;
  // A link stays, and what it points to is replaced.
  const bool is_link = std::filesystem::is_symlink(name, status);
  path_ =
      is_link && std::filesystem::exists(name, status) ? std::filesystem::canonical(name) : name;
  if (path_.has_parent_path()) {
    std::filesystem::create_directories(path_.parent_path(), status);
    if (status) {
      throw ConfigError(
          ErrorContext{path_.parent_path().string(), "", status.message(), kWritablePlace});
    }
  }
  // A name of its own: on storage that hosts share, others may have this process id, too.
  std::random_device random;
  int descriptor = -1;
  do {
    temporary_ = fmt::format("{}.{:08x}.tmp", path_.string(), random());
    descriptor = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  } while (descriptor < 0 && errno == EEXIST);
  if (descriptor < 0) {
    fail(path_, kWritablePlace, errno);
  }
  const auto abandon = [&](int error) {
    ::close(descriptor);
    ::unlink(temporary_.c_str());
    fail(path_, kWritablePlace, error);
  };
  if (const int error = write_all(descriptor, content); error != 0) {
    abandon(error);
  }
  if (::fsync(descriptor) != 0) {
    abandon(errno);
  }
  ::close(descriptor);
}

StagedFile::StagedFile(StagedFile&& other) noexcept
    : path_(std::move(other.path_)), temporary_(std::exchange(other.temporary_, {})) {}

StagedFile::~StagedFile() {
  if (!temporary_.empty()) {
    ::unlink(temporary_.c_str());
  }
}

void StagedFile::publish() {
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) {
    fail(path_, kWritablePlace, errno);
  }
  temporary_.clear();
}

void write_file_atomically(const std::filesystem::path& name, std::string_view content) {
  if (!is_stream(name)) {
    const InterruptsWait wait;
    StagedFile(name, content).publish();
    return;
  }
  const int descriptor = ::open(name.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC);
  const int error = descriptor < 0 ? errno : write_all(descriptor, content);
  if (descriptor >= 0) {
    ::close(descriptor);
  }
  if (error != 0) {
    fail(name, kWritablePlace, error);
  }
}

}  // namespace rackrail
