#pragma once

// Small clusters that the tests of topology/ share.

#include <filesystem>
#include <string>

#include "base/error.hpp"
#include "topology/reader.hpp"
#include "topology/topology.hpp"

namespace rackrail::topology::test {

NodeId add_switch(Topology& topology, const std::string& name, NodeKind kind = NodeKind::kSwitch);
/// A GPU vertex that is the next rank.
NodeId add_gpu(Topology& topology, const std::string& name, const std::string& host = "",
               const std::string& rack = "");
/// Both directions.
LinkId join(Topology& topology, NodeId a, NodeId b, Bandwidth bandwidth,
            Duration latency = Duration(1'000'000));
LinkId join_one_way(Topology& topology, NodeId a, NodeId b, Bandwidth bandwidth,
                    Duration latency = Duration(1'000'000));

/// GPUs with links of these rates to one switch.
Topology star(const std::vector<Bandwidth>& rates);
/// width × height GPUs, each joined to its neighbours; with `wraps`, a torus.
Topology grid(int width, int height, bool wraps, Bandwidth rate);
Topology ring(int count, Bandwidth rate);
/// Boxes of 8 GPUs on an NVSwitch (300 each way), 25 per GPU to one of two spines; unit in B/s.
Topology boxes(int count, std::int64_t unit);

/// A file with this content below a temporary folder, gone with the owner.
class TextFile {
 public:
  TextFile(const std::string& name, const std::string& content);
  ~TextFile();
  TextFile(const TextFile&) = delete;
  TextFile& operator=(const TextFile&) = delete;
  TextFile(TextFile&&) = delete;
  TextFile& operator=(TextFile&&) = delete;
  std::string path() const { return (folder_ / name_).string(); }

 private:
  std::filesystem::path folder_;
  std::string name_;
};

/// Where the real files of others are: $RACKRAIL_SHARED, else beside the source tree. They may be
/// absent.
std::filesystem::path shared_inputs();

/// Of all links from one vertex to the other together.
Bandwidth rate_between(const Topology& topology, const std::string& from, const std::string& to);

/// Whether a note has this text in it.
bool has_note(const ReadResult& result, const std::string& text);

/// The message of the ConfigError that `read` throws; "(none)" when it throws none.
template <typename Read>
std::string error_of(Read read) {
  try {
    read();
  } catch (const ConfigError& e) {
    return e.what();
  }
  return "(none)";
}

}  // namespace rackrail::topology::test
