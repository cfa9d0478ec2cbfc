// A queue in one block of memory that grows by doubling. In contrast to std::deque it costs nothing
// while it is empty, and a short one stays in the same cache lines.
#pragma once

#include <cstddef>
#include <vector>

namespace rackrail::sim {

template <typename T>
class RingBuffer {
 public:
  bool empty() const { return size_ == 0; }
  std::size_t size() const { return size_; }
  const T& front() const { return slots_[first_]; }
  /// A new last element to be written to in place; it holds what the slot held before.
  T& push_back() {
    if (size_ == slots_.size()) {
      grow();
    }
    return slots_[(first_ + size_++) & (slots_.size() - 1)];
  }
  void pop_front() {
    first_ = (first_ + 1) & (slots_.size() - 1);
    --size_;
  }

 private:
  static constexpr std::size_t kFirstSlots = 4;  // a power of two, as all sizes are

  void grow() {
    std::vector<T> wider(slots_.empty() ? kFirstSlots : 2 * slots_.size());
    for (std::size_t i = 0; i < size_; ++i) {
      wider[i] = slots_[(first_ + i) & (slots_.size() - 1)];
    }
    slots_ = std::move(wider);
    first_ = 0;
  }

  std::vector<T> slots_;
  std::size_t first_ = 0;
  std::size_t size_ = 0;
};

}  // namespace rackrail::sim
