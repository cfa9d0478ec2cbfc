// Network namespaces that cannot be left behind.
//
// A namespace here has no mount: only open descriptors and processes keep it alive, so the kernel
// removes it, with all interfaces in it, as soon as the last of them is gone, however that
// happened. A name in /run/netns, so that `ip netns exec` finds it, is a symbolic link to the
// owner's descriptor (/proc/<pid>/fd/<n>), which leads nowhere once the owner is gone.
#pragma once

#include <string>

namespace rackrail::runtime::emulate {

/// Why this process cannot make network namespaces; empty where it can. Tries it.
std::string namespaces_unavailable();

/// Owner of one descriptor.
class NetworkNamespace {
 public:
  /// A new one, with nothing in it but a loopback interface that is down. Throws RuntimeFailure.
  NetworkNamespace();
  ~NetworkNamespace();
  NetworkNamespace(NetworkNamespace&& other) noexcept;
  NetworkNamespace& operator=(NetworkNamespace&& other) noexcept;
  NetworkNamespace(const NetworkNamespace&) = delete;
  NetworkNamespace& operator=(const NetworkNamespace&) = delete;

  int descriptor() const { return descriptor_; }
  /// "/proc/<pid>/fd/<n>": for iproute2, which takes a path for a namespace.
  std::string path() const;

 private:
  int descriptor_ = -1;
};

/// While it lives, the sockets and children that this thread makes are in the namespace.
class InNamespace {
 public:
  /// Throws RuntimeFailure.
  explicit InNamespace(const NetworkNamespace& network);
  ~InNamespace();
  InNamespace(const InNamespace&) = delete;
  InNamespace& operator=(const InNamespace&) = delete;

 private:
  int own_ = -1;
};

/// An entry of /run/netns, which goes with its owner.
class NamespaceName {
 public:
  /// Replaces one of the same name. Throws RuntimeFailure.
  NamespaceName(const NetworkNamespace& network, const std::string& name);
  ~NamespaceName();
  NamespaceName(NamespaceName&& other) noexcept;
  NamespaceName& operator=(NamespaceName&&) = delete;
  NamespaceName(const NamespaceName&) = delete;
  NamespaceName& operator=(const NamespaceName&) = delete;

 private:
  std::string path_;
};

}  // namespace rackrail::runtime::emulate
