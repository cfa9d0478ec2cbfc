#include "runtime/coordinator/local_socket.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "base/digest.hpp"
#include "base/error.hpp"

namespace rackrail::runtime {
namespace {

constexpr std::string_view kScheme = "unix:";

/// A folder, no link to one, that its owner alone can enter, and he is this user.
bool is_own_folder(const std::filesystem::path& path) {
  struct stat found {};
  return lstat(path.c_str(), &found) == 0 && S_ISDIR(found.st_mode) && found.st_uid == geteuid() &&
         (found.st_mode & (S_IRWXG | S_IRWXO)) == 0;
}

// Not in /run/user, which is there from a login to a logout only.
std::filesystem::path own_folder() {
  const std::filesystem::path folder = "/tmp/rackrail-" + std::to_string(geteuid());
  mkdir(folder.c_str(), S_IRWXU);  // or it is there already
  if (!is_own_folder(folder)) {
    throw ConfigError(
        ErrorContext{.file = folder.string(),
                     .where = "",
                     .found = "what this user alone does not own and enter",
                     .expected = "a folder of mode 700, in which the processes of a job meet; or "
                                 "RACKRAIL_COORDINATOR=host:port and a token"});
  }
  return folder;
}

}  // namespace

HostPort local_meeting(std::string_view name) {
  constexpr std::size_t kDigits = 16;
  return {std::string(kScheme) + sha256_hex(name).substr(0, kDigits), 0};
}

bool is_local_meeting(const HostPort& address) { return address.host.starts_with(kScheme); }

std::filesystem::path local_socket(const HostPort& meeting) {
  return own_folder() / ("rackrail-" + meeting.host.substr(kScheme.size()) + ".socket");
}

MeetingClaim::MeetingClaim(const HostPort& meeting)
    : lock_(std::filesystem::path(local_socket(meeting)).replace_extension(".lock")) {
  while (true) {
    descriptor_ = open(lock_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, S_IRUSR | S_IWUSR);
    // Of this process alone: those that it forks, such as loaders of data, may outlive it.
    struct flock all {};
    all.l_type = F_WRLCK;
    all.l_whence = SEEK_SET;
    if (descriptor_ < 0 || fcntl(descriptor_, F_SETLK, &all) != 0) {
      const int reason = errno;
      close(descriptor_);
      throw RuntimeFailure(reason == EAGAIN || reason == EACCES
                               ? "another job of this name runs on this host: it holds " +
                                     lock_.string()
                               : lock_.string() + ": " + std::generic_category().message(reason));
    }
    // Who let it go in between has taken the file away, too.
    struct stat held {};
    struct stat there {};
    if (fstat(descriptor_, &held) == 0 && lstat(lock_.c_str(), &there) == 0 &&
        held.st_ino == there.st_ino) {
      return;
    }
    close(descriptor_);
  }
}

MeetingClaim::~MeetingClaim() {
  unlink(lock_.c_str());
  close(descriptor_);
}

std::string grpc_address(const HostPort& address) {
  return is_local_meeting(address) ? std::string(kScheme) + local_socket(address).string()
                                   : to_string(address);
}

}  // namespace rackrail::runtime
