// Problems that a check found: the first ones in words, the rest as a number.
#pragma once

#include <fmt/format.h>

#include <string>
#include <utility>
#include <vector>

namespace rackrail::plan {

class ProblemList {
 public:
  static constexpr std::size_t kMostInWords = 16;

  /// `text` is a function that makes the words; it is not called once they are not wanted.
  template <typename Text>
  void add(Text text) {
    if (problems_.size() < kMostInWords) {
      problems_.push_back(prefix_ + text());
    } else {
      ++more_;
    }
  }
  /// Begins every further problem ("schedule 'ring': ").
  void set_prefix(std::string prefix) { prefix_ = std::move(prefix); }

  /// All in words, with a last line for those that are only counted.
  std::vector<std::string> take() {
    if (more_ > 0) {
      problems_.push_back(fmt::format("and {} more", more_));
    }
    return std::move(problems_);
  }

 private:
  std::vector<std::string> problems_;
  std::string prefix_;
  std::size_t more_ = 0;
};

}  // namespace rackrail::plan
