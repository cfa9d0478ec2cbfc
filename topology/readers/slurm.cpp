// Slurm's topology.conf and topology.yaml → the network between hosts.
#include "topology/readers/slurm.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>

#include "base/error.hpp"
#include "base/text.hpp"
#include "topology/readers/formats.hpp"

namespace rackrail::topology {
namespace {

/// The network of switches, checked to be one tree.
class TreeReader {
 public:
  TreeReader(std::string file, SlurmTopology& topology)
      : file_(std::move(file)), switches_(topology.switches) {
    network_.notes = std::move(topology.notes);
    if (!topology.blocks.empty()) {
      network_.notes.emplace_back("blocks are not used beside switches");
    }
  }

  NetworkFile read() {
    for (std::size_t s = 0; s < switches_.size(); ++s) add_switch(s);
    for (std::size_t s = 0; s < switches_.size(); ++s) {
      add_hosts(s);
      add_children(s);
    }
    set_levels();
    require_one_root();
    note_empty_switches();
    for (std::size_t s = 0; s < switches_.size(); ++s) network_.switches[s].level = levels_[s];
    return std::move(network_);
  }

 private:
  [[noreturn]] void fail(std::size_t s, const std::string& found,
                         const std::string& expected) const {
    throw ConfigError(ErrorContext{file_, switches_[s].where, found, expected});
  }

  void add_switch(std::size_t s) {
    const SlurmSwitch& one = switches_[s];
    const auto [place, is_new] = number_of_.emplace(one.name, s);
    if (!is_new) {
      fail(s, fmt::format("switch '{}' again, after {}", one.name, switches_[place->second].where),
           "each switch once");
    }
    if (!one.children.empty() && !one.hosts.empty()) {
      fail(s, fmt::format("switch '{}' with switches and nodes", one.name),
           "one of the two: Slurm takes no other");
    }
    network_.switches.push_back({one.name, 0, false});
  }

  void add_hosts(std::size_t s) {
    for (const std::string& name : switches_[s].hosts) {
      const auto [place, is_new] = leaf_of_.emplace(name, s);
      if (!is_new) {
        fail(s,
             fmt::format("host '{}' below '{}', and below '{}' ({})", name, switches_[s].name,
                         switches_[place->second].name, switches_[place->second].where),
             "each host below one switch");
      }
      network_.host_cables.push_back({network_.hosts.size(), s, "", {}, {}});
      network_.hosts.push_back({name, "", {}});
    }
  }

  void add_children(std::size_t s) {
    for (const std::string& name : switches_[s].children) {
      const auto child = number_of_.find(name);
      if (child == number_of_.end()) {
        fail(s, fmt::format("'{}' among the switches of '{}'", name, switches_[s].name),
             "switches that the file defines");
      }
      const auto [place, is_new] = parent_of_.emplace(child->second, s);
      if (!is_new) {
        fail(s,
             fmt::format("switch '{}' below '{}', and below '{}' ({})", name, switches_[s].name,
                         switches_[place->second].name, switches_[place->second].where),
             "each switch below one other: Slurm takes trees only");
      }
      network_.switch_cables.push_back({child->second, s, 1, {}, {}});
    }
  }

  /// From the leaves upward, as high as the longest way from a leaf. What is never reached is
  /// below itself.
  void set_levels() {
    std::vector<std::size_t> waiting(switches_.size());
    std::vector<std::size_t> ready;
    levels_.resize(switches_.size());
    for (std::size_t s = 0; s < switches_.size(); ++s) {
      waiting[s] = switches_[s].children.size();
      if (waiting[s] == 0) ready.push_back(s);
    }
    std::size_t done = 0;
    for (; done < ready.size(); ++done) {
      const std::size_t s = ready[done];
      const auto parent = parent_of_.find(s);
      if (parent == parent_of_.end()) continue;
      levels_[parent->second] = std::max(levels_[parent->second], levels_[s] + 1);
      if (--waiting[parent->second] == 0) ready.push_back(parent->second);
    }
    if (done == switches_.size()) return;
    for (std::size_t s = 0; s < switches_.size(); ++s) {
      if (waiting[s] > 0)
        fail(s, fmt::format("switch '{}' below itself", switches_[s].name), "a tree");
    }
  }

