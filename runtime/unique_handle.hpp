// One move-only owner for the handles of C libraries. Releasing never blocks and never throws; an
// orderly end is the business of who owns several of them.
#pragma once

#include <utility>

namespace rackrail::runtime {

/// Traits: `Handle` (a pointer type) and `static void release(Handle) noexcept`.
template <typename Traits>
class UniqueHandle {
 public:
  using Handle = typename Traits::Handle;

  UniqueHandle() = default;
  explicit UniqueHandle(Handle handle) noexcept : handle_(handle) {}
  ~UniqueHandle() { reset(); }
  UniqueHandle(const UniqueHandle&) = delete;
  UniqueHandle& operator=(const UniqueHandle&) = delete;
  UniqueHandle(UniqueHandle&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  UniqueHandle& operator=(UniqueHandle&& other) noexcept {
    if (this != &other) {
      reset();
      handle_ = std::exchange(other.handle_, nullptr);
    }
    return *this;
  }

  Handle get() const noexcept { return handle_; }
  explicit operator bool() const noexcept { return handle_ != nullptr; }
  void reset() noexcept {
    if (handle_ != nullptr) {
      Traits::release(std::exchange(handle_, nullptr));
    }
  }

 private:
  Handle handle_ = nullptr;
};

}  // namespace rackrail::runtime
