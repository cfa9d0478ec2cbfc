// Readers: files that describe clusters → Topology. One reader per format, one registration each.
//
// To add a format: write topology/readers/<format>.cpp with a class derived from Reader and its
// factory make_<format>_reader(), add the line RACKRAIL_REGISTER(<format>) to
// topology/readers/formats.def, and put a test beside the others in tests/unit/topology/. Nothing
// else changes.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "topology/topology.hpp"

namespace rackrail::topology {

/// What a file lacks and the user says instead (see docs/reference/cluster-file.md): how many
/// machines of this kind there are, the network around them, the GPUs' class, link rates.
struct ReadOptions {
  std::optional<std::string> format;             ///< name of a reader; by content if none
  std::optional<std::filesystem::path> overlay;  ///< YAML file
  /// Of the GPUs, whatever the file says; rates of their links may follow from it. Empty: unknown.
  std::string device_class;
  /// By name of a tier: the bandwidth of each of its links, in place of what the file says. Formats
  /// without rates take theirs from here.
  std::map<std::string, Bandwidth, std::less<>> tier_bandwidths;
};

struct ReadResult {
  Topology topology;
  std::vector<std::string> notes;  ///< what was assumed, guessed or looks amiss, one sentence each
  std::vector<std::filesystem::path> inputs;  ///< every file that was read (for digests)
};

class Reader {
 public:
  virtual ~Reader() = default;
  Reader() = default;
  Reader(const Reader&) = delete;
  Reader& operator=(const Reader&) = delete;
  /// Name for --format: "yaml", "nccl-xml", "edge-list".
  virtual std::string_view format() const = 0;
  /// Whether the content looks like this format; `path` helps where content cannot tell.
  virtual bool accepts(const std::filesystem::path& path, std::string_view content) const = 0;
  /// Throws ConfigError (file, place, found, expected).
  virtual ReadResult read(const std::filesystem::path& path, std::string_view content,
                          const ReadOptions& options) const = 0;
};

/// All readers, in the order in which `accepts` is asked.
std::span<const std::unique_ptr<Reader>> readers();

/// Reads `name_or_path`: an existing file, or the name of a shipped cluster (configs/clusters).
/// The result is connected, and its tiers have the bandwidths that the options name. Throws
/// ConfigError.
ReadResult read_cluster(const std::string& name_or_path, const ReadOptions& options = {});

/// The same for content that is no file (or not yet): `path` is for messages, and for formats that
/// content cannot tell.
ReadResult read_cluster_text(const std::filesystem::path& path, std::string content,
                             const ReadOptions& options = {});

/// Folder of the shipped configurations: $RACKRAIL_CONFIGS, else beside the executable's install
/// prefix, else the source tree. Throws ConfigError when none exists.
std::filesystem::path configs_folder();

/// Names of the shipped clusters.
std::vector<std::string> shipped_clusters();

/// The flat form that every topology can be written to and read from: YAML with `nodes` and
/// `links`, or the edge-list CSV (`source,target,bandwidth,latency,kind`).
std::string to_flat_yaml(const Topology& topology);
std::string to_edge_list(const Topology& topology);
/// For Graphviz: a box per host, a line per cable with its rate; an arrow where directions differ.
std::string to_graphviz(const Topology& topology);

}  // namespace rackrail::topology
