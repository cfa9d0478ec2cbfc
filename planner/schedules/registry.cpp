#include <fmt/format.h>

#include <array>
#include <vector>

#include "base/error.hpp"
#include "planner/schedules/builder.hpp"

namespace rackrail::planner {

std::span<const std::unique_ptr<ScheduleFamily>> schedule_families() {
  static const std::array kFamilies = {
#define RACKRAIL_REGISTER(family) make_##family(),
#include "planner/schedules/families.def"
#undef RACKRAIL_REGISTER
  };
  return kFamilies;
}

std::vector<plan::TransferGraph> ScheduleFamily::all_reduces(const ScheduleRequest& request) const {
  return {all_reduce(request)};
}

std::vector<plan::TransferGraph> ScheduleFamily::collectives(plan::Collective what,
                                                             const ScheduleRequest& request) const {
  return what == plan::Collective::kAllReduce ? all_reduces(request)
                                              : std::vector<plan::TransferGraph>();
}

const ScheduleFamily& schedule_family(std::string_view name) {
  std::vector<std::string_view> known;
  for (const auto& family : schedule_families()) {
    if (family->name() == name) {
      return *family;
    }
    known.push_back(family->name());
  }
  throw ConfigError(ErrorContext{"<command line>", "schedule", fmt::format("'{}'", name),
                                 fmt::format("one of {}", fmt::join(known, ", "))});
}

std::vector<topology::RankGroup> tier_groups(const topology::Topology& topology) {
  auto hosts = topology::ranks_by_host(topology);
  for (const auto& host : hosts) {
    if (host.ranks.size() > 1) {
      return hosts;
    }
  }
  auto racks = topology::ranks_by_rack(topology);
  for (const auto& rack : racks) {
    if (rack.ranks.size() > 1) {
      return racks;
    }
  }
  return hosts;
}

}  // namespace rackrail::planner
