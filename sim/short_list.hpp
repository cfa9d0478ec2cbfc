// A list that mostly has one element, which is kept in place.
#pragma once

#include <cstddef>
#include <vector>

namespace rackrail::sim {

/// In the order of insertion places. `T` is a small copyable type.
template <typename T>
class ShortList {
 public:
  std::size_t size() const { return size_; }
  const T& operator[](std::size_t i) const { return i == 0 ? first_ : others_[i - 1]; }
  /// Before what is at `i`, or at the end.
  void insert(std::size_t i, const T& value) {
    if (i > 0) {
      others_.insert(at(i), value);
    } else {
      if (size_ > 0) {
        others_.insert(others_.begin(), first_);
      }
      first_ = value;
    }
    ++size_;
  }
  void erase(std::size_t i) {
    if (i > 0) {
      others_.erase(at(i));
    } else if (size_ > 1) {
      first_ = others_.front();
      others_.erase(others_.begin());
    }
    --size_;
  }

 private:
  typename std::vector<T>::iterator at(std::size_t i) {
    return others_.begin() + static_cast<std::ptrdiff_t>(i - 1);
  }

  T first_{};
  std::size_t size_ = 0;
  std::vector<T> others_;
};

}  // namespace rackrail::sim
