#include "planner/tuning/collective_forms.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <functional>
#include <map>
#include <optional>
#include <utility>
#include <vector>

namespace rackrail::planner::collective_forms_test {
namespace {

constexpr std::int64_t kElements = 1 << 28;

/// Two series of forms of ever more transfers, the second from kSecond on.
constexpr std::size_t kSecond = 4;
std::vector<FormShape> two_series() {
  std::vector<FormShape> forms;
  for (int series = 0; series < 2; ++series) {
    for (const std::int64_t transfers : {8, 16, 32, 64}) {
      forms.push_back(
          {.largest_share = 1.0 / static_cast<double>(transfers), .transfers = transfers});
    }
  }
  return forms;
}

/// What is found where a form takes this long in whole transfers and a hundredth more in slices,
/// and how often each form was asked about in whole transfers.
struct Search {
  DividedCollective found;
  std::map<std::size_t, int> asked;
};

Search search(const std::vector<Duration>& times, bool has_limits) {
  Search result;
  const std::vector<FormShape> forms = two_series();
  std::map<std::size_t, std::int64_t> whole;
  const auto time = [&](std::size_t form, std::int64_t slice) {
    const bool is_whole = whole.emplace(form, slice).first->second == slice;
    result.asked[form] += is_whole ? 1 : 0;
    return is_whole ? times[form] : scaled(times[form], 1.01);
  };
  if (has_limits) {
    result.found = fastest_division(
        forms, kElements,
        TimeBelow([&](std::size_t form, std::int64_t slice, std::optional<Duration> limit) {
          const Duration took = time(form, slice);
          return limit && took >= *limit ? std::nullopt : std::optional(took);
        }));
  } else {
    result.found = fastest_division(forms, kElements,
                                    std::function<Duration(std::size_t, std::int64_t)>(time));
  }
  return result;
}

}  // namespace

TEST_CASE("each series of forms is followed as long as it gets faster") {
  const bool has_limits = GENERATE(false, true);
  // The first gets no faster; the second begins slower, and ends as the fastest.
  const Search one =
      search({100_ms, 101_ms, 102_ms, 103_ms, 120_ms, 110_ms, 95_ms, 90_ms}, has_limits);
  CHECK(one.found.form == 7);
  CHECK(one.found.time == 90_ms);
  CHECK_FALSE(one.asked.contains(3));  // twice no faster is enough
  CHECK(one.asked.contains(5));
}

TEST_CASE("however slow a series begins, it is followed") {
  const bool has_limits = GENERATE(false, true);
  const Search one =
      search({100_ms, 90_ms, 80_ms, 70_ms, 300_ms, 150_ms, 80_ms, 60_ms}, has_limits);
  CHECK(one.found.form == 7);
  CHECK(one.found.time == 60_ms);
  CHECK(one.asked.at(kSecond) == 1);
}

TEST_CASE("a form that its bound rules out is not simulated, and the rest of its series is") {
  std::vector<FormShape> forms = two_series();
  const std::vector<Duration> times = {100_ms, 90_ms, 80_ms, 70_ms, 300_ms, 150_ms, 90_ms, 60_ms};
  for (std::size_t form = 0; form < forms.size(); ++form) {
    plan::AlphaBeta bound;
    bound.alpha = scaled(times[form], form == 6 ? 0.5 : 0.9);
    forms[form].bound = bound;
  }
  std::vector<std::size_t> simulated;
  const DividedCollective found = fastest_division(
      forms, kElements, TimeBelow([&](std::size_t form, std::int64_t, std::optional<Duration>) {
        simulated.push_back(form);
        return std::optional(times[form]);
      }));
  CHECK(found.form == 7);
  CHECK(found.time == 60_ms);
  // 300 ms and 150 ms are at least 270 and 135, when 70 are known.
  CHECK(std::count(simulated.begin(), simulated.end(), 4) == 0);
  CHECK(std::count(simulated.begin(), simulated.end(), 5) == 0);
  CHECK(std::count(simulated.begin(), simulated.end(), 6) == 1);
}

TEST_CASE("of larger buffers a series is begun near where it was best before") {
  std::map<std::int64_t, std::vector<std::size_t>> simulated;
  std::int64_t size = 0;
  // The first series is best in its third form, the second in its first.
  const std::vector<Duration> times = {90_ms, 80_ms, 70_ms, 75_ms, 60_ms, 61_ms, 62_ms, 63_ms};
  const TimeBelow time = [&](std::size_t form, std::int64_t, std::optional<Duration>) {
    simulated[size].push_back(form);
    return std::optional(times[form]);
  };
  DivisionSearch search(two_series());
  for (const std::int64_t elements : {kElements, 4 * kElements, 2 * kElements, kElements / 2}) {
    size = elements;
    const DividedCollective found = search.fastest(elements, time);
    CHECK(found.form == kSecond);
    CHECK(found.time == 60_ms);
  }
  const auto first_times = [&](std::int64_t elements, std::size_t form) {
    const auto& of_size = simulated.at(elements);
    return std::count(of_size.begin(), of_size.end(), form);
  };
  for (const std::int64_t larger : {2 * kElements, 4 * kElements}) {
    CHECK(first_times(larger, 0) == 0);
    CHECK(first_times(larger, 1) == 1);
    CHECK(first_times(larger, 2) == 1);
  }
  for (const std::int64_t known_of_none_below : {kElements, kElements / 2}) {
    CHECK(first_times(known_of_none_below, 0) == 1);
  }
}

TEST_CASE("what cannot save half a percent of the best form, or beat what others reach, is left") {
  std::vector<FormShape> forms = two_series();
  for (FormShape& form : forms) {
    form.bound = plan::AlphaBeta{.alpha = 70_ms};
  }
  std::vector<std::size_t> simulated;
  const TimeBelow time = [&](std::size_t form, std::int64_t, std::optional<Duration>) {
    simulated.push_back(form);
    return std::optional(form == 0 ? 80_ms : scaled(70_ms, 1.004));
  };
  CHECK(DivisionSearch(forms).fastest(kElements, time).form == 1);
  CHECK(simulated == std::vector<std::size_t>{0, 1});
  simulated.clear();
  CHECK_FALSE(DivisionSearch(forms).fastest(kElements, time, 70_ms).has_value());
  CHECK(simulated.empty());
}

TEST_CASE(
    "the best of series are told apart by exact times, each only as long as it may be faster") {
  std::vector<FormShape> forms = two_series();
  // Within a percent of each other by times that are not exact; the later one is faster.
  const TimeBelow time = [&](std::size_t form, std::int64_t, std::optional<Duration> limit) {
    const Duration took = form == 0 ? 70_ms : form == kSecond ? scaled(70_ms, 1.005) : 90_ms;
    return limit && took >= *limit ? std::nullopt : std::optional(took);
  };
  std::vector<std::pair<std::size_t, std::optional<Duration>>> asked;
  const TimeBelow exact = [&](std::size_t form, std::int64_t, std::optional<Duration> limit) {
    asked.emplace_back(form, limit);
    const Duration took = form == 0 ? 72_ms : 71_ms;
    return limit && took >= *limit ? std::nullopt : std::optional(took);
  };
  using Asked = decltype(asked);
  const auto fastest = [&](std::optional<Duration> known) {
    asked.clear();
    return DivisionSearch(forms).fastest(kElements, time, known, exact);
  };
  auto found = fastest(std::nullopt);
  REQUIRE(found.has_value());
  CHECK(found->form == kSecond);
  CHECK(found->time == 71_ms);
  CHECK(asked == Asked{{0, std::nullopt}, {kSecond, 72_ms}});

  // Others reach 71.5 ms: the first is not followed beyond that. None is as fast as 71 ms.
  found = fastest(scaled(71_ms, 71.5 / 71));
  REQUIRE(found.has_value());
  CHECK(found->form == kSecond);
  CHECK_FALSE(fastest(71_ms).has_value());
  CHECK(asked == Asked{{0, 71_ms}, {kSecond, 71_ms}});

  // What its bound rules out by then is not simulated.
  forms[kSecond].bound = plan::AlphaBeta{.alpha = scaled(70_ms, 0.99)};
  asked.clear();
  const TimeBelow sooner = [&](std::size_t form, std::int64_t, std::optional<Duration> limit) {
    asked.emplace_back(form, limit);
    return std::optional(69_ms);
  };
  CHECK(DivisionSearch(forms).fastest(kElements, time, std::nullopt, sooner)->form == 0);
  CHECK(asked == Asked{{0, std::nullopt}});
}

TEST_CASE("few transfers that are slow as a whole may be the fastest in slices") {
  const std::int64_t many = GENERATE(100, 5'000);
  std::vector<FormShape> forms = two_series();
  for (FormShape& form : forms) {
    form.bound = plan::AlphaBeta{.alpha = 95_ms};
  }
  // A series of one, the last of four by its time as a whole.
  for (const std::int64_t transfers : {many, many}) {
    forms.push_back({.largest_share = 0.25, .transfers = transfers});
    forms.back().bound = plan::AlphaBeta{.alpha = 50_ms};
  }
  constexpr std::int64_t kElements = 1 << 20;
  const DividedCollective found = fastest_division(
      forms, kElements, [&](std::size_t form, std::int64_t slice, const std::optional<Duration>&) {
        const bool is_sliced = slice < kElements / 4;
        return std::optional(form < 8 ? 100_ms : form == 8 ? 300_ms : (is_sliced ? 60_ms : 200_ms));
      });
  if (many == 100) {
    CHECK(found.form == 9);
    CHECK(found.time == 60_ms);
  } else {
    CHECK(found.time == 100_ms);  // too many to be looked at
  }
}

}  // namespace rackrail::planner::collective_forms_test
