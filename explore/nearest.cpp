#include "explore/nearest.hpp"

#include <algorithm>
#include <numeric>
#include <tuple>

namespace rackrail::explore {

std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i + 1;
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, row[j] + 1, row[j + 1] + 1});
    }
  }
  return row.back();
}

std::vector<std::string> nearest(std::string_view wanted, std::span<const std::string> known,
                                 std::size_t most) {
  std::vector<std::tuple<bool, std::size_t, std::size_t>> order;
  order.reserve(known.size());
  for (std::size_t i = 0; i < known.size(); ++i) {
    const bool is_apart = known[i].find(wanted) == std::string::npos;
    order.emplace_back(is_apart, edit_distance(wanted, known[i]), i);
  }
  std::sort(order.begin(), order.end());
  order.resize(std::min(most, order.size()));
  std::vector<std::string> names;
  for (const auto& [is_apart, distance, i] : order) {
    names.push_back(known[i]);
  }
  return names;
}

}  // namespace rackrail::explore
