// The text files of the network simulator ns-3 as HPCC and SimAI use it:
//
//   376 56 480                          nodes, switches, links
//   320 321 322 ...                     numbers of the switches; all others are hosts
//   0 320 100Gbps 1000ns 0.000000       source, target, rate, delay, error rate
//
// SimAI's first line is: nodes, GPUs per server, NVSwitches, switches, links, kind of GPU. The
// NVSwitches come first in the second line, or have a line of their own.
#include <fmt/format.h>

#include <charconv>
#include <map>
#include <optional>

#include "base/error.hpp"
#include "base/parse_units.hpp"
#include "base/text.hpp"
#include "topology/racks.hpp"
#include "topology/readers/fabric.hpp"
#include "topology/readers/formats.hpp"
#include "topology/readers/network_file.hpp"

namespace rackrail::topology {
namespace {

std::vector<std::string_view> words_of(std::string_view line) {
  std::vector<std::string_view> words;
  while (!(line = trimmed(line)).empty()) {
    const std::string_view word = line.substr(0, line.find_first_of(" \t"));
    words.push_back(word);
    line.remove_prefix(word.size());
  }
  return words;
}

std::optional<std::size_t> number_of(std::string_view word) {
  std::uint32_t value = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  if (error != std::errc() || end != word.data() + word.size()) return std::nullopt;
  return value;
}

/// The next line with words; the rest stays in `content`.
std::string_view next_line(std::string_view& content, std::size_t& number) {
  while (!content.empty()) {
    const std::size_t end = content.find('\n');
    const std::string_view line = trimmed(content.substr(0, end));
    content.remove_prefix(end == content.npos ? content.size() : end + 1);
    ++number;
    if (!line.empty() && line.front() != '#') return line;
  }
  return {};
}

bool is_header(std::string_view line) {
  const std::vector<std::string_view> words = words_of(line);
  if (words.size() != 3 && (words.size() < 6 || words.size() > 7)) return false;
  for (std::size_t i = 0; i < std::min<std::size_t>(words.size(), 5); ++i) {
    if (!number_of(words[i])) return false;
  }
  return true;
}

struct NumberedLink {
  std::size_t from = 0;
  std::size_t to = 0;
  Bandwidth rate;
  Duration delay;
};

class NumberedParser {
 public:
  NumberedParser(std::string file, std::string name)
      : file_(std::move(file)), topology_(std::move(name)) {}

  ReadResult read(std::string_view content) {
    read_header(next_line(content, line_));
    read_switches(content);
    while (true) {
      const std::string_view line = next_line(content, line_);
      if (line.empty() || !read_link(line)) break;
    }
    if (links_.size() != link_count_) {
      result_.notes.push_back(
          fmt::format("{} links read, while the first line counts {}", links_.size(), link_count_));
    }
    build();
    result_.topology = std::move(topology_);
    return std::move(result_);
  }

 private:
  [[noreturn]] void fail(std::string_view found, const std::string& expected) const {
    throw ConfigError(
        ErrorContext{file_, fmt::format("line {}", line_), fmt::format("'{}'", found), expected});
  }

  void read_header(std::string_view line) {
    if (!is_header(line)) {
      fail(line,
           "'nodes switches links', or SimAI's 'nodes GPUs-per-server NVSwitches switches "
           "links GPU'");
    }
    const std::vector<std::string_view> words = words_of(line);
    nodes_ = *number_of(words[0]);
    has_gpus_ = words.size() > 3;
    gpus_per_server_ = has_gpus_ ? *number_of(words[1]) : 1;
    nvswitches_ = has_gpus_ ? *number_of(words[2]) : 0;
    switches_ = *number_of(words[has_gpus_ ? 3 : 1]);
    link_count_ = *number_of(words[has_gpus_ ? 4 : 2]);
    if (has_gpus_) device_class_ = words[5];
    if (nodes_ > 1'000'000 || nvswitches_ + switches_ >= nodes_ || gpus_per_server_ == 0) {
      fail(line, "1 to 1000000 nodes, fewer switches than these, and servers with GPUs");
    }
    kinds_.resize(nodes_, has_gpus_ ? NodeKind::kGpu : NodeKind::kHost);
  }

  void read_switches(std::string_view& content) {
    for (std::size_t left = nvswitches_ + switches_; left > 0;) {
      const std::string_view line = next_line(content, line_);
      for (const std::string_view word : words_of(line)) {
        const std::optional<std::size_t> node = number_of(word);
        if (!node || *node >= nodes_ || left == 0 || is_switch(*node)) {
          fail(word, fmt::format("numbers of {} switches, each below {} and once",
                                 nvswitches_ + switches_, nodes_));
        }
        kinds_[*node] = left > switches_ ? NodeKind::kNvSwitch : NodeKind::kSwitch;
        --left;
      }
      if (line.empty()) fail("the end", fmt::format("{} more switches", left));
    }
  }

  /// False for prose that follows the links.
  bool read_link(std::string_view line) {
    const std::vector<std::string_view> words = words_of(line);
    if (!number_of(words.front())) return false;
    const std::optional<std::size_t> to = words.size() > 3 ? number_of(words[1]) : std::nullopt;
    if (!to && links_.size() >= link_count_) return false;
    if (!to) fail(line, "'source target rate delay error-rate'");
    NumberedLink link{*number_of(words[0]), *to, {}, {}};
    if (link.from >= nodes_ || link.to >= nodes_ || link.from == link.to) {
      fail(line, fmt::format("two nodes below {}", nodes_));
    }
    try {
      link.rate = parse_bandwidth(words[2]);
      link.delay = parse_duration(words[3]);
    } catch (const ConfigError& e) {
      throw ConfigError(ErrorContext{file_, fmt::format("line {}", line_), e.context().found,
                                     e.context().expected});
    }
    links_.push_back(link);
    return true;
  }

