// A heap whose nodes have four children, smallest entry first. Optionally it tells where each entry
// is, so that an entry can be changed or erased in O(log n).
#pragma once

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
  void clear() { entries_.clear(); }
  /// Many at once, in O(n): append() all of them, then order().
  void append(const Entry& entry) { entries_.push_back(entry); }
  void order() {
    for (std::size_t i = entries_.size(); i-- > 0;) {
      sink(i, entries_[i]);
    }
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
  /// Of the entries from `first` on that have one parent. Which one it is, is as good as random, so
  /// where there are four no branch depends on it.
  std::size_t least_of(std::size_t first) const {
    const auto is_less = [this](std::size_t a, std::size_t b) {
      return static_cast<std::size_t>(entries_[a] < entries_[b]);
    };
    if (first + kChildren <= entries_.size()) {
      const std::size_t left = first + is_less(first + 1, first);
      const std::size_t right = first + 2 + is_less(first + 3, first + 2);
      return left + (right - left) * is_less(right, left);
    }
    std::size_t least = first;
    for (std::size_t child = first + 1; child < entries_.size(); ++child) {
      least = entries_[child] < entries_[least] ? child : least;
    }
    return least;
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
      const std::size_t least = least_of(first);
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
