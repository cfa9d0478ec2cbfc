// Entries that are made one after the other, and mostly dropped in about that order.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

namespace rackrail::sim {

/// Entries keep their number and their place in memory until they are dropped. Memory is that of
/// those that are there, and of a pointer for each one from the oldest that is not kept on.
template <typename Entry>
class Numbered {
 public:
  /// The number that add() gives next.
  std::uint32_t end() const { return begin_ + static_cast<std::uint32_t>(recent_.size()); }
  std::uint32_t add() {
    recent_.push_back(std::make_unique<Entry>());
    return end() - 1;
  }
  Entry& operator[](std::uint32_t number) { return *find(number); }
  const Entry& operator[](std::uint32_t number) const { return *find(number); }

  /// No longer there.
  void drop(std::uint32_t number) {
    recent_[number - begin_].reset();
    forget_front();
  }
  /// It is put aside, to stay though younger ones are dropped.
  void keep(std::uint32_t number) {
    kept_.emplace(number, std::move(recent_[number - begin_]));
    forget_front();
  }
  /// Numbers of all that are there, in order.
  std::vector<std::uint32_t> numbers() const {
    std::vector<std::uint32_t> all;
    for (const auto& [number, entry] : kept_) {
      all.push_back(number);
    }
    for (std::size_t i = 0; i < recent_.size(); ++i) {
      if (recent_[i] != nullptr) {
        all.push_back(begin_ + static_cast<std::uint32_t>(i));
      }
    }
    std::sort(all.begin(), all.end());
    return all;
  }

 private:
  Entry* find(std::uint32_t number) const {
    const std::size_t place = number - begin_;
    return number >= begin_ && recent_[place] != nullptr ? recent_[place].get()
                                                         : kept_.at(number).get();
  }
  // Moves what is left to the front when half of it is gone.
  void forget_front() {
    while (gone_ < recent_.size() && recent_[gone_] == nullptr) {
      ++gone_;
    }
    if (2 * gone_ > recent_.size()) {
      recent_.erase(recent_.begin(), recent_.begin() + static_cast<std::ptrdiff_t>(gone_));
      begin_ += static_cast<std::uint32_t>(gone_);
      gone_ = 0;
    }
  }

  std::vector<std::unique_ptr<Entry>> recent_;
  std::uint32_t begin_ = 0;  ///< number of recent_[0]
  std::size_t gone_ = 0;     ///< at the front of recent_
  std::unordered_map<std::uint32_t, std::unique_ptr<Entry>> kept_;
};

}  // namespace rackrail::sim
