// Progress of work that is a piece of something larger.
#pragma once

#include <functional>
#include <string>
#include <utility>

namespace rackrail::planner {

/// Called now and then with a share done in 0..1 and what is being done; may be empty.
using Progress = std::function<void(double, const std::string&)>;

/// Of a piece that is the whole's share from `begin` to `end`; empty where `whole` is.
inline Progress part_of(Progress whole, double begin, double end) {
  if (!whole) {
    return {};
  }
  return [whole = std::move(whole), begin, end](double share, const std::string& what) {
    whole(begin + (end - begin) * share, what);
  };
}

}  // namespace rackrail::planner
