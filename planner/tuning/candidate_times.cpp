// How long candidates take, and which is the cheapest.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <map>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "base/parse_units.hpp"
#include "plan/codec_name.hpp"
#include "planner/groups/many_ranks.hpp"
#include "planner/tuning/candidates.hpp"
#include "planner/tuning/codecs_to_try.hpp"
#include "planner/tuning/collective_forms.hpp"

namespace rackrail::planner {

namespace {

// Of this family sizes say nothing of each other: where all ranks send to all servers at once,
// times jump with the order of the flows.
constexpr const char* kUnsteadyFamily = "parameter-server";

/// The slice that is tried with many ranks, where chunks are small and slices hardly matter: 1 MiB,
/// or a larger one of which a collective is no more than so many messages.
std::int64_t usual_slice(const Candidate& candidate, std::int64_t elements) {
  const std::int64_t chunk = std::max<std::int64_t>(
      1, elements / static_cast<std::int64_t>(candidate.graph.chunk_count()));
  const auto transfers = static_cast<std::int64_t>(candidate.graph.transfers().size());
  // Of that family nearly all are under way at once, and each that ends changes others' rates.
  constexpr std::int64_t kMostMessagesAtOnce = kMostMessages / 6;
  const std::int64_t messages =
      candidate.family == kUnsteadyFamily ? kMostMessagesAtOnce : kMostMessages;
  const std::int64_t most = std::max<std::int64_t>(1, messages / transfers);
  constexpr std::int64_t kLargestSlice = std::int64_t{1} << 28;
  std::int64_t slice = std::int64_t{1} << 18;
  while (slice < kLargestSlice && (chunk + slice - 1) / slice > most) {
    slice *= 2;
  }
  return slice;
}

/// In such slices.
std::int64_t message_count(const Candidate& candidate, std::int64_t elements, std::int64_t slice) {
  const auto chunks = static_cast<std::int64_t>(candidate.graph.chunk_count());
  const auto transfers = static_cast<std::int64_t>(candidate.graph.transfers().size());
  return transfers * std::max<std::int64_t>(1, elements / chunks / slice);
}

// The least share of its time that a collective can need when its codec becomes a stronger one.
double most_saved(const plan::Codec& from, const plan::Codec& to) {
  return bytes_per_element(to) / bytes_per_element(from);
}

}  // namespace

std::size_t CandidateSet::followed_transfers(std::size_t candidate) {
  const auto [known, is_new] = followed_.try_emplace(candidate);
  if (is_new) {
    known->second = cost_model_.followed_transfers(candidates_[candidate].graph);
  }
  return known->second;
}

std::optional<Duration> CandidateSet::time(std::size_t candidate, std::int64_t elements,
                                           std::int64_t slice_elements, Duration limit) {
  const auto below =
      static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(elements)));
  if (!interpolates_ || below == elements) {
    return simulated(candidate, elements, slice_elements, limit);
  }
  if (is_expected_slower(candidate, elements, limit)) {
    return std::nullopt;
  }
  const auto least = simulated(candidate, below, slice_elements, limit);
  if (!least.has_value()) {
    return std::nullopt;
  }
  const double share = static_cast<double>(elements - below) / static_cast<double>(below);
  // Where the line through both times meets the limit.
  const double meets = (limit - *least).seconds() / share;
  constexpr double kLongest = 1e6;
  const Duration limit_of_most =
      meets < kLongest ? *least + Duration::from_seconds(meets) : kNoLimit;
  const auto most = simulated(candidate, 2 * below, slice_elements, limit_of_most);
  if (!most.has_value()) {
    return std::nullopt;
  }
  const Duration between = *least + scaled(*most - *least, share);
  return between < limit ? std::optional(between) : std::nullopt;
}

// What other sizes and codecs say: more bytes take no less, and k times the bytes take at most k
// times as long; a codec saves at most its ratio of what FP32 takes.
Duration CandidateSet::expected_least(std::size_t candidate, std::int64_t elements) const {
  Duration least;
  for (auto it = known_.lower_bound(std::tuple(candidate, std::int64_t{0}, std::int64_t{0}));
       it != known_.end() && std::get<0>(it->first) == candidate; ++it) {
    const std::int64_t size = std::get<1>(it->first);
    if (size != elements && candidates_[candidate].family == kUnsteadyFamily) {
      continue;
    }
    const Duration at_least = it->second.time.value_or(it->second.at_least);
    const double share = static_cast<double>(elements) / static_cast<double>(size);
    least = std::max(least, size <= elements ? at_least : scaled(at_least, share));
  }
  const std::size_t first = first_of_shape_[candidate];
  if (first != candidate && !candidates_[first].strongest.is_lossy()) {
    const double gain = most_saved(candidates_[first].strongest, candidates_[candidate].strongest);
    least = std::max(least, scaled(expected_least(first, elements), gain));
  }
  return least;
}

