#include "planner/packing/spread.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "topology/flow_network.hpp"

namespace rackrail::planner {

namespace {

constexpr int kRoundsOfSpread = 40;
constexpr double kNegligible = 1e-6;
constexpr double kSettled = 1e-12;

class Table {
 public:
  Table(const std::vector<std::int64_t>& rows, const std::vector<std::int64_t>& columns,
        const std::function<bool(std::size_t, std::size_t)>& is_allowed)
      : rows_(rows), columns_(columns), real_(rows.size() * columns.size()), units_(real_.size()) {
    for (std::size_t r = 0; r < rows.size(); ++r) {
      for (std::size_t c = 0; c < columns.size(); ++c) {
        if (is_allowed(r, c)) {
          real_[at(r, c)] = static_cast<double>(rows[r]) * static_cast<double>(columns[c]);
        }
      }
    }
  }

  /// Rows and columns are scaled in turn until the sums are met: at once where all cells are
  /// allowed.
  void share_in_proportion() {
    const double smaller = std::min(total(rows_), total(columns_));
    double change = 1;
    for (int round = 0; round < kRoundsOfSpread && change > kSettled; ++round) {
      change = scale(
          columns_, smaller / total(columns_),
          [&](std::size_t c, std::size_t r) { return at(r, c); }, rows_.size());
      change = std::max(
          change, scale(
                      rows_, smaller / total(rows_),
                      [&](std::size_t r, std::size_t c) { return at(r, c); }, columns_.size()));
    }
  }

  /// Each cell down, then as many of them up by one as the sums allow.
  void round() {
    is_used_.resize(real_.size());
    std::vector<std::int64_t> column_left = columns_;
    for (std::size_t r = 0; r < rows_.size(); ++r) {
      std::int64_t row_left = rows_[r];
      for (std::size_t c = 0; c < columns_.size(); ++c) {
        const double real = real_[at(r, c)];
        const auto down = static_cast<std::int64_t>(std::floor(real + kNegligible));
        const std::int64_t units = std::min({down, row_left, column_left[c]});
        is_used_[at(r, c)] = real > kNegligible;
        units_[at(r, c)] = units;
        row_left -= units;
        column_left[c] -= units;
      }
    }
    fill([&](std::size_t cell) {
      return is_used_[cell] && real_[cell] - static_cast<double>(units_[cell]) > kNegligible
                 ? std::int64_t{1}
                 : 0;
    });
    const std::int64_t most = std::accumulate(rows_.begin(), rows_.end(), std::int64_t{0});
    fill([&](std::size_t cell) { return is_used_[cell] ? most : 0; });
  }

  std::vector<Share> shares() const {
    std::vector<Share> shares;
    for (std::size_t r = 0; r < rows_.size(); ++r) {
      for (std::size_t c = 0; c < columns_.size(); ++c) {
        if (units_[at(r, c)] > 0) {
          shares.push_back({r, c, units_[at(r, c)]});
        }
      }
    }
    return shares;
  }

 private:
  std::size_t at(std::size_t row, std::size_t column) const {
    return row * columns_.size() + column;
  }

  static double total(const std::vector<std::int64_t>& sums) {
    return static_cast<double>(std::accumulate(sums.begin(), sums.end(), std::int64_t{0}));
  }

  /// The most that a line changed, as a share of it.
  template <typename CellOf>
  double scale(const std::vector<std::int64_t>& sums, double factor, CellOf cell_of,
               std::size_t count) {
    double change = 0;
    for (std::size_t line = 0; line < sums.size(); ++line) {
      double sum = 0;
      for (std::size_t i = 0; i < count; ++i) {
        sum += real_[cell_of(line, i)];
      }
      if (sum > 0) {
        const double ratio = static_cast<double>(sums[line]) * factor / sum;
        for (std::size_t i = 0; i < count; ++i) {
          real_[cell_of(line, i)] *= ratio;
        }
        change = std::max(change, std::abs(ratio - 1));
      }
    }
    return change;
  }

  template <typename Room>
  void fill(Room room_of) {
    const std::size_t rows = rows_.size();
    const std::size_t columns = columns_.size();
    std::vector<std::int64_t> row_left = rows_;
    std::vector<std::int64_t> column_left = columns_;
    for (std::size_t r = 0; r < rows; ++r) {
      for (std::size_t c = 0; c < columns; ++c) {
        row_left[r] -= units_[at(r, c)];
        column_left[c] -= units_[at(r, c)];
      }
    }
    using Flow = topology::UnitFlowNetwork;
    Flow flow(rows + columns + 2);
    const auto source = static_cast<Flow::Vertex>(rows + columns);
    const Flow::Vertex sink = source + 1;
    std::vector<std::pair<std::size_t, Flow::Arc>> cells;
    std::int64_t wanted = 0;
    for (std::size_t r = 0; r < rows; ++r) {
      if (row_left[r] <= 0) {
        continue;
      }
      wanted += row_left[r];
      flow.add_arc(source, static_cast<Flow::Vertex>(r), row_left[r]);
      for (std::size_t i = 1; i <= columns; ++i) {
        const std::size_t c = (r + i) % columns;
        const std::int64_t room = column_left[c] > 0 ? room_of(at(r, c)) : 0;
        if (room > 0) {
          cells.emplace_back(at(r, c), flow.add_arc(static_cast<Flow::Vertex>(r),
                                                    static_cast<Flow::Vertex>(rows + c), room));
        }
      }
    }
    if (cells.empty()) {
      return;
    }
    for (std::size_t c = 0; c < columns; ++c) {
      if (column_left[c] > 0) {
        flow.add_arc(static_cast<Flow::Vertex>(rows + c), sink, column_left[c]);
      }
    }
    flow.reset();
    flow.augment(source, sink, wanted);
    for (const auto& [cell, arc] : cells) {
      units_[cell] += flow.flow(arc);
    }
  }