  bool is_switch(std::size_t node) const {
    return kinds_[node] == NodeKind::kSwitch || kinds_[node] == NodeKind::kNvSwitch;
  }

  std::string server_of(std::size_t gpu) const {
    return fmt::format("host{}", gpu / gpus_per_server_);
  }

  /// Levels of switches, told by the hosts and NVSwitches that hang on them.
  std::vector<int> levels() const {
    NetworkFile network;
    network.hosts.resize(nodes_);
    network.switches.resize(nodes_);
    for (const NumberedLink& link : links_) {
      const bool from_switch = kinds_[link.from] == NodeKind::kSwitch;
      const bool to_switch = kinds_[link.to] == NodeKind::kSwitch;
      if (from_switch && to_switch) {
        network.switch_cables.push_back({link.from, link.to, 1, {}, {}});
      } else if (from_switch || to_switch) {
        network.host_cables.push_back(
            {from_switch ? link.to : link.from, from_switch ? link.from : link.to, "", {}, {}});
      }
    }
    set_levels_by_distance(network);
    std::vector<int> levels;
    for (const NetworkSwitch& one : network.switches) levels.push_back(one.level);
    return levels;
  }

  void build() {
    require_buildable(static_cast<std::int64_t>(nodes_ + 2 * links_.size()));
    const std::vector<int> level = levels();
    std::map<std::size_t, std::string> host_of_nvswitch;
    for (const NumberedLink& link : links_) {
      if (kinds_[link.to] == NodeKind::kNvSwitch && !is_switch(link.from)) {
        host_of_nvswitch[link.to] = server_of(link.from);
      } else if (kinds_[link.from] == NodeKind::kNvSwitch && !is_switch(link.to)) {
        host_of_nvswitch[link.from] = server_of(link.to);
      }
    }
    for (std::size_t n = 0; n < nodes_; ++n) {
      const NodeId id = topology_.add_node(vertex(n, level[n], host_of_nvswitch));
      if (!is_switch(n)) topology_.add_rank(id);
    }
    for (const NumberedLink& link : links_) add(link, level);
    name_racks(topology_);
  }

  Node vertex(std::size_t n, int level,
              const std::map<std::size_t, std::string>& host_of_nvswitch) const {
    Node node;
    node.kind = kinds_[n];
    if (node.kind == NodeKind::kSwitch) {
      node.name = fmt::format("switch{}", n);
      node.kind = level == 0 ? NodeKind::kTor : level == 1 ? NodeKind::kSpine : NodeKind::kCore;
    } else if (node.kind == NodeKind::kNvSwitch) {
      node.name = fmt::format("nvswitch{}", n);
      const auto host = host_of_nvswitch.find(n);
      if (host != host_of_nvswitch.end()) node.host = host->second;
    } else {
      node.name = fmt::format("{}{}", has_gpus_ ? "gpu" : "host", n);
      node.host = has_gpus_ ? server_of(n) : node.name;
      node.device_class = device_class_;
    }
    return node;
  }

  void add(const NumberedLink& one, const std::vector<int>& level) {
    Link link;
    link.from = NodeId(one.from);
    link.to = NodeId(one.to);
    link.bandwidth = one.rate;
    link.latency = one.delay;
    const bool has_nvswitch =
        kinds_[one.from] == NodeKind::kNvSwitch || kinds_[one.to] == NodeKind::kNvSwitch;
    const bool is_uplink = is_switch(one.from) && is_switch(one.to);
    if (has_nvswitch) {
      link.kind = LinkKind::kNvlink;
    } else {
      link.kind = is_uplink ? LinkKind::kUplink : LinkKind::kHostLink;
    }
    link.tier = has_nvswitch
                    ? "nvlink"
                    : tier_name(is_uplink ? uplink_tier(level[one.from], level[one.to]) : 0);
    topology_.add_duplex_link(std::move(link));
  }

  std::string file_;
  Topology topology_;
  std::size_t line_ = 0;
  std::size_t nodes_ = 0;
  std::size_t gpus_per_server_ = 1;
  std::size_t nvswitches_ = 0;
  std::size_t switches_ = 0;
  std::size_t link_count_ = 0;
  bool has_gpus_ = false;
  std::string device_class_;
  std::vector<NodeKind> kinds_;
  std::vector<NumberedLink> links_;
  ReadResult result_;
};

class NumberedLinksReader : public Reader {
 public:
  std::string_view format() const override { return "hpcc"; }

  bool accepts(const std::filesystem::path&, std::string_view content) const override {
    std::size_t line = 0;
    return is_header(next_line(content, line));
  }

  ReadResult read(const std::filesystem::path& path, std::string_view content,
                  const ReadOptions& options) const override {
    refuse_overlay(path, options);
    ReadResult result = NumberedParser(path.string(), path.stem().string()).read(content);
    result.inputs.push_back(path);
    return result;
  }
};

}  // namespace

std::unique_ptr<Reader> make_numbered_links_reader() {
  return std::make_unique<NumberedLinksReader>();
}

}  // namespace rackrail::topology
