#include "planner/tuning/codecs_to_try.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <set>
#include <string>

#include "plan/cost_model.hpp"

namespace rackrail::planner {

namespace {

constexpr double kNearlyAsQuick = 0.8;  // of the other's bytes per second

/// Rates of one rank of each kind of device.
std::vector<plan::DeviceRates> rates_of_devices(const topology::Topology& topology) {
  std::vector<plan::DeviceRates> rates;
  std::set<std::string> seen;
  for (std::size_t r = 0; r < topology.rank_count(); ++r) {
    const Rank rank(r);
    if (seen.insert(topology.node(topology.node_of(rank)).device_class).second) {
      rates.push_back(plan::device_rates(topology, rank));
    }
  }
  return rates;
}

class CodecComparison {
 public:
  CodecComparison(const topology::Topology& topology,
                  const std::function<double(const plan::Codec&)>& error_of)
      : devices_(rates_of_devices(topology)), error_of_(error_of) {}

  bool makes_pointless(const plan::Codec& better, const plan::Codec& codec) const {
    return (better.survives_many_hops() || !codec.survives_many_hops()) &&
           bytes_per_element(better) <= bytes_per_element(codec) &&
           error_of_(better) <= error_of_(codec) &&
           std::ranges::all_of(devices_, [&](const plan::DeviceRates& rates) {
             const plan::CodecRate& fast = rates.codecs[static_cast<std::size_t>(better.kind)];
             const plan::CodecRate& slow = rates.codecs[static_cast<std::size_t>(codec.kind)];
             return fast.encode >= scaled(slow.encode, kNearlyAsQuick) &&
                    fast.decode >= scaled(slow.decode, kNearlyAsQuick);
           });
  }

 private:
  std::vector<plan::DeviceRates> devices_;
  const std::function<double(const plan::Codec&)>& error_of_;
};

}  // namespace

double bytes_per_element(const plan::Codec& codec) {
  constexpr std::int64_t kMany = 1 << 20;
  return static_cast<double>(plan::encoded_size(codec, kMany).count()) / kMany;
}

std::vector<plan::Codec> codecs_to_try(const topology::Topology& topology, double error_budget,
                                       const std::function<double(const plan::Codec&)>& error_of) {
  const CodecComparison comparison(topology, error_of);
  std::vector<plan::Codec> tried;
  for (const plan::Codec& codec : plan::all_codecs()) {
    const bool is_allowed = !codec.is_lossy() || error_of(codec) <= error_budget;
    if (!is_allowed || std::ranges::any_of(tried, [&](const plan::Codec& lighter) {
          return comparison.makes_pointless(lighter, codec);
        })) {
      continue;
    }
    std::erase_if(tried, [&](const plan::Codec& lighter) {
      return lighter.is_lossy() && comparison.makes_pointless(codec, lighter);
    });
    tried.push_back(codec);
  }
  return tried;
}

}  // namespace rackrail::planner
