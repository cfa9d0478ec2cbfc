// Elements 0 … n−1 in sets that are joined, never parted (union–find; Tarjan, "Efficiency of a Good
// But Not Linear Set Union Algorithm", 1975). Paths are halved as they are walked; nearly linear in
// practice.
#pragma once

#include <cstddef>
#include <cstdint>
#include <numeric>
#include <unordered_map>
#include <vector>

namespace rackrail {

class DisjointSets {
 public:
  /// Each element in a set of its own.
  explicit DisjointSets(std::size_t count) : parent_(count) {
    std::iota(parent_.begin(), parent_.end(), std::uint32_t{0});
  }

  /// One element of the set of `i`, the same for all of them until it is joined with another.
  std::uint32_t find(std::uint32_t i) {
    while (parent_[i] != i) {
      parent_[i] = parent_[parent_[i]];
      i = parent_[i];
    }
    return i;
  }

  void join(std::uint32_t a, std::uint32_t b) { parent_[find(a)] = find(b); }

  /// By element the number of its set, from 0 on in the order of their first elements.
  std::vector<std::uint32_t> numbers() {
    std::unordered_map<std::uint32_t, std::uint32_t> number_of;
    std::vector<std::uint32_t> numbers;
    numbers.reserve(parent_.size());
    for (std::uint32_t i = 0; i < parent_.size(); ++i) {
      const auto next = static_cast<std::uint32_t>(number_of.size());
      numbers.push_back(number_of.emplace(find(i), next).first->second);
    }
    return numbers;
  }

 private:
  std::vector<std::uint32_t> parent_;
};

}  // namespace rackrail
