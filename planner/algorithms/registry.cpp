#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "plan/verifier.hpp"
#include "planner/algorithms/families.hpp"
#include "topology/attachments.hpp"

namespace rackrail::planner {

std::span<const std::unique_ptr<ScheduleFamily>> schedule_families() {
  static const std::array kFamilies = {
#define RACKRAIL_REGISTER(family) make_##family(),
#include "planner/algorithms/families.def"
#undef RACKRAIL_REGISTER
  };
  return kFamilies;
}

std::vector<plan::TransferGraph> ScheduleFamily::all_reduces(const ScheduleRequest& request) const {
  return {all_reduce(request)};
}

std::vector<CollectiveForm> ScheduleFamily::collectives(plan::Collective what,
                                                        const ScheduleRequest& request) const {
  std::vector<CollectiveForm> forms;
  if (what == plan::Collective::kAllReduce) {
    for (plan::TransferGraph& graph : all_reduces(request)) {
      forms.emplace_back(std::move(graph), request.topology);
    }
  }
  return forms;
}

std::optional<std::string> graph_refusal(const ScheduleFamily& family,
                                         const topology::Topology& topology,
                                         const TierCodecs& codecs) {
  if (auto refusal = family.refusal(topology, codecs)) {
    return refusal;
  }
  const GraphSize size = family.graph_size(topology);
  const auto too_many = [](std::uint64_t found, const char* what, std::uint64_t most,
                           const char* may) {
    return fmt::format("so many ranks would make {} {}, at most {} can be {}", found, what, most,
                       may);
  };
  if (size.transfers > kMostPlannedTransfers) {
    return too_many(size.transfers, "transfers", kMostPlannedTransfers, "planned");
  }
  if (size.movements > plan::kMostVerifiedMovements) {
    return too_many(size.movements, "movements of chunks", plan::kMostVerifiedMovements,
                    "verified");
  }
  return std::nullopt;
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

}  // namespace rackrail::planner