bool CandidateSet::is_expected_slower(std::size_t candidate, std::int64_t elements,
                                      Duration limit) const {
  constexpr double kExpectedDeviation = 0.1;  // of what other sizes and codecs say
  return !has_bursts_ &&                      // a larger one may take many times as long
         scaled(expected_least(candidate, elements), 1 - kExpectedDeviation) > limit;
}

std::optional<Duration> CandidateSet::simulated(std::size_t candidate, std::int64_t elements,
                                                std::int64_t slice_elements, Duration limit) {
  Known& known = known_[std::tuple(candidate, elements, slice_elements)];
  if (!known.time.has_value() && known.at_least < limit) {
    if (expects_ && is_expected_slower(candidate, elements, limit)) {
      return std::nullopt;
    }
    const plan::TransferGraph& graph = candidates_[candidate].graph;
    known.time =
        limit == kNoLimit
            ? cost_model_.collective_time(graph, elements, slice_elements)  // not interrupted
            : cost_model_.collective_time_below(graph, elements, slice_elements, limit);
    if (!known.time.has_value() && stop_ && stop_()) {
      return std::nullopt;  // it may have been interrupted
    }
    known.at_least = limit;
  }
  return known.time.has_value() && *known.time < limit ? known.time : std::nullopt;
}

std::optional<Choice> CandidateSet::likely(std::int64_t elements,
                                           const CandidateFilter& filter) const {
  std::optional<Choice> least;
  for (std::size_t i = 0; i < candidates_.size(); ++i) {
    const Duration time = candidates_[i].model.at_least(elements);
    if ((!least.has_value() || time < least->time) && filter(candidates_[i])) {
      // Fine slices fill a pipeline soon, above all on slow links.
      least = Choice{i, slices_of(i, elements).front(), time};
    }
  }
  return least;
}

std::vector<std::int64_t> CandidateSet::slices_of(std::size_t candidate,
                                                  std::int64_t elements) const {
  if (topology_.rank_count() >= kRanksOfOneSlice) {
    return {usual_slice(candidates_[candidate], elements)};
  }
  // Slices that no transfer is longer than are all alike.
  const auto largest_transfer =
      static_cast<std::int64_t>(
          std::ceil(candidates_[candidate].largest_share * static_cast<double>(elements))) +
      1;
  std::vector<std::int64_t> slices;
  for (std::size_t i = 0; i < slices_.size(); ++i) {
    if (i > 0 && (slices_[i] > elements || slices_[i - 1] >= largest_transfer)) {
      break;
    }
    if (message_count(candidates_[candidate], elements, slices_[i]) <= kMostMessages) {
      slices.push_back(slices_[i]);
    }
  }
  if (slices.empty()) {  // a huge buffer
    slices.push_back(usual_slice(candidates_[candidate], elements));
  }
  return slices;
}

// The one that was chosen last, at another size mostly, else that of the least bound.
std::optional<std::size_t> CandidateSet::likely_winner(std::int64_t elements,
                                                       const CandidateFilter& filter) const {
  const auto last = std::ranges::find_if(
      last_chosen_, [&](std::size_t candidate) { return filter(candidates_[candidate]); });
  if (last != last_chosen_.end()) {
    return *last;
  }
  const std::optional<Choice> least = likely(elements, filter);
  return least ? std::optional(least->candidate) : std::nullopt;
}

void CandidateSet::remember_chosen(std::size_t candidate) {
  std::erase(last_chosen_, candidate);
  last_chosen_.insert(last_chosen_.begin(), candidate);
}

std::string codecs_text(const TierCodecs& codecs) {
  const std::string across = plan::display_name(codecs.across);
  return codecs.inside == codecs.across
             ? across
             : fmt::format("{} inside, {} across", plan::display_name(codecs.inside), across);
}

void CandidateSet::say_decisions(std::int64_t elements, const CandidateFilter& filter,
                                 const Choice& best) {
  if (!decided_.emplace(elements, best.candidate).second) {
    return;
  }
  for (std::size_t i = 0; i < candidates_.size(); ++i) {
    const Candidate& candidate = candidates_[i];
    if (!filter(candidate)) {
      continue;
    }
    std::optional<Duration> time;
    bool was_simulated = false;
    for (auto it = known_.lower_bound(std::tuple(i, elements, std::int64_t{0}));
         it != known_.end() && std::get<0>(it->first) == i && std::get<1>(it->first) == elements;
         ++it) {
      const Known& known = it->second;
      was_simulated = was_simulated || known.time || known.at_least > Duration();
      time = known.time && (!time || *known.time < *time) ? known.time : time;
    }
    const Duration bound = candidate.model.at_least(elements);
    const bool is_best = i == best.candidate;
    decisions_({.about = "bucket of " + to_string(Bytes(4 * elements)),
                .schedule = candidate.graph.label(),
                .codecs = codecs_text(candidate.codecs),
                .bound = bound,
                .time = is_best ? std::optional(best.time) : time,
                .outcome = is_best         ? "chosen"
                           : time          ? "slower"
                           : was_simulated ? "simulated until it was slower"
                           : bound >= best.time
                               ? "its bound is no less than the time of the chosen one"
                           : is_expected_slower(i, elements, best.time)
                               ? "slower at other sizes or in lighter codecs"
                               : "not simulated: its bound is near the time of the chosen one, or "
                                 "the search ended"});
  }
}

