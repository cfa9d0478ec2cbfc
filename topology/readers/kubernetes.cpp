// `kubectl get nodes -o json` → the network between nodes, by the labels of NVIDIA topograph, of
// clouds, and of the GPU operator.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <span>

#include "base/error.hpp"
#include "base/text.hpp"
#include "topology/readers/formats.hpp"
#include "topology/readers/network_file.hpp"

namespace rackrail::topology {
namespace {

using NodeLabels = std::map<std::string, std::string>;

struct KubernetesNode {
  std::string name;
  NodeLabels labels;
  std::int64_t gpus = 0;
};

/// NodeLabels that say where a node hangs, from the closest switch outward. A name that ends in N
/// stands for all with a number there: counted from the closest, or towards it.
struct LabelFamily {
  std::string_view writer;
  std::span<const std::string_view> keys;
  bool counts_inward = false;
};

constexpr std::array<std::string_view, 1> kTopograph{"fabric.topograph.run/tier-N"};
constexpr std::array<std::string_view, 1> kTopographTiers{"network.topology.nvidia.com/tier-N"};
constexpr std::array<std::string_view, 5> kTopographNames{
    "network.topology.nvidia.com/leaf", "network.topology.nvidia.com/block",
    "network.topology.nvidia.com/spine", "network.topology.nvidia.com/core",
    "network.topology.nvidia.com/datacenter"};
constexpr std::array<std::string_view, 1> kAws{"topology.k8s.aws/network-node-layer-N"};
constexpr std::array<std::string_view, 2> kGoogle{"cloud.google.com/gce-topology-subblock",
                                                  "cloud.google.com/gce-topology-block"};
constexpr std::array<std::string_view, 2> kOracle{"oci.oraclecloud.com/host.rack_id",
                                                  "oci.oraclecloud.com/host.network_block_id"};
constexpr std::array<LabelFamily, 6> kFamilies{{{"topograph", kTopograph},
                                                {"topograph", kTopographTiers},
                                                {"topograph", kTopographNames},
                                                {"AWS", kAws, true},
                                                {"Google Cloud", kGoogle},
                                                {"Oracle Cloud", kOracle}}};

/// NodeLabels that name the NVLink domain of a node.
constexpr std::array<std::string_view, 4> kNvlinkDomains{
    "accelerator.topograph.run/domain", "xclr.topology.nvidia.com/domain",
    "network.topology.nvidia.com/accelerator", "nvidia.com/gpu.clique"};

/// Values of a family's labels at a node, from the closest switch outward.
std::vector<std::string> places_of(const NodeLabels& labels, const LabelFamily& family) {
  std::vector<std::string> places;
  for (const std::string_view key : family.keys) {
    if (!key.ends_with('N')) {
      const auto label = labels.find(std::string(key));
      if (label != labels.end() && !label->second.empty()) places.push_back(label->second);
      continue;
    }
    const std::string prefix(key.substr(0, key.size() - 1));
    std::map<int, std::string> numbered;
    for (auto label = labels.lower_bound(prefix);
         label != labels.end() && label->first.starts_with(prefix); ++label) {
      const char* const begin = label->first.data() + prefix.size();
      const char* const end = label->first.data() + label->first.size();
      int tier = 0;
      const auto [last, error] = std::from_chars(begin, end, tier);
      if (error == std::errc() && last == end && tier >= 0 && !label->second.empty()) {
        numbered[family.counts_inward ? -tier : tier] = label->second;
      }
    }
    for (const auto& [tier, value] : numbered) places.push_back(value);
  }
  return places;
}

bool is_capital(char c) { return c >= 'A' && c <= 'Z'; }

/// "NVIDIA-H100-80GB-HBM3" is H100: the first part of letters and digits that begins with letters.
/// All of it where there is none, as of "NVIDIA-RTX-PRO-6000".
std::string device_class_of(const std::string& label) {
  std::string_view product = label;
  while (!product.empty()) {
    const std::size_t end = std::min(product.find_first_of("-_ "), product.size());
    const std::string_view part = product.substr(0, end);
    const std::size_t digit = part.find_first_of("0123456789");
    const bool begins_with_letters =
        digit != part.npos && digit > 0 && std::ranges::all_of(part.substr(0, digit), is_capital) &&
        std::ranges::all_of(part, [](char c) { return is_capital(c) || (c >= '0' && c <= '9'); });
    if (begins_with_letters) return std::string(part);
    product.remove_prefix(std::min(end + 1, product.size()));
  }
  return label;
}

std::int64_t gpus_in(const nlohmann::json& resources) {
  std::int64_t gpus = 0;
  if (!resources.is_object()) return gpus;
  for (const char* key : {"nvidia.com/gpu", "amd.com/gpu"}) {
    const auto value = resources.find(key);
    if (value == resources.end()) continue;
    if (value->is_number_integer()) gpus = std::max(gpus, value->get<std::int64_t>());
    if (!value->is_string()) continue;
    const std::string text = value->get<std::string>();
    std::int64_t count = 0;
    if (std::from_chars(text.data(), text.data() + text.size(), count).ec == std::errc()) {
      gpus = std::max(gpus, count);
    }
  }
  return gpus;
}

class NodesParser {
 public:
  explicit NodesParser(std::string file) : file_(std::move(file)) {}

