#include "runtime/emulate/namespaces.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include "base/error.hpp"
#include "runtime/emulate/leftovers.hpp"

namespace rackrail::runtime::emulate {
namespace {

std::string reason() { return std::strerror(errno); }

/// The calling thread's. Throws RuntimeFailure.
int open_own() {
  const int own = open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC);
  if (own < 0) {
    throw RuntimeFailure("the own network namespace cannot be opened: " + reason());
  }
  return own;
}

}  // namespace

std::string namespaces_unavailable() {
  try {
    const NetworkNamespace probe;
    return "";
  } catch (const RuntimeFailure& error) {
    return error.what();
  }
}

NetworkNamespace::NetworkNamespace() {
  const int own = open_own();
  if (unshare(CLONE_NEWNET) != 0) {
    const std::string why = reason();
    close(own);
    throw RuntimeFailure("network namespaces cannot be made here, which needs root: " + why);
  }
  descriptor_ = open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC);
  const std::string why = descriptor_ < 0 ? reason() : "";
  const bool is_back = setns(own, CLONE_NEWNET) == 0;
  close(own);
  if (descriptor_ < 0 || !is_back) {
    throw RuntimeFailure("a new network namespace cannot be opened: " +
                         (why.empty() ? reason() : why));
  }
}

NetworkNamespace::~NetworkNamespace() {
  if (descriptor_ >= 0) {
    close(descriptor_);
  }
}

NetworkNamespace::NetworkNamespace(NetworkNamespace&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)) {}

NetworkNamespace& NetworkNamespace::operator=(NetworkNamespace&& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  return *this;
}

std::string NetworkNamespace::path() const {
  return fmt::format("/proc/{}/fd/{}", getpid(), descriptor_);
}

InNamespace::InNamespace(const NetworkNamespace& network) : own_(open_own()) {
  if (setns(network.descriptor(), CLONE_NEWNET) != 0) {
    const std::string why = reason();
    close(own_);
    throw RuntimeFailure("a network namespace cannot be entered: " + why);
  }
}

InNamespace::~InNamespace() {
  // The way back needs nothing that the way in did not have.
  (void)setns(own_, CLONE_NEWNET);
  close(own_);
}

NamespaceName::NamespaceName(const NetworkNamespace& network, const std::string& name)
    : path_((std::filesystem::path(kNamesFolder) / name).string()) {
  std::error_code ignored;
  std::filesystem::create_directories(kNamesFolder, ignored);
  unlink(path_.c_str());
  if (symlink(network.path().c_str(), path_.c_str()) != 0) {
    throw RuntimeFailure(path_ + " cannot be made: " + reason());
  }
}

NamespaceName::~NamespaceName() {
  if (!path_.empty()) {
    unlink(path_.c_str());
  }
}

NamespaceName::NamespaceName(NamespaceName&& other) noexcept
    : path_(std::exchange(other.path_, {})) {}

}  // namespace rackrail::runtime::emulate
