#pragma once

// What tests of readers of network files share.

#include <filesystem>
#include <map>
#include <string>

#include "tests/unit/topology/graphs.hpp"
#include "topology/reader.hpp"

namespace rackrail::topology::test {

using TierRates = std::map<std::string, Bandwidth, std::less<>>;

inline constexpr const char* kDgx = R"(
host:
  gpus: 8
  device_class: H100
  nvlink: { bandwidth: 450 GB/s, latency: 300 ns }
  pcie: { bandwidth: 63 GB/s, latency: 500 ns }
  nics: { count: 8, bandwidth: 400 Gbit/s, latency: 455 ns }
)";

inline ReadResult read_network(const std::string& content, const std::string& overlay = "",
                               const TierRates& rates = {}) {
  const TextFile extra("overlay.yaml", overlay);
  ReadOptions options;
  if (!overlay.empty()) options.overlay = extra.path();
  options.tier_bandwidths = rates;
  return read_cluster_text("network", content, options);
}

inline std::string error_of_network(const std::string& content, const std::string& overlay = "",
                                    const TierRates& rates = {}) {
  return error_of([&] { read_network(content, overlay, rates); });
}

inline bool has_note(const ReadResult& result, const std::string& text) {
  for (const std::string& note : result.notes) {
    if (note.find(text) != std::string::npos) return true;
  }
  return false;
}

/// Of all links from one to the other; 0 where there are none or no such vertices.
inline Bandwidth rate_between(const Topology& t, const std::string& from, const std::string& to) {
  Bandwidth rate;
  if (!t.find_node(from)) return rate;
  for (const LinkId link : t.links_out_of(*t.find_node(from))) {
    if (t.node(t.link(link).to).name == to) rate = rate + t.link(link).bandwidth;
  }
  return rate;
}

}  // namespace rackrail::topology::test