  /// A List, one Node, or Nodes one after the other.
  std::vector<KubernetesNode> parse(std::string_view content) {
    const char* at = content.data();
    const char* const end = at + content.size();
    while (!trimmed(std::string_view(at, static_cast<std::size_t>(end - at))).empty()) {
      read_value(next_value(at, end));
    }
    return std::move(nodes_);
  }

 private:
  [[noreturn]] void fail(const std::string& where, const std::string& found,
                         const std::string& expected) const {
    throw ConfigError(ErrorContext{file_, where, found, expected});
  }

  /// Without the parts of nodes that are long and say nothing here.
  nlohmann::json next_value(const char*& at, const char* end) const {
    const char* const stop = end_of_value(at, end);
    const auto keep = [](int, nlohmann::json::parse_event_t event, nlohmann::json& value) {
      constexpr std::array<std::string_view, 5> kLong{"managedFields", "images", "conditions",
                                                      "annotations", "volumesAttached"};
      return event != nlohmann::json::parse_event_t::key ||
             std::ranges::count(kLong, value.get_ref<const std::string&>()) == 0;
    };
    try {
      nlohmann::json value = nlohmann::json::parse(at, stop, keep);
      at = stop;
      return value;
    } catch (const nlohmann::json::exception&) {
      fail("", "no JSON, or a part of it", "the output of 'kubectl get nodes -o json'");
    }
  }

  /// Behind the brace that closes the first one.
  static const char* end_of_value(const char* at, const char* end) {
    int depth = 0;
    bool is_text = false;
    for (; at != end; ++at) {
      if (is_text) {
        if (*at == '\\' && at + 1 != end) {
          ++at;
        } else if (*at == '"') {
          is_text = false;
        }
      } else if (*at == '"') {
        is_text = true;
      } else if (*at == '{' || *at == '[') {
        ++depth;
      } else if ((*at == '}' || *at == ']') && --depth <= 0) {
        return at + 1;
      }
    }
    return end;
  }

  static std::string text_at(const nlohmann::json& object, const char* key) {
    const auto value = object.is_object() ? object.find(key) : object.end();
    return value != object.end() && value->is_string() ? value->get<std::string>() : "";
  }

  void read_value(const nlohmann::json& value) {
    const std::string kind = text_at(value, "kind");
    const auto items = value.is_object() ? value.find("items") : value.end();
    if (kind.ends_with("List") && items != value.end() && items->is_array()) {
      for (const nlohmann::json& item : *items) read_node(item, kind);
      if (items->empty()) fail("items", "an empty list", "nodes");
      return;
    }
    read_node(value, kind);
  }

