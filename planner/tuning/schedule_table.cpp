#include "planner/tuning/schedule_table.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <optional>
#include <utility>

#include "base/error.hpp"
#include "base/parse_units.hpp"
#include "base/text.hpp"
#include "base/work.hpp"
#include "planner/algorithms/schedule_family.hpp"
#include "planner/groups/many_ranks.hpp"
#include "planner/request/interruptible.hpp"
#include "planner/request/options.hpp"
#include "planner/tuning/bound.hpp"
#include "planner/tuning/candidates.hpp"
#include "planner/tuning/collective_forms.hpp"
#include "planner/tuning/fastest_collective.hpp"
#include "topology/queries.hpp"

namespace rackrail::planner {

namespace {

constexpr std::int64_t kElementBytes = 4;  // bytes

/// Whether the limit is reached, which must outlive that.
std::function<bool()> until(const QuickLimit& limit) {
  return [&limit] { return limit.is_reached(); };
}

/// A family.
struct Entry {
  FamilyDivisions divisions;
  std::map<std::int64_t, TableTime> simulated{};  ///< by elements
  Duration of_smaller{};  ///< of the largest size that was simulated with all divisions
};

class TableMaker {
 public:
  TableMaker(const topology::Topology& topology, plan::CostModel& cost_model,
             const ScheduleTableOptions& options)
      : topology_(topology),
        router_(make_router(topology)),
        cost_model_(cost_model),
        is_coarse_(options.is_coarse),
        codec_(options.codec),
        is_quick_(options.effort == SearchEffort::kQuick && !options.simulate_all) {
    if (is_quick_) {
      rate_ = network_bound(topology).algbw;
    }
  }

  void add_families(const ScheduleTableOptions& options, ScheduleTable& table);
  /// None where `stop` came first.
  /// `share`: of the work of a quick search.
  std::optional<TableRow> row(std::int64_t elements, bool simulate_all, double share,
                              const std::function<bool()>& stop);
  void add_crossovers(ScheduleTable& table);
  /// Of the work of a quick search.
  QuickLimit limit_of(double share) const {
    return QuickLimit(topology_.rank_count(), share * (is_coarse_ ? WorkShare::kTableOfPlan : 1));
  }

