// A reader as somebody would add one: "pairs" on the first line, then two hosts on each, joined by
// a cable of 10 Gbit/s.
#include <map>
#include <sstream>

#include "base/error.hpp"
#include "topology/readers/formats.hpp"

namespace rackrail::topology {
namespace {

class PairsReader final : public Reader {
 public:
  std::string_view format() const override { return "pairs"; }

  bool accepts(const std::filesystem::path& path, std::string_view content) const override {
    (void)path;
    return content.starts_with("pairs\n");
  }

  ReadResult read(const std::filesystem::path& path, std::string_view content,
                  const ReadOptions& options) const override {
    refuse_overlay(path, options);
    ReadResult result{.topology = Topology("pairs"), .notes = {}, .inputs = {path}};
    std::map<std::string, NodeId> hosts;
    const auto host = [&](const std::string& name) {
      const auto [place, is_new] = hosts.try_emplace(name);
      if (is_new) {
        place->second = result.topology.add_node({.name = name, .kind = NodeKind::kHost});
        result.topology.add_rank(place->second);
      }
      return place->second;
    };
    std::istringstream words{std::string(content.substr(content.find('\n')))};
    for (std::string one, other; words >> one;) {
      if (!(words >> other)) {
        throw ConfigError(ErrorContext{path.string(), "", one + " alone", "two hosts"});
      }
      result.topology.add_duplex_link(
          {.from = host(one), .to = host(other), .bandwidth = 10_Gbps, .latency = 5_us});
    }
    return result;
  }
};

}  // namespace

std::unique_ptr<Reader> make_pairs_reader() { return std::make_unique<PairsReader>(); }

}  // namespace rackrail::topology