  void read_node(const nlohmann::json& node, const std::string& outer) {
    const std::string where = fmt::format("node {}", nodes_.size());
    std::string kind = text_at(node, "kind");
    if (kind.empty() && outer == "NodeList") kind = "Node";
    if (kind != "Node") {
      fail(where, kind.empty() ? "no 'kind'" : fmt::format("kind '{}'", kind),
           "kind 'Node', as 'kubectl get nodes -o json' prints");
    }
    const auto metadata = node.find("metadata");
    KubernetesNode one;
    if (metadata != node.end()) one.name = text_at(*metadata, "name");
    if (one.name.empty()) fail(where, "no 'metadata.name'", "the name of the node");
    const auto labels = metadata->find("labels");
    if (labels != metadata->end() && labels->is_object()) {
      for (const auto& [key, label] : labels->items()) {
        if (label.is_string()) one.labels[key] = label.get<std::string>();
      }
    }
    const auto status = node.find("status");
    if (status != node.end() && status->is_object()) {
      for (const char* key : {"allocatable", "capacity"}) {
        const auto resources = status->find(key);
        if (resources != status->end() && one.gpus == 0) one.gpus = gpus_in(*resources);
      }
    }
    nodes_.push_back(std::move(one));
  }

  std::string file_;
  std::vector<KubernetesNode> nodes_;
};

std::string name_of_level(std::size_t level) {
  return level == 0 ? "leaf" : level == 1 ? "spine" : fmt::format("tier{}", level);
}

class NodesReader {
 public:
  NodesReader(std::string file, std::vector<KubernetesNode> nodes)
      : file_(std::move(file)), nodes_(std::move(nodes)) {}

  NetworkFile read() {
    leave_out_nodes_without_gpus();
    const LabelFamily* family = best_family();
    if (family != nullptr) {
      for (const KubernetesNode& node : nodes_) add_node(node, places_of(node.labels, *family));
      note(fmt::format("switches by labels of {} ({})", family->writer, family->keys.front()));
    } else {
      for (const KubernetesNode& node : nodes_) add_node(node, nvlink_domain(node));
      if (network_.hosts.empty()) refuse();
      note("one switch for each NVLink domain: no label names the switches");
    }
    join_tops();
    if (!unlabelled_.empty()) {
      note(fmt::format("{} without such labels left out: {}",
                       counted(std::ssize(unlabelled_), "node"), listed(unlabelled_)));
    }
    note_nvlink_domains();
    return std::move(network_);
  }

 private:
  void note(std::string text) { network_.notes.push_back(std::move(text)); }

  /// Where any node has GPUs.
  void leave_out_nodes_without_gpus() {
    const auto without = std::ranges::count(nodes_, std::int64_t{0}, &KubernetesNode::gpus);
    if (without == 0) return;
    if (without == std::ssize(nodes_)) {
      note("no node has GPUs: each is taken as a host");
      return;
    }
    std::erase_if(nodes_, [](const KubernetesNode& node) { return node.gpus == 0; });
    note(fmt::format("{} without GPUs left out", counted(without, "node")));
  }

  /// The labels that most nodes have; null where none has any.
  const LabelFamily* best_family() const {
    const LabelFamily* best = nullptr;
    std::int64_t most = 0;
    for (const LabelFamily& family : kFamilies) {
      const std::int64_t nodes = std::ranges::count_if(nodes_, [&](const KubernetesNode& node) {
        return !places_of(node.labels, family).empty();
      });
      if (nodes > most) {
        best = &family;
        most = nodes;
      }
    }
    return best;
  }

  static std::vector<std::string> nvlink_domain(const KubernetesNode& node) {
    for (const std::string_view key : kNvlinkDomains) {
      const auto label = node.labels.find(std::string(key));
      if (label != node.labels.end() && !label->second.empty()) return {label->second};
    }
    return {};
  }

