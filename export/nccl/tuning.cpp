#include "export/nccl/tuning.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>

#include "base/error.hpp"

namespace rackrail::exporting::nccl {

namespace {

using sim::nccl::Algorithm;
using sim::nccl::Machine;
using sim::nccl::Parameters;
using sim::nccl::Protocol;

constexpr std::int64_t kSmallest = 1024;
constexpr std::int64_t kLargest = std::int64_t{8} << 30U;
/// Chunks of an NVLS tree that NCCL's versions take by themselves (parameters.hpp).
constexpr Bytes kNvlsTreeChunks[] = {64_KiB, 128_KiB};

int channels_of(Algorithm algorithm, const Parameters& parameters) {
  const bool is_nvls = algorithm == Algorithm::kNvls || algorithm == Algorithm::kNvlsTree;
  return is_nvls ? parameters.nvls_channels : parameters.channels;
}

bool can_run(const Machine& machine, Algorithm algorithm, Protocol protocol) {
  try {
    sim::nccl::tune(machine, Bytes(kSmallest), {algorithm, protocol});
    return true;
  } catch (const ConfigError&) {
    return false;
  }
}

/// All that the machine can run, each with the constants that it is predicted with.
struct Option {
  Setting setting;
  Parameters parameters;
};

std::vector<Option> options_of(const Machine& machine, const Parameters& parameters) {
  std::vector<Option> options;
  for (const Algorithm algorithm :
       {Algorithm::kRing, Algorithm::kTree, Algorithm::kNvls, Algorithm::kNvlsTree}) {
    for (const Protocol protocol : {Protocol::kLl, Protocol::kLl128, Protocol::kSimple}) {
      if (!can_run(machine, algorithm, protocol)) {
        continue;
      }
      options.push_back(
          {{algorithm, protocol, channels_of(algorithm, parameters), Bytes(0)}, parameters});
      if (algorithm != Algorithm::kNvlsTree) {
        continue;
      }
      for (const Bytes chunk : kNvlsTreeChunks) {
        if (chunk != parameters.nvls_tree_chunk) {
          options.push_back({{algorithm, protocol, parameters.nvls_channels, chunk}, parameters});
          options.back().parameters.nvls_tree_chunk = chunk;
        }
      }
    }
  }
  return options;
}

SizeTuning tune_size(const Machine& machine, Bytes size, const std::vector<Option>& options) {
  const sim::nccl::Tuned usual = sim::nccl::tune(machine, size, {});
  SizeTuning result;
  result.size = size;
  result.one_way = sim::nccl::tune_one_way_ring(machine, size);
  std::optional<Duration> fastest;
  const auto time_of = [&](const Option& option) {
    return sim::nccl::all_reduce(machine, size, {option.setting.algorithm, option.setting.protocol},
                                 option.parameters)
        .time;
  };
  for (const Option& option : options) {
    const Setting& setting = option.setting;
    if (setting.chunk > Bytes(0)) {
      continue;
    }
    const Duration time = time_of(option);
    if (setting.algorithm == usual.algorithm && setting.protocol == usual.protocol) {
      result.usual = setting;
      result.usual_time = time;
    }
    if (!fastest || time < *fastest) {
      fastest = time;
      result.chosen = setting;
      result.time = time;
    }
  }
  if (result.time > scaled(result.usual_time, 1 - kWorthOverriding)) {
    result.chosen = result.usual;
    result.time = result.usual_time;
  }
  // A chunk is worth a line only beside the algorithm that is right without it: few versions of
  // NCCL ask for it.
  for (const Option& option : options) {
    const Setting& setting = option.setting;
    if (setting.chunk == Bytes(0) || setting.algorithm != result.chosen.algorithm ||
        setting.protocol != result.chosen.protocol) {
      continue;
    }
    if (const Duration time = time_of(option); time <= scaled(result.time, 1 - kWorthOverriding)) {
      result.chosen = setting;
      result.time = time;
    }
  }
  return result;
}

ShapeTuning tune_shape(const Machine& machine, const Parameters& parameters,
                       const std::function<void(double)>& progress) {
  ShapeTuning shape{machine.hosts().size(), machine.gpus_per_node(), {},
                    machine.has_sharp(),    parameters.channels,     parameters.nvls_channels};
  const std::vector<Option> options = options_of(machine, parameters);
  for (std::int64_t size = kSmallest; size <= kLargest; size *= 2) {
    progress(static_cast<double>(shape.sizes.size()));
    shape.sizes.push_back(tune_size(machine, Bytes(size), options));
  }
  return shape;
}

/// The GPUs that every host has. Throws ConfigError for what NCCL does not run on.
std::size_t gpus_of_each_host(const topology::Topology& cluster,
                              const std::vector<topology::RankGroup>& hosts) {
  std::size_t least = cluster.rank_count();
  for (const topology::RankGroup& host : hosts) {
    least = std::min(least, host.ranks.size());
    for (const Rank rank : host.ranks) {
      const topology::Node& node = cluster.node(cluster.node_of(rank));
      if (node.kind != topology::NodeKind::kGpu) {
        throw ConfigError(
            ErrorContext{"", "cluster '" + cluster.name() + "'",
                         fmt::format("rank {} ('{}') is no GPU", rank.value(), node.name),
                         "a cluster whose ranks are GPUs, as NCCL's are"});
      }
    }
  }
  if (cluster.rank_count() < 2) {
    throw ConfigError(ErrorContext{"", "cluster '" + cluster.name() + "'", "one GPU",
                                   "two at least, which have something to say to each other"});
  }
  return least;
}

}  // namespace

std::vector<ShapeTuning> tune_all_reduces(const topology::Topology& cluster,
                                          const Parameters& parameters,
                                          const std::function<void(double)>& progress) {
  const std::vector<topology::RankGroup> hosts = topology::ranks_by_host(cluster);
  const std::size_t gpus = gpus_of_each_host(cluster, hosts);
  std::vector<std::size_t> counts;
  for (std::size_t nodes = gpus > 1 ? 1 : 2; nodes < hosts.size(); nodes *= 2) {
    counts.push_back(nodes);
  }
  counts.push_back(hosts.size());
  constexpr double kSizes = 24;  // powers of two from kSmallest to kLargest
  std::vector<ShapeTuning> shapes;
  for (const std::size_t nodes : counts) {
    const Machine machine(cluster, nodes, gpus);
    shapes.push_back(tune_shape(machine, parameters, [&](double sizes) {
      if (progress) {
        progress((static_cast<double>(shapes.size()) + sizes / kSizes) /
                 static_cast<double>(counts.size()));
      }
    }));
  }
  return shapes;
}

}  // namespace rackrail::exporting::nccl