 private:
  /// Once the limit is reached, the best so far; null where there is none, unless one is needed.
  const TableTime* simulate(Entry& entry, std::int64_t elements, const QuickLimit* limit = nullptr,
                            bool is_needed = true);
  /// What is simulated whatever it takes becomes what is simulated soonest.
  void needed_first(std::vector<std::size_t>& order) const;
  const topology::Topology& topology_;
  topology::Router router_;
  plan::CostModel& cost_model_;
  bool is_coarse_;
  plan::Codec codec_;
  bool is_quick_;
  Bandwidth rate_;  ///< of the network's bound, of a quick table
  std::vector<Entry> entries_;
};

void TableMaker::add_families(const ScheduleTableOptions& options, ScheduleTable& table) {
  const TierCodecs codecs{options.codec, options.codec};
  FormOptions forms;
  SliceSearch slices;
  if (is_coarse_) {
    forms.most_transfers = kMostTransfersOfBucket;
    slices.most_messages = kMostTransfersOfBucket;
  }
  const QuickLimit limit = limit_of(WorkShare::kTableForms);
  for (const auto& family : schedule_families()) {
    if (auto refusal = graph_refusal(*family, topology_, codecs)) {
      table.refusals.push_back({std::string(family->name()), std::move(*refusal)});
      continue;
    }
    if (options.progress) {
      options.progress(0, fmt::format("schedule {}", family->name()));
    }
    const bool may_stop = is_quick_ && !entries_.empty();
    try {
      const StoppableWork stoppable(may_stop ? until(limit) : std::function<bool()>());
      entries_.push_back(
          {.divisions = FamilyDivisions(collective_forms(*family, plan::Collective::kAllReduce,
                                                         topology_, router_, codecs, forms),
                                        cost_model_, slices)});
    } catch (const WorkStopped&) {
      table.refusals.push_back(
          {std::string(family->name()),
           "it takes longer to make than a quick search has: --search thorough"});
      continue;
    }
    table.families.emplace_back(family->name());
  }
}

const TableTime* TableMaker::simulate(Entry& entry, std::int64_t elements, const QuickLimit* limit,
                                      bool is_needed) {
  const auto known = entry.simulated.find(elements);
  if (known != entry.simulated.end()) {
    return &known->second;
  }
  const auto stop = [&] {
    return limit != nullptr && (!is_needed || entry.divisions.found()) && limit->is_reached();
  };
  const Interruptible interruptible(cost_model_, stop);
  const StoppableWork stoppable(stop);
  const std::optional<DividedCollective> best = entry.divisions.fastest(elements);
  if (!best) {
    return nullptr;
  }
  const bool is_cut = entry.divisions.was_cut();
  if (!is_cut) {
    entry.of_smaller = best->time;
  }
  return &entry.simulated
              .emplace(elements,
                       TableTime{best->time, true, best->slice_elements, best->form, is_cut})
              .first->second;
}

void TableMaker::needed_first(std::vector<std::size_t>& order) const {
  const auto first = std::ranges::min_element(order, {}, [&](std::size_t i) {
    return entries_[i].divisions.forms().front().shape().transfers;
  });
  std::rotate(order.begin(), first, std::next(first));
}

std::optional<TableRow> TableMaker::row(std::int64_t elements, bool simulate_all, double share,
                                        const std::function<bool()>& stop) {
  TableRow row;
  QuickLimit limit = limit_of(share);
  row.bytes = Bytes(elements * kElementBytes);
  std::vector<std::size_t> order(entries_.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  for (const Entry& entry : entries_) {
    Duration least = entry.divisions.at_least(elements);
    least = std::max(least, scaled(entry.of_smaller, 0.5));  // sizes ascend
    row.times.push_back({least});
  }
  // With very many ranks, of those that may be equally good what is simulated soonest.
  const double worthwhile = topology_.rank_count() >= kVeryManyRanks ? kNearEnough : 0;
  const auto place = [&](std::size_t i) {
    const std::int64_t least = row.times[i].time.picoseconds();
    return worthwhile > 0
               ? std::pair(std::llround(std::log(static_cast<double>(least + 1)) / kSameTime),
                           entries_[i].divisions.forms().front().shape().transfers)
               : std::pair<long long, std::int64_t>(least, 0);
  };
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return place(a) < place(b); });
  if (is_quick_ && rate_ > Bandwidth(0)) {
    const Duration burst = topology::longest_burst_time(topology_);
    limit.set_bound(plan::encoded_size(codec_, elements) / rate_ - burst);
  }
  if (is_quick_ && topology_.rank_count() >= kVeryManyRanks) {
    needed_first(order);
  }
  std::optional<std::size_t> best;
  for (const std::size_t i : order) {
    if (stop && stop()) {
      return std::nullopt;
    }
    if (is_quick_ && best && limit.is_reached()) {
      break;
    }
    if (simulate_all || !best.has_value() ||
        row.times[i].time <= scaled(row.times[*best].time, 1 - worthwhile)) {
      const TableTime* time = simulate(entries_[i], elements, is_quick_ ? &limit : nullptr, !best);
      if (time == nullptr) {
        break;
      }
      row.times[i] = *time;
      limit.found(row.times[i].time);
      if (!best.has_value() ||
          std::pair(row.times[i].time, i) < std::pair(row.times[*best].time, *best)) {
        best = i;
      }
    }
  }
  row.best = best.value();
  row.mechanism =
      entries_[row.best].divisions.forms()[row.times[row.best].form].graph().mechanism();
  return row;
}

void TableMaker::add_crossovers(ScheduleTable& table) {
  const QuickLimit limit = limit_of(WorkShare::kTableCrossovers);
  for (std::size_t i = 1; i < table.rows.size(); ++i) {
    const std::size_t from = table.rows[i - 1].best;
    const std::size_t to = table.rows[i].best;
    if (from == to) {
      continue;
    }
    // In the order of sizes: at `low` the former is at least as fast, at `high` the latter.
    std::int64_t low = table.rows[i - 1].bytes.count() / kElementBytes;
    std::int64_t high = table.rows[i].bytes.count() / kElementBytes;
    const double accuracy = is_coarse_ ? 2 : 1.03;
    while (high - low > 1 && static_cast<double>(high) > accuracy * static_cast<double>(low) &&
           !(is_quick_ && limit.is_reached())) {
      // Coarsely, by factors: sizes lie far apart.
      const std::int64_t middle =
          is_coarse_ ? std::llround(std::sqrt(static_cast<double>(low) * static_cast<double>(high)))
                     : low + (high - low) / 2;
      const bool is_over =
          simulate(entries_[to], middle)->time < simulate(entries_[from], middle)->time;
      (is_over ? high : low) = middle;
    }
    table.crossovers.push_back({Bytes(high * kElementBytes), from, to});
  }
}

std::vector<std::int64_t> element_counts(const topology::Topology& topology,
                                         const ScheduleTableOptions& options) {
  if (options.smallest < Bytes(1) || options.largest < options.smallest) {
    throw ConfigError(ErrorContext{
        "<command line>", "sizes",
        fmt::format("{} to {}", to_string(options.smallest), to_string(options.largest)),
        "a smallest size of at least one byte, and a largest that is no smaller"});
  }
  const std::int64_t usual = topology.rank_count() >= kVeryManyRanks ? 4 : 2;
  const std::int64_t factor = options.is_coarse ? 16 : usual;
  const std::int64_t largest = options.largest.count() / kElementBytes;
  std::vector<std::int64_t> counts;
  for (std::int64_t n = (options.smallest.count() + kElementBytes - 1) / kElementBytes;
       n <= largest; n *= factor) {
    counts.push_back(n);
  }
  if (counts.empty() || (counts.back() < largest && factor > 2)) {
    counts.push_back(std::max<std::int64_t>(1, largest));
  }
  return counts;
}

}  // namespace