  void require_one_root() const {
    std::vector<std::string> roots;
    for (std::size_t s = 0; s < switches_.size(); ++s) {
      const bool is_empty = switches_[s].children.empty() && switches_[s].hosts.empty();
      if (!parent_of_.contains(s) && !is_empty) roots.push_back(switches_[s].name);
    }
    if (roots.size() < 2) return;
    throw ConfigError(ErrorContext{
        file_, "",
        fmt::format("{} trees without a switch that joins them: {}", roots.size(), listed(roots)),
        fmt::format("one tree: add 'SwitchName=root Switches={0}' (in YAML 'switch: root' with "
                    "'children: {0}'), or keep the lines of one",
                    fmt::join(roots, ","))});
  }

  void note_empty_switches() {
    std::vector<std::string> names;
    for (const SlurmSwitch& one : switches_) {
      if (one.children.empty() && one.hosts.empty()) names.push_back("'" + one.name + "'");
    }
    if (names.empty()) return;
    network_.notes.push_back(fmt::format(
        "{} without hosts: {}", names.size() == 1 ? "a switch" : "switches", listed(names)));
  }

  std::string file_;
  const std::vector<SlurmSwitch>& switches_;
  std::map<std::string, std::size_t, std::less<>> number_of_;
  std::map<std::string, std::size_t, std::less<>> leaf_of_;
  std::map<std::size_t, std::size_t> parent_of_;
  std::vector<int> levels_;
  NetworkFile network_;
};

NetworkFile network_of_blocks(const std::string& file, SlurmTopology& topology) {
  std::vector<HostGroup> groups;
  std::map<std::string, const SlurmBlock*, std::less<>> block_of;
  for (const SlurmBlock& block : topology.blocks) {
    for (const std::string& host : block.hosts) {
      const auto [place, is_new] = block_of.emplace(host, &block);
      if (!is_new) {
        throw ConfigError(
            ErrorContext{file, block.where,
                         fmt::format("host '{}' in block '{}', and in '{}' ({})", host, block.name,
                                     place->second->name, place->second->where),
                         "each host in one block"});
      }
    }
    groups.push_back({block.name, block.hosts});
  }
  NetworkFile network = network_of_groups(groups);
  network.notes = std::move(topology.notes);
  network.notes.push_back(fmt::format("{} read as one switch each{}: the file names no switches",
                                      counted(std::ssize(groups), "block"),
                                      groups.size() > 1 ? ", all below one switch 'network'" : ""));
  return network;
}

class SlurmReader : public Reader {
 public:
  std::string_view format() const override { return "slurm"; }

  bool accepts(const std::filesystem::path&, std::string_view content) const override {
    const std::string_view line = first_line(content);
    const std::string_view key = trimmed(line.substr(0, line.find('=')));
    constexpr std::array<std::string_view, 4> kKeys{"SwitchName", "BlockName", "BlockSizes",
                                                    "RingName"};
    return is_yaml(content) ||
           (key.size() < line.size() && std::ranges::any_of(kKeys, [key](std::string_view one) {
              return is_same_in_any_case(one, key);
            }));
  }

  ReadResult read(const std::filesystem::path& path, std::string_view content,
                  const ReadOptions& options) const override {
    const std::string file = path.string();
    SlurmTopology topology = is_yaml(content) ? parse_slurm_yaml(file, std::string(content))
                                              : parse_slurm_conf(file, content);
    return build_network(path, network_of(file, std::move(topology)), options);
  }

 private:
  static bool is_yaml(std::string_view content) {
    const std::string_view line = first_line(content);
    return line.starts_with("-") && trimmed(line.substr(1)).starts_with("topology:");
  }

  /// But for comments and what begins a YAML document.
  static std::string_view first_line(std::string_view content) {
    while (!content.empty()) {
      const std::size_t end = content.find('\n');
      const std::string_view line = trimmed(content.substr(0, end));
      if (!line.empty() && line.front() != '#' && line != "---") return line;
      content.remove_prefix(end == content.npos ? content.size() : end + 1);
    }
    return {};
  }
};

}  // namespace

NetworkFile network_of(const std::string& file, SlurmTopology topology) {
  if (topology.switches.empty() && topology.blocks.empty()) {
    throw ConfigError(ErrorContext{file, "", "no switch and no block", "hosts below switches"});
  }
  return topology.switches.empty() ? network_of_blocks(file, topology)
                                   : TreeReader(file, topology).read();
}

std::unique_ptr<Reader> make_slurm_reader() { return std::make_unique<SlurmReader>(); }

}  // namespace rackrail::topology
