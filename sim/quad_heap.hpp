// A heap whose nodes have four children, smallest entry first. Optionally it tells where each entry
// is, so that an entry can be changed or erased in O(log n).
#pragma once

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

namespace rackrail::sim {

/// For heaps of which only the top is ever looked at.
struct ForgetPosition {
  template <typename Entry>
  void operator()(const Entry& /*entry*/, std::size_t /*position*/) const {}
};

/// `Entry` needs operator<. `OnMove(entry, position)` is called whenever an entry comes to a new
/// place.
template <typename Entry, typename OnMove = ForgetPosition>
class QuadHeap {
 public:
  explicit QuadHeap(OnMove on_move = {}) : on_move_(std::move(on_move)) {}

  bool empty() const { return entries_.empty(); }
  const Entry& top() const { return entries_.front(); }
  void push(const Entry& entry) {
    entries_.push_back(entry);
    rise(entries_.size() - 1, entry);
  }
  void pop() { erase(0); }
  void erase(std::size_t position) {
    const Entry last = entries_.back();
    entries_.pop_back();
    if (position < entries_.size()) {
      update(position, last);
    }
  }
  /// Puts another entry in place of the one at `position`.
  void update(std::size_t position, const Entry& entry) {
    if (position > 0 && entry < entries_[parent(position)]) {
      rise(position, entry);
    } else {
      sink(position, entry);
    }
  }

 private:
  static constexpr std::size_t kChildren = 4;
  static std::size_t parent(std::size_t position) { return (position - 1) / kChildren; }
  void put(std::size_t position, const Entry& entry) {
    entries_[position] = entry;
    on_move_(entry, position);
  }
  void rise(std::size_t position, const Entry entry) {
    while (position > 0 && entry < entries_[parent(position)]) {
      put(position, entries_[parent(position)]);
      position = parent(position);
    }
    put(position, entry);
  }
  void sink(std::size_t position, const Entry entry) {
    while (true) {
      const std::size_t first = kChildren * position + 1;
      if (first >= entries_.size()) {
        break;
      }
      const std::size_t end = std::min(first + kChildren, entries_.size());
      std::size_t least = first;
      for (std::size_t child = first + 1; child < end; ++child) {
        if (entries_[child] < entries_[least]) {
          least = child;
        }
      }
      if (!(entries_[least] < entry)) {
        break;
      }
      put(position, entries_[least]);
      position = least;
    }
    put(position, entry);
  }

  std::vector<Entry> entries_;
  OnMove on_move_;
};

}  // namespace rackrail::sim