std::optional<Choice> CandidateSet::cheapest(std::int64_t elements, const CandidateFilter& filter,
                                             Duration most) {
  if (most < kNoLimit) {
    return cheapest_below(elements, filter, most);
  }
  const auto candidate = likely_winner(elements, filter);
  if (!candidate.has_value()) {
    return std::nullopt;
  }
  const std::int64_t slice = slices_of(*candidate, elements).back();
  const Choice known{*candidate, slice, time(*candidate, elements, slice, kNoLimit).value()};
  const Choice best = cheapest_below(elements, filter, known.time + Duration(1)).value_or(known);
  remember_chosen(best.candidate);
  if (decisions_) {
    say_decisions(elements, filter, best);
  }
  return best;
}

std::optional<Choice> CandidateSet::cheapest_below(std::int64_t elements,
                                                   const CandidateFilter& filter, Duration most) {
  std::optional<Choice> best;
  const auto least = [&] { return best.has_value() ? best->time : most; };
  // None when it is no faster than the limit.
  const auto time_of = [&](std::size_t i, Duration limit) {
    std::optional<Duration> fastest;
    for (const std::int64_t slice : slices_of(i, elements)) {
      const auto cost = time(i, elements, slice, fastest.value_or(limit));
      if (!cost.has_value()) {
        continue;
      }
      fastest = cost;
      if (*cost < least()) {
        best = Choice{i, slice, *cost};
      }
    }
    return fastest;
  };
  const auto may_win = [&](std::size_t i) {
    return candidates_[i].model.at_least(elements) < scaled(least(), 1 - worthwhile_) &&
           !(stop_ && stop_()) && !(expects_ && is_expected_slower(i, elements, least()));
  };
  // The lightest form of every family first, the most promising family before others.
  std::vector<std::size_t> lightest;
  std::map<std::size_t, std::vector<std::size_t>> forms;  // in the race, by the lightest of them
  std::map<std::pair<std::string, std::size_t>, std::size_t> lightest_of;
  for (std::size_t i = 0; i < candidates_.size(); ++i) {
    if (filter(candidates_[i])) {
      const auto [first, is_new] = lightest_of.emplace(candidates_[i].shape(), i);
      if (is_new) {
        lightest.push_back(i);
      }
      forms[first->second].push_back(i);
    }
  }
  std::ranges::stable_sort(lightest, {},
                           [&](std::size_t i) { return candidates_[i].model.at_least(elements); });
  // A codec shrinks messages by its ratio at most, so a family that is slower than the best by more
  // than that need not be tried with codecs, nor be simulated further than to that. Where links let
  // bursts pass at once, a smaller message may take no time at all.
  const auto gain_of = [&](std::size_t first, std::size_t i) {
    return has_bursts_ ? 0 : most_saved(candidates_[first].strongest, candidates_[i].strongest);
  };
  std::map<std::size_t, double> largest_gain;  // by the lightest form
  for (const auto& [first, all] : forms) {
    double gain = 1.0;
    for (const std::size_t i : all) {
      gain = std::min(gain, gain_of(first, i));
    }
    largest_gain.emplace(first, gain);
  }
  // Of a lightest form that cannot win itself, the time may still say that stronger ones cannot.
  const auto may_one_win = [&](std::size_t first) {
    return std::ranges::any_of(forms.at(first), may_win);
  };
  std::map<std::size_t, std::optional<Duration>> simulated;
  for (const std::size_t i : lightest) {
    if (candidates_[i].model.at_least(elements) < scaled(least(), 1 - worthwhile_) &&
        may_one_win(i)) {
      const Duration limit =
          largest_gain.at(i) > 0 ? scaled(least(), 1 / largest_gain.at(i)) : kNoLimit;
      simulated.emplace(i, time_of(i, limit));
    }
  }
  for (std::size_t i = 0; i < candidates_.size(); ++i) {
    if (!filter(candidates_[i]) || !may_win(i)) {
      continue;
    }
    const std::size_t first = lightest_of.at(candidates_[i].shape());
    const auto known = simulated.find(first);
    const bool may_gain =
        known == simulated.end() ||
        (known->second.has_value() && scaled(*known->second, gain_of(first, i)) < least());
    if (i != first && may_gain) {
      time_of(i, least());
    }
  }
  return best;
}

}  // namespace rackrail::planner
