#include "sim/symmetry.hpp"

#include <algorithm>
#include <string>

namespace rackrail::sim {

namespace {

using Routes = std::vector<RouteUse>;
constexpr std::uint32_t kNoLink = UINT32_MAX;

bool alike(const topology::Link& a, const topology::Link& b) {
  return a.bandwidth == b.bandwidth && a.latency == b.latency && a.overhead == b.overhead &&
         a.receive_overhead == b.receive_overhead && a.flow_bandwidth == b.flow_bandwidth &&
         a.burst == b.burst;
}

bool have_equal_devices(const std::vector<plan::RegularSchedule::Lane>& lanes, std::size_t turn,
                        const topology::Topology& topology, const SimulationOptions& options) {
  if (options.device_rates) {
    return true;
  }
  const auto device = [&](std::size_t lane) -> const std::string& {
    return topology.node(topology.node_of(lanes[lane].src)).device_class;
  };
  for (std::size_t lane = 0; lane < lanes.size(); ++lane) {
    if (device(lane) != device((lane + turn) % lanes.size())) {
      return false;
    }
  }
  return true;
}

bool are_staged_alike(const RouteUse& a, const RouteUse& b) {
  return a.copy_out == b.copy_out && a.copy_in == b.copy_in;
}

/// Where turning all lanes by `turn` takes each link, kNoLink for links not in use; empty if it is
/// not a map of links onto links like them, one to one.
std::vector<std::uint32_t> image_of_links(const Routes& routes, std::size_t turn,
                                          const topology::Topology& topology) {
  std::vector<std::uint32_t> image(topology.link_count(), kNoLink);
  std::vector<std::uint32_t> origin(topology.link_count(), kNoLink);
  for (std::size_t lane = 0; lane < routes.size(); ++lane) {
    const std::size_t there = (lane + turn) % routes.size();
    const std::vector<LinkId>& from = routes[lane].links;
    const std::vector<LinkId>& to = routes[there].links;
    if (from.size() != to.size() || !are_staged_alike(routes[lane], routes[there])) {
      return {};
    }
    for (std::size_t hop = 0; hop < from.size(); ++hop) {
      std::uint32_t& image_of_link = image[from[hop].index()];
      std::uint32_t& back = origin[to[hop].index()];
      if (image_of_link == kNoLink && back == kNoLink) {
        image_of_link = to[hop].value();
        back = from[hop].value();
        if (!alike(topology.link(from[hop]), topology.link(to[hop]))) {
          return {};
        }
      } else if (image_of_link != to[hop].value() || back != from[hop].value()) {
        return {};
      }
    }
  }
  return image;
}

/// By link, the smallest link of its orbit; empty if an orbit in use has another size than
/// `copies`.
std::vector<LinkId> first_of_orbits(const std::vector<std::uint32_t>& image, std::size_t copies) {
  std::vector<LinkId> first;
  for (std::size_t link = 0; link < image.size(); ++link) {
    first.emplace_back(link);
  }
  std::vector<bool> seen(image.size(), false);
  for (std::uint32_t link = 0; link < image.size(); ++link) {
    if (image[link] == kNoLink || seen[link]) {
      continue;
    }
    std::size_t size = 0;
    for (std::uint32_t at = link; !seen[at]; at = image[at]) {
      seen[at] = true;
      first[at] = LinkId(link);
      ++size;
    }
    if (size != copies) {
      return {};
    }
  }
  return first;
}

bool repeats_a_link(const RouteUse& use) {
  std::vector<LinkId> route = use.links;
  std::sort(route.begin(), route.end());
  return std::adjacent_find(route.begin(), route.end()) != route.end();
}

}  // namespace

std::optional<FoldedSchedule> fold(const plan::RegularSchedule& schedule, std::int64_t elements,
                                   const Routes& routes, const topology::Topology& topology,
                                   const SimulationOptions& options) {
  const std::vector<plan::RegularSchedule::Lane> lanes = schedule.lanes();
  if (elements % static_cast<std::int64_t>(schedule.chunk_count()) != 0 ||
      std::any_of(lanes.begin(), lanes.end(), [&](const plan::RegularSchedule::Lane& lane) {
        return topology.processor_of(lane.src).has_value();
      })) {
    return std::nullopt;
  }
  for (std::size_t turn = 1; turn <= lanes.size() / 2; ++turn) {
    if (lanes.size() % turn != 0 || !have_equal_devices(lanes, turn, topology, options)) {
      continue;
    }
    FoldedSchedule folded;
    folded.copies = static_cast<std::uint32_t>(lanes.size() / turn);
    const std::vector<std::uint32_t> image = image_of_links(routes, turn, topology);
    folded.stands_for = first_of_orbits(image, folded.copies);
    folded.schedule = schedule.folded(static_cast<std::uint32_t>(turn));
    if (folded.stands_for.empty() || folded.schedule == nullptr) {
      continue;
    }
    for (std::size_t lane = 0; lane < turn; ++lane) {
      for (LinkId& link : folded.routes.emplace_back(routes[lane]).links) {
        link = folded.stands_for[link.index()];
      }
    }
    if (std::none_of(folded.routes.begin(), folded.routes.end(), repeats_a_link)) {
      return folded;
    }
  }
  return std::nullopt;
}

}  // namespace rackrail::sim