  [[noreturn]] void refuse() const {
    throw ConfigError(ErrorContext{
        file_, "", "no node with a label of its place in the network",
        "labels as topograph writes them (fabric.topograph.run/tier-0 …), of a cloud, or "
        "nvidia.com/gpu.clique"});
  }

  void add_node(const KubernetesNode& node, const std::vector<std::string>& places) {
    if (places.empty()) {
      unlabelled_.push_back(node.name);
      return;
    }
    for (std::size_t level = 0; level < places.size(); ++level) {
      const std::size_t at = switch_at(level, places[level]);
      if (level == 0) {
        network_.host_cables.push_back({network_.hosts.size(), at, "", {}, {}});
      } else {
        join(switch_at(level - 1, places[level - 1]), at);
      }
    }
    NetworkHost host{node.name, "", {}};
    const auto product = node.labels.find("nvidia.com/gpu.product");
    if (product != node.labels.end()) host.device_class = device_class_of(product->second);
    if (node.gpus > 0) host.gpus = node.gpus;
    network_.hosts.push_back(std::move(host));
  }

  void join(std::size_t lower, std::size_t upper) {
    if (joined_.emplace(lower, upper).second) {
      network_.switch_cables.push_back({lower, upper, 1, {}, {}});
    }
  }

  /// NodeLabels of different levels may have the same value.
  std::size_t switch_at(std::size_t level, const std::string& label) {
    const auto [place, is_new] =
        switches_.emplace(std::pair(level, label), network_.switches.size());
    if (is_new) {
      network_.switches.push_back(
          {fmt::format("{} {}", name_of_level(level), label), static_cast<int>(level), false});
    }
    return place->second;
  }

  /// NodeLabels end below what joins all nodes, which they do not name.
  void join_tops() {
    std::set<std::size_t> has_upper;
    int highest = 0;
    for (const SwitchCable& cable : network_.switch_cables) has_upper.insert(cable.lower);
    std::vector<std::size_t> tops;
    for (std::size_t s = 0; s < network_.switches.size(); ++s) {
      highest = std::max(highest, network_.switches[s].level);
      if (!has_upper.contains(s)) tops.push_back(s);
    }
    if (tops.size() < 2) return;
    note(fmt::format("{} switches at the top of the labels are joined by one, 'network'",
                     tops.size()));
    for (const std::size_t top : tops) join(top, network_.switches.size());
    network_.switches.push_back({"network", highest + 1, false});
  }

  void note_nvlink_domains() {
    std::map<std::string, int> nodes_in;
    for (const KubernetesNode& node : nodes_) {
      for (const std::string& domain : nvlink_domain(node)) ++nodes_in[domain];
    }
    const auto wide =
        std::ranges::count_if(nodes_in, [](const auto& one) { return one.second > 1; });
    if (wide > 0) {
      note(fmt::format("{} of several nodes: NVLink between nodes is not in the topology",
                       counted(wide, "NVLink domain")));
    }
  }

  std::string file_;
  std::vector<KubernetesNode> nodes_;
  NetworkFile network_;
  std::map<std::pair<std::size_t, std::string>, std::size_t> switches_;
  std::set<std::pair<std::size_t, std::size_t>> joined_;
  std::vector<std::string> unlabelled_;
};

class KubernetesReader : public Reader {
 public:
  std::string_view format() const override { return "kubernetes"; }

  /// Lists of other things, too: their refusal says what is wanted.
  bool accepts(const std::filesystem::path&, std::string_view content) const override {
    const std::string_view begin = trimmed(content);
    return begin.starts_with('{') && begin.find("\"apiVersion\"") != begin.npos &&
           begin.find("\"kind\"") != begin.npos;
  }

  ReadResult read(const std::filesystem::path& path, std::string_view content,
                  const ReadOptions& options) const override {
    const std::string file = path.string();
    return build_network(path, NodesReader(file, NodesParser(file).parse(content)).read(), options);
  }
};

}  // namespace

std::unique_ptr<Reader> make_kubernetes_reader() { return std::make_unique<KubernetesReader>(); }

}  // namespace rackrail::topology
