#include "export/rank_text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <set>

#include "base/error.hpp"

namespace rackrail::exporting {

std::vector<HostSlots> host_slots(const topology::Topology& cluster) {
  std::vector<HostSlots> hosts;
  std::set<std::string> seen;
  for (std::size_t r = 0; r < cluster.rank_count(); ++r) {
    const topology::Node& node = cluster.node(cluster.node_of(Rank(r)));
    if (node.host.empty() && node.kind != topology::NodeKind::kHost) {
      throw ConfigError(ErrorContext{"", "cluster '" + cluster.name() + "'",
                                     fmt::format("rank {} ('{}') without a host", r, node.name),
                                     "a file that says which ranks share a host"});
    }
    const std::string name = node.host.empty() ? node.name : node.host;
    if (!hosts.empty() && hosts.back().name == name) {
      ++hosts.back().ranks;
      continue;
    }
    if (!seen.insert(name).second) {
      throw ConfigError(
          ErrorContext{"", "cluster '" + cluster.name() + "'",
                       fmt::format("rank {} on '{}', apart from its other ranks", r, name),
                       "ranks of a host side by side; 'rackrail place' orders them"});
    }
    hosts.push_back({name, 1});
  }
  require_plain_names(hosts);
  return hosts;
}

void require_plain_names(std::span<const HostSlots> hosts) {
  for (const HostSlots& host : hosts) {
    const auto is_plain = [](unsigned char c) {
      return std::isalnum(c) != 0 || c == '.' || c == '-' || c == '_';
    };
    if (host.name.empty() || host.name.front() == '-' ||
        !std::ranges::all_of(host.name, is_plain)) {
      throw ConfigError(ErrorContext{"", "host names", "'" + host.name + "'",
                                     "names of letters, digits, '.', '-' and '_': neither "
                                     "hostfiles nor scripts quote others"});
    }
  }
}

std::string openmpi_hostfile(std::span<const HostSlots> hosts) {
  std::string text;
  for (const HostSlots& host : hosts) {
    text += fmt::format("{} slots={}\n", host.name, host.ranks);
  }
  return text;
}

std::string slurm_hostfile(std::span<const HostSlots> hosts) {
  std::string text;
  for (const HostSlots& host : hosts) {
    for (std::size_t i = 0; i < host.ranks; ++i) {
      text += host.name + "\n";
    }
  }
  return text;
}

std::string node_list(std::span<const HostSlots> hosts) {
  std::string text;
  for (const HostSlots& host : hosts) {
    text += (text.empty() ? "" : ",") + host.name;
  }
  return text + "\n";
}

std::string torchrun_script(std::span<const HostSlots> hosts) {
  std::string text = R"sh(#!/bin/sh
# Ranks in this order: start this on every host, with what torchrun shall run as arguments.
# MASTER_PORT is 29500 unless it is set.
case "$(hostname)" in
)sh";
  for (std::size_t i = 0; i < hosts.size(); ++i) {
    const std::string& name = hosts[i].name;
    const std::string beside = name.substr(0, name.find('.'));  // what `hostname` may say instead
    text += fmt::format("{}|{}{}) node={}; ranks={};;\n", name, beside == name ? "" : beside + "|",
                        beside + ".*", i, hosts[i].ranks);
  }
  text += fmt::format(
      R"sh(*) echo "$(hostname) is none of the {0} hosts of this job" >&2; exit 2;;
esac
exec torchrun --nnodes={0} --node-rank="$node" --nproc-per-node="$ranks" \
  --master-addr={1} --master-port="${{MASTER_PORT:-29500}}" "$@"
)sh",
      hosts.size(), hosts.front().name);
  return text;
}

}  // namespace rackrail::exporting
