// The list of readers and the choice among them. A new format is one more line in formats.def.
#include <fmt/format.h>

#include <array>
#include <functional>
#include <set>

#include "base/error.hpp"
#include "base/file.hpp"
#include "base/text.hpp"
#include "topology/adapters.hpp"
#include "topology/configs.hpp"
#include "topology/reader.hpp"
#include "topology/readers/formats.hpp"

namespace rackrail::topology {
namespace {

std::string format_names() {
  std::string names;
  for (const std::unique_ptr<Reader>& reader : readers()) {
    names += (names.empty() ? "" : ", ") + std::string(reader->format());
  }
  return names;
}

/// Text that describes a machine or what ran on it, but not the links; and what does.
struct NoCluster {
  std::string_view mark;
  const char* found;
  const char* expected;
};
constexpr std::array kNoClusters{
    NoCluster{"NCCL INFO", "a log of NCCL",
              "the topology that NCCL writes with NCCL_TOPO_DUMP_FILE=topo.xml"},
    NoCluster{"NVIDIA-SMI", "the overview of 'nvidia-smi'", "the output of 'nvidia-smi topo -m'"},
    NoCluster{"# nThread", "a log of nccl-tests", "the cluster that it ran on"},
    NoCluster{"Weight between two GPUs", "a part of 'rocm-smi --showtopo'",
              "its whole output, with the table of link types"}};

const Reader& reader_for(const std::filesystem::path& path, std::string_view content,
                         const ReadOptions& options) {
  for (const std::unique_ptr<Reader>& reader : readers()) {
    if (options.format ? *options.format == reader->format() : reader->accepts(path, content)) {
      return *reader;
    }
  }
  if (options.format) {
    throw ConfigError(ErrorContext{"<command line>", "--format",
                                   fmt::format("'{}'", *options.format), format_names()});
  }
  for (const NoCluster& kind : kNoClusters) {
    if (content.find(kind.mark) == std::string_view::npos) continue;
    throw ConfigError(ErrorContext{path.string(), "", kind.found, kind.expected});
  }
  throw ConfigError(ErrorContext{path.string(), "", "a file of no known kind",
                                 "a cluster file: " + format_names()});
}

/// Throws ConfigError for a tier that is not there.
void set_tier_bandwidths(Topology& topology, const ReadOptions& options) {
  if (options.tier_bandwidths.empty()) return;
  std::set<std::string, std::less<>> tiers;
  for (std::size_t i = 0; i < topology.link_count(); ++i) {
    const Link& link = topology.link(LinkId(i));
    tiers.insert(link.tier);
    if (const auto rate = options.tier_bandwidths.find(link.tier);
        rate != options.tier_bandwidths.end()) {
      topology.set_link_rate(LinkId(i), rate->second, link.latency);
    }
  }
  for (const auto& [tier, rate] : options.tier_bandwidths) {
    if (tiers.contains(tier)) continue;
    throw ConfigError(ErrorContext{
        "<command line>", "--tier-bandwidth", fmt::format("tier '{}'", tier),
        tiers.empty() ? "none: this cluster has no links"
                      : fmt::format("a tier of this cluster: {}", fmt::join(tiers, ", "))});
  }
}

/// Nothing where all have cables.
std::optional<std::string> note_of_cables(const Topology& topology) {
  const std::vector<NodeId> without = nics_without_cable(topology);
  if (without.empty()) {
    return std::nullopt;
  }
  const Node& first = topology.node(without.front());
  return fmt::format("NIC '{}'{} has no cable and carries nothing{}", first.name,
                     first.host.empty() ? "" : fmt::format(" of host '{}'", first.host),
                     without.size() == 1
                         ? std::string()
                         : fmt::format(", like {} more NIC(s)", without.size() - 1));
}

}  // namespace

std::span<const std::unique_ptr<Reader>> readers() {
  static const std::array kAll = {
#define RACKRAIL_REGISTER(format) make_##format##_reader(),
#include "topology/readers/formats.def"
#undef RACKRAIL_REGISTER
  };
  return kAll;
}

ReadResult read_cluster(const std::string& name_or_path, const ReadOptions& options) {
  const std::filesystem::path path = cluster_path(name_or_path);
  return read_cluster_text(path, read_file(path), options);
}

ReadResult read_cluster_text(const std::filesystem::path& path, std::string content,
                             const ReadOptions& options) {
  if (content.starts_with("\xef\xbb\xbf")) content.erase(0, 3);  // a byte order mark
  if (trimmed(content).empty()) {
    throw ConfigError(ErrorContext{path.string(), "", "an empty file", "a cluster"});
  }
  require_utf8(content, path.string());
  const Reader& reader = reader_for(path, content, options);
  try {
    ReadResult result = reader.read(path, content, options);
    if (result.topology.rank_count() == 0) {
      throw ConfigError(ErrorContext{"", "", "no rank", "at least one GPU or host"});
    }
    result.topology.require_connected();
    set_tier_bandwidths(result.topology, options);
    if (std::optional<std::string> note = note_of_cables(result.topology)) {
      result.notes.push_back(*std::move(note));
    }
    return result;
  } catch (const ConfigError& e) {
    // What the topology itself found wrong does not know the file.
    if (!e.context().file.empty() || e.context().found.empty()) throw;
    throw ConfigError(
        ErrorContext{path.string(), e.context().where, e.context().found, e.context().expected});
  } catch (const OverflowError& e) {
    throw ConfigError(ErrorContext{path.string(), "", e.what(), "quantities that can be added up"});
  }
}

void refuse_overlay(const std::filesystem::path& path, const ReadOptions& options) {
  if (options.overlay) {
    throw ConfigError(ErrorContext{path.string(), "",
                                   fmt::format("an overlay ({})", options.overlay->string()),
                                   "none: this kind of file says everything itself"});
  }
}

}  // namespace rackrail::topology
