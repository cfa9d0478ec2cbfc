#include "sim/job_places.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

namespace rackrail::sim {

namespace {

constexpr int kMostJobSteps = 1'000'000;

/// What stands beside the scenario; a name where nothing does.
std::string beside(const ConfigValue& value) {
  const auto file = std::filesystem::path(value.file()).parent_path() / value.name();
  return std::filesystem::exists(file) ? file.string() : value.name();
}

std::vector<Rank> ranks_of(const ConfigValue& value, const topology::Topology& topology) {
  const ConfigValue* hosts = value.find("hosts");
  const ConfigValue* numbers = value.find("ranks");
  if (hosts != nullptr && numbers != nullptr) {
    value.fail("both hosts and ranks", "one of them");
  }
  std::vector<Rank> ranks;
  if (numbers != nullptr) {
    const auto last = static_cast<std::int64_t>(topology.rank_count()) - 1;
    for (const ConfigValue& number : numbers->elements()) {
      ranks.emplace_back(static_cast<std::size_t>(number.count(0, last)));
    }
  } else if (hosts != nullptr) {
    const std::vector<topology::RankGroup> groups = topology::ranks_by_host(topology);
    for (const ConfigValue& host : hosts->elements()) {
      const auto group =
          std::find_if(groups.begin(), groups.end(),
                       [&](const topology::RankGroup& g) { return g.name == host.text(); });
      if (group == groups.end()) {
        host.fail("a host of the cluster that has ranks, such as " + groups.front().name);
      }
      ranks.insert(ranks.end(), group->ranks.begin(), group->ranks.end());
    }
  } else {
    return {};
  }
  if (ranks.empty()) {
    value.fail("an empty list", "one rank at least");
  }
  return ranks;
}

JobPlace read_common(const ConfigValue& value, const topology::Topology& topology) {
  JobPlace place{.ranks = ranks_of(value, topology)};
  if (const ConfigValue* name = value.find("name")) {
    place.name = name->name();
  }
  if (const ConfigValue* cluster = value.find("cluster")) {
    place.cluster = beside(*cluster);
  }
  if (const ConfigValue* start = value.find("start")) {
    place.start = start->duration();
  }
  return place;
}

}  // namespace

JobPlace read_placement(const ConfigValue& value, const topology::Topology& topology) {
  value.allow_only({"name", "hosts", "ranks", "cluster", "start"});
  return read_common(value, topology);
}

JobPlace read_job(const ConfigValue& value, const topology::Topology& topology) {
  value.allow_only({"plan", "name", "hosts", "ranks", "cluster", "start", "steps", "workload"});
  JobPlace place = read_common(value, topology);
  const ConfigValue& plan = value.require("plan");
  place.plan = (std::filesystem::path(value.file()).parent_path() / plan.name()).string();
  if (place.name.empty()) {
    place.name = std::filesystem::path(place.plan).stem().string();
  }
  if (const ConfigValue* steps = value.find("steps")) {
    place.steps = static_cast<int>(steps->count(1, kMostJobSteps));
  }
  if (const ConfigValue* workload = value.find("workload")) {
    place.workload = beside(*workload);
  }
  return place;
}

}  // namespace rackrail::sim