const std::string& ScheduleTable::best_for(Bytes bytes) const {
  std::size_t best = rows.front().best;
  for (const Crossover& crossover : crossovers) {
    if (crossover.bytes <= bytes) {
      best = crossover.to;
    }
  }
  return families[best];
}

std::vector<plan::ScheduleRange> ScheduleTable::ranges() const {
  std::vector<plan::ScheduleRange> ranges = {{rows.front().bytes, families[rows.front().best]}};
  for (const Crossover& crossover : crossovers) {
    ranges.push_back({crossover.bytes, families[crossover.to]});
  }
  return ranges;
}

ScheduleTable make_schedule_table(const topology::Topology& topology, plan::CostModel& cost_model,
                                  const ScheduleTableOptions& options) {
  const std::size_t ranks = topology.rank_count();
  if (ranks < 2 || ranks > kMostTableRanks) {
    throw ConfigError(ErrorContext{"", fmt::format("cluster '{}'", topology.name()),
                                   counted(static_cast<std::int64_t>(ranks), "rank"),
                                   fmt::format("2 to {} ranks for a table", kMostTableRanks)});
  }
  topology.require_connected();
  const std::vector<std::int64_t> counts = element_counts(topology, options);
  ScheduleTable table;
  TableMaker maker(topology, cost_model, options);
  maker.add_families(options, table);
  if (table.families.empty()) {
    std::vector<std::string> reasons;
    for (const ScheduleTable::Refusal& refusal : table.refusals) {
      reasons.push_back(fmt::format("{} ({})", refusal.family, refusal.reason));
    }
    throw ConfigError(
        ErrorContext{"<command line>", "codec",
                     fmt::format("no schedule that can be used: {}", fmt::join(reasons, "; ")),
                     "a codec that leaves at least one"});
  }
  const QuickLimit of_rows = maker.limit_of(WorkShare::kTableRows);
  const auto work_of_rows = static_cast<double>(of_rows.left());
  for (const std::int64_t elements : counts) {
    if (options.progress) {
      options.progress(static_cast<double>(table.rows.size()) / static_cast<double>(counts.size()),
                       to_string(Bytes(elements * kElementBytes)));
    }
    // Some rows take little: what they leave is for the others.
    constexpr std::size_t kAtOnce = 4;
    const std::size_t rows_left = std::min(counts.size() - table.rows.size(), kAtOnce);
    const double left = std::max(0.0, static_cast<double>(of_rows.left()) / work_of_rows);
    std::optional<TableRow> row =
        maker.row(elements, options.simulate_all,
                  WorkShare::kTableRows * left / static_cast<double>(rows_left), options.stop);
    if (!row.has_value()) {
      table.was_stopped = true;
      return table;
    }
    table.rows.push_back(*std::move(row));
  }
  if (options.progress) {
    options.progress(1, "crossovers");
  }
  maker.add_crossovers(table);
  return table;
}

}  // namespace rackrail::planner