  const std::vector<std::int64_t>& rows_;
  const std::vector<std::int64_t>& columns_;
  std::vector<double> real_;
  std::vector<std::int64_t> units_;
  std::vector<bool> is_used_;
};

/// Members of each group, ascending.
std::vector<std::vector<std::size_t>> members_of(const std::vector<std::size_t>& group_of) {
  std::vector<std::vector<std::size_t>> members;
  for (std::size_t i = 0; i < group_of.size(); ++i) {
    members.resize(std::max(members.size(), group_of[i] + 1));
    members[group_of[i]].push_back(i);
  }
  return members;
}

std::vector<std::int64_t> sums_of(const std::vector<std::int64_t>& units,
                                  const std::vector<std::vector<std::size_t>>& groups) {
  std::vector<std::int64_t> sums;
  for (const auto& members : groups) {
    sums.push_back(0);
    for (const std::size_t i : members) {
      sums.back() += units[i];
    }
  }
  return sums;
}

std::vector<std::int64_t> at(const std::vector<std::int64_t>& units,
                             const std::vector<std::size_t>& places) {
  std::vector<std::int64_t> some;
  for (const std::size_t i : places) {
    some.push_back(units[i]);
  }
  return some;
}

}  // namespace

std::vector<Share> spread_evenly(const std::vector<std::int64_t>& rows,
                                 const std::vector<std::int64_t>& columns,
                                 const std::function<bool(std::size_t, std::size_t)>& is_allowed) {
  Table table(rows, columns, is_allowed);
  table.share_in_proportion();
  table.round();
  return table.shares();
}

std::vector<Share> spread_by_groups(
    const std::vector<std::int64_t>& rows, const std::vector<std::int64_t>& columns,
    const std::vector<std::size_t>& row_groups, const std::vector<std::size_t>& column_groups,
    const std::function<bool(std::size_t, std::size_t)>& is_allowed) {
  const auto row_members = members_of(row_groups);
  const auto column_members = members_of(column_groups);
  const std::size_t width = column_members.size();
  const auto are_allowed = [&](std::size_t g, std::size_t h) {
    return std::any_of(row_members[g].begin(), row_members[g].end(), [&](std::size_t r) {
      return std::any_of(column_members[h].begin(), column_members[h].end(),
                         [&](std::size_t c) { return is_allowed(r, c); });
    });
  };
  // Between groups; then of each pair of groups, what each row and what each column has of it.
  std::vector<std::int64_t> between(row_members.size() * width);
  for (const Share& share :
       spread_evenly(sums_of(rows, row_members), sums_of(columns, column_members), are_allowed)) {
    between[share.row * width + share.column] = share.units;
  }
  const auto always = [](std::size_t, std::size_t) { return true; };
  std::vector<std::int64_t> of_row(rows.size() * width);
  for (std::size_t g = 0; g < row_members.size(); ++g) {
    const std::vector<std::int64_t> whole(
        between.begin() + static_cast<std::ptrdiff_t>(g * width),
        between.begin() + static_cast<std::ptrdiff_t>((g + 1) * width));
    for (const Share& share : spread_evenly(at(rows, row_members[g]), whole, always)) {
      of_row[row_members[g][share.row] * width + share.column] = share.units;
    }
  }
  std::vector<std::int64_t> of_column(columns.size() * row_members.size());
  for (std::size_t h = 0; h < width; ++h) {
    std::vector<std::int64_t> whole;
    for (std::size_t g = 0; g < row_members.size(); ++g) {
      whole.push_back(between[g * width + h]);
    }
    for (const Share& share : spread_evenly(whole, at(columns, column_members[h]), always)) {
      of_column[column_members[h][share.column] * row_members.size() + share.row] = share.units;
    }
  }
  std::vector<Share> shares;
  for (std::size_t g = 0; g < row_members.size(); ++g) {
    for (std::size_t h = 0; h < width; ++h) {
      if (between[g * width + h] == 0) {
        continue;
      }
      std::vector<std::int64_t> some_rows;
      for (const std::size_t r : row_members[g]) {
        some_rows.push_back(of_row[r * width + h]);
      }
      std::vector<std::int64_t> some_columns;
      for (const std::size_t c : column_members[h]) {
        some_columns.push_back(of_column[c * row_members.size() + g]);
      }
      for (const Share& share :
           spread_evenly(some_rows, some_columns, [&](std::size_t r, std::size_t c) {
             return is_allowed(row_members[g][r], column_members[h][c]);
           })) {
        shares.push_back({row_members[g][share.row], column_members[h][share.column], share.units});
      }
    }
  }
  return shares;
}

}  // namespace rackrail::planner
