#include "runtime/coordinator/local_socket.hpp"

#include <sys/stat.h>
#include <unistd.h>

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

std::string grpc_address(const HostPort& address) {
  return is_local_meeting(address) ? std::string(kScheme) + local_socket(address).string()
                                   : to_string(address);
}

}  // namespace rackrail::runtime
