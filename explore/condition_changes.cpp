// What a scenario has that could be otherwise.
#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include "explore/changes.hpp"

namespace rackrail::explore {

namespace {

constexpr std::size_t kMostLinksOneByOne = 8;
constexpr std::pair<const char*, double> kMoreOf[] = {{"+10 %", 1.1}, {"x2", 2.0}};
constexpr std::pair<const char*, double> kLessOf[] = {{"-10 %", 0.9}, {"half", 0.5}};

Change of_conditions(std::string what, const char* by, bool is_marginal,
                     std::function<void(Conditions&)> change) {
  return {.what = std::move(what),
          .by = by,
          .is_marginal = is_marginal,
          .breadth = Breadth::kOne,
          .links = {},
          .device_speed = 1,
          .device_rates = std::nullopt,
          .conditions = std::move(change)};
}

/// Something that goes wrong, undone.
Change undone(std::string what, const char* by, std::function<void(Conditions&)> change) {
  Change without = of_conditions(std::move(what), by, false, std::move(change));
  without.is_disturbance = true;
  return without;
}

std::string names_of(const std::vector<Rank>& ranks) {
  if (ranks.empty()) {
    return "all ranks";
  }
  std::string names = ranks.size() == 1 ? "rank" : "ranks";
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    names += fmt::format("{} {}", i == 0 ? "" : ",", ranks[i].value());
  }
  return names;
}

std::string name_of(const sim::SlowDevice& slow) {
  const char* what = slow.factor == 1  ? "variation of "
                     : slow.sigma == 0 ? "slowness of "
                                       : "slowness and variation of ";
  return what + names_of(slow.ranks);
}

void add_slow_devices(const Conditions& conditions, std::vector<Change>& changes) {
  const auto& devices = conditions.simulation.disturbances.slow_devices;
  std::set<std::vector<Rank>> groups;
  for (std::size_t i = 0; i < devices.size(); ++i) {
    const sim::SlowDevice& slow = devices[i];
    // The others keep their places in the list, from which their random numbers come.
    changes.push_back(undone(name_of(slow), "gone", [i](Conditions& with) {
      sim::SlowDevice& gone = with.simulation.disturbances.slow_devices[i];
      gone.factor = 1;
      gone.sigma = 0;
    }));
    if (slow.ranks.empty() || !groups.insert(slow.ranks).second) {
      continue;
    }
    for (const auto& [by, factor] : kMoreOf) {
      changes.push_back(of_conditions("speed of " + names_of(slow.ranks), by, factor < 2,
                                      [ranks = slow.ranks, factor = factor](Conditions& with) {
                                        with.simulation.disturbances.slow_devices.push_back(
                                            {.ranks = ranks, .factor = 1 / factor});
                                      }));
    }
  }
}

std::function<void(Conditions&)> without_changes_of(std::set<LinkId> links) {
  return [links = std::move(links)](Conditions& with) {
    std::erase_if(with.simulation.disturbances.capacity,
                  [&](const sim::CapacityChange& change) { return links.contains(change.link); });
  };
}

void add_links(const Conditions& conditions, const topology::Topology& topology,
               std::vector<Change>& changes, std::vector<std::string>& notes) {
  std::set<LinkId> disturbed;
  for (const sim::CapacityChange& change : conditions.simulation.disturbances.capacity) {
    disturbed.insert(change.link);
  }
  if (disturbed.size() > kMostLinksOneByOne) {
    notes.push_back(fmt::format("the {} links that the scenario changes are not tried one by one",
                                disturbed.size()));
  } else {
    for (const LinkId link : disturbed) {
      changes.push_back(
          undone("trouble of " + topology.link_name(link), "gone", without_changes_of({link})));
    }
  }
  if (disturbed.size() > 1) {
    changes.push_back(undone(fmt::format("trouble of {} links", disturbed.size()), "gone",
                             without_changes_of(disturbed)));
    changes.back().breadth = Breadth::kKind;
  }
}

void add_background(const Conditions& conditions, std::vector<Change>& changes) {
  const auto& streams = conditions.simulation.disturbances.background;
  for (std::size_t i = 0; i < streams.size(); ++i) {
    changes.push_back(undone(fmt::format("background from rank {} to rank {}",
                                         streams[i].src.value(), streams[i].dst.value()),
                             "gone", [i](Conditions& with) {
                               auto& left = with.simulation.disturbances.background;
                               left.erase(left.begin() + static_cast<std::ptrdiff_t>(i));
                             }));
  }
  if (streams.size() > 1) {
    changes.push_back(undone("all background traffic", "gone", [](Conditions& with) {
      with.simulation.disturbances.background.clear();
    }));
    changes.back().breadth = Breadth::kKind;
  }
}

void add_loading(const Conditions& conditions, std::vector<Change>& changes) {
  if (!conditions.simulation.loading) {
    return;
  }
  for (const auto& [by, factor] : kMoreOf) {
    changes.push_back(
        of_conditions("speed of data loading", by, factor < 2, [factor = factor](Conditions& with) {
          with.simulation.loading->batch = scaled(with.simulation.loading->batch, 1 / factor);
        }));
  }
  const int ahead = conditions.simulation.loading->prefetch;
  changes.push_back(of_conditions("batches loaded ahead", "", false,
                                  [](Conditions& with) { ++with.simulation.loading->prefetch; }));
  changes.back().by = fmt::format("{} instead of {}", ahead + 1, ahead);
}

std::string name_of(const Outage& outage, const topology::Topology& topology) {
  const std::string& lost =
      outage.host.empty() ? topology.link_name(outage.links.front()) : outage.host;
  return (outage.is_drain ? "drain of " : "loss of ") + lost;
}

void add_outages(const Conditions& conditions, const topology::Topology& topology,
                 std::vector<Change>& changes) {
  if (!conditions.outages) {
    return;
  }
  const auto& outages = conditions.outages->outages;
  for (std::size_t i = 0; i < outages.size(); ++i) {
    changes.push_back(undone(name_of(outages[i], topology), "gone", [i](Conditions& with) {
      auto& left = with.outages->outages;
      left.erase(left.begin() + static_cast<std::ptrdiff_t>(i));
    }));
  }
  if (outages.size() > 1) {
    changes.push_back(undone("all that is lost or drained", "gone",
                             [](Conditions& with) { with.outages->outages.clear(); }));
    changes.back().breadth = Breadth::kKind;
  }
  using Time = Duration Outage::*;
  for (const auto& [what, time] : {std::pair<const char*, Time>("detection", &Outage::detection),
                                   {"recovery", &Outage::recovery}}) {
    const bool takes_any = std::any_of(outages.begin(), outages.end(), [&](const Outage& outage) {
      return outage.*time > Duration();
    });
    if (!takes_any) {
      continue;
    }
    for (const auto& [by, factor] : kLessOf) {
      changes.push_back(of_conditions(fmt::format("time of {}", what), by, factor > 0.5,
                                      [time = time, factor = factor](Conditions& with) {
                                        for (Outage& outage : with.outages->outages) {
                                          outage.*time = scaled(outage.*time, factor);
                                        }
                                      }));
      changes.back().breadth = Breadth::kKind;
    }
  }
}

/// Of several with one name the second and later ones are numbered.
void number_equal_names(std::vector<Change>& changes) {
  std::set<std::pair<std::string, std::string>> taken;
  for (Change& change : changes) {
    const std::string name = change.what;
    for (int number = 2; !taken.insert({change.what, change.by}).second; ++number) {
      change.what = fmt::format("{} #{}", name, number);
    }
  }
}

}  // namespace

std::vector<Change> changes_of_conditions(const Conditions& conditions,
                                          const topology::Topology& topology,
                                          std::vector<std::string>& notes) {
  std::vector<Change> changes;
  add_slow_devices(conditions, changes);
  add_links(conditions, topology, changes, notes);
  add_background(conditions, changes);
  add_loading(conditions, changes);
  add_outages(conditions, topology, changes);
  number_equal_names(changes);
  return changes;
}

}  // namespace rackrail::explore
