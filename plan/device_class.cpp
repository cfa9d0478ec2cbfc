#include "plan/device_class.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <optional>

#include "base/config_tree.hpp"
#include "base/error.hpp"
#include "base/file.hpp"
#include "base/text.hpp"
#include "topology/configs.hpp"
#include "topology/topology.hpp"

namespace rackrail::plan {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kDefaultGpu = "H100";
constexpr std::string_view kCpu = "cpu";
/// Compute times of the shipped models are those of one (relative_step_time in workload.cpp).
constexpr std::string_view kReference = "V100";

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
char small(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

/// Letters and digits only, in small letters.
std::string key_of(std::string_view name) {
  std::string key;
  for (const char c : name) {
    if (is_digit(c) || is_letter(c)) key += small(c);
  }
  return key;
}

/// Whether the letters and digits of a key follow each other in the text, whatever stands between
/// them. A number must be whole: A1000 is no A100. Short names begin a word.
bool has_key(std::string_view text, std::string_view key) {
  constexpr std::size_t kShort = 3;
  for (std::size_t first = 0; first < text.size(); ++first) {
    const char before = first == 0 ? ' ' : text[first - 1];
    if (is_digit(key.front()) ? is_digit(before) : key.size() <= kShort && is_letter(before)) {
      continue;
    }
    std::size_t at = first;
    std::size_t matched = 0;
    while (at < text.size() && matched < key.size()) {
      if (small(text[at]) == key[matched]) {
        ++matched;
      } else if (matched == 0 || is_digit(text[at]) || is_letter(text[at])) {
        break;
      }
      ++at;
    }
    if (matched == key.size() &&
        !(is_digit(key.back()) && at < text.size() && is_digit(text[at]))) {
      return true;
    }
  }
  return false;
}

struct Key {
  std::string text;
  std::size_t weight = 0;  ///< of two that match, the higher counts
  std::size_t device = 0;
};

struct Table {
  std::vector<DeviceClass> classes;
  std::map<std::string, std::size_t, LessInAnyCase> by_name;
  std::vector<Key> keys;  ///< the highest weight first
};

DeviceClass read_class(const fs::path& path) {
  const ConfigValue root = ConfigValue::parse(path.string(), read_file(path));
  if (!root.is_map()) root.fail("a device class: 'name', 'source', 'matrix_tflops' and so on");
  root.allow_only({"name", "aliases", "source", "matrix_tflops", "memory_bandwidth", "memory",
                   "codec_memory", "launch", "wake"});
  DeviceClass device;
  static_cast<topology::DeviceFigures&>(device) = topology::read_device_figures(root);
  device.name = root.require("name").name();
  if (key_of(device.name).empty()) root.require("name").fail("a name with letters or digits");
  (void)root.require("source").name();
  if (const ConfigValue* aliases = root.find("aliases")) {
    for (const ConfigValue& alias : aliases->elements()) {
      if (key_of(alias.name()).empty()) alias.fail("a name with letters or digits");
      device.aliases.push_back(alias.name());
    }
  }
  return device;
}

using FoundClass = std::pair<fs::path, DeviceClass>;
using FoundClasses = std::map<std::string, FoundClass, LessInAnyCase>;

void add_classes(const fs::path& folder, FoundClasses& found) {
  std::vector<fs::path> files;
  std::error_code status;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, status)) {
    if (entry.path().extension() == ".yaml") files.push_back(entry.path());
  }
  std::ranges::sort(files);
  FoundClasses here;
  for (const fs::path& file : files) {
    DeviceClass device = read_class(file);
    const std::string name = device.name;
    const auto [place, is_new] = here.emplace(name, FoundClass(file, std::move(device)));
    if (!is_new) {
      throw ConfigError(
          ErrorContext{file.string(), "name", fmt::format("'{}'", name),
                       fmt::format("another than in {}", place->second.first.string())});
    }
  }
  for (auto& [name, device] : here) found.insert_or_assign(name, std::move(device));
}

void add_name(const fs::path& file, const std::string& name, std::size_t device, Table& table) {
  const auto [place, is_new] = table.by_name.emplace(name, device);
  if (!is_new) {
    throw ConfigError(ErrorContext{file.string(), "aliases", fmt::format("'{}'", name),
                                   fmt::format("no name of another class, as it is of {}",
                                               table.classes[place->second].name)});
  }
  const std::string key = key_of(name);
  table.keys.push_back({key, 2 * key.size(), device});
}

/// "l40" of L40S; nothing where no letters follow a number.
std::optional<Key> key_without_suffix(const Key& key) {
  std::size_t size = key.text.size();
  while (size > 0 && is_letter(key.text[size - 1])) --size;
  if (size == 0 || size == key.text.size() || !is_letter(key.text.front())) return std::nullopt;
  return Key{key.text.substr(0, size), 2 * size - 1, key.device};
}

Table read_table() {
  FoundClasses found;
  const std::vector<fs::path> folders = topology::configs_folders();
  for (const fs::path& folder : folders) add_classes(folder / "devices", found);
  for (const std::string_view needed : {kCpu, kDefaultGpu, kReference}) {
    if (!found.contains(std::string(needed))) {
      throw ConfigError(ErrorContext{(folders.front() / "devices").string(), "device classes",
                                     fmt::format("no '{}'", needed),
                                     "the shipped files, of which others are made"});
    }
  }
  Table table;
  for (auto& [name, entry] : found) {
    const std::size_t number = table.classes.size();
    table.classes.push_back(std::move(entry.second));
    add_name(entry.first, table.classes[number].name, number, table);
    if (const auto key = key_without_suffix(table.keys.back())) table.keys.push_back(*key);
  }
  std::size_t number = 0;
  for (const auto& [name, entry] : found) {
    for (const std::string& alias : table.classes[number].aliases) {
      add_name(entry.first, alias, number, table);
    }
    ++number;
  }
  std::ranges::stable_sort(table.keys, std::greater(), &Key::weight);
  return table;
}

const Table& table() {
  static const Table read = read_table();
  return read;
}

const DeviceClass& shipped(std::string_view name) { return *find_device_class(name); }

}  // namespace

std::span<const DeviceClass> device_classes() { return table().classes; }

const DeviceClass* find_device_class(std::string_view name) {
  const Table& known = table();
  const auto found = known.by_name.find(name);
  return found == known.by_name.end() ? nullptr : &known.classes[found->second];
}

const DeviceClass* likeliest_device_class(std::string_view name) {
  if (const DeviceClass* known = find_device_class(name)) return known;
  const Table& known = table();
  const auto found =
      std::ranges::find_if(known.keys, [name](const Key& key) { return has_key(name, key.text); });
  return found == known.keys.end() ? nullptr : &known.classes[found->device];
}

const DeviceClass& default_gpu() { return shipped(kDefaultGpu); }

const DeviceClass& device_class_of(const topology::Node& node) {
  if (const DeviceClass* likeliest = likeliest_device_class(node.device_class)) return *likeliest;
  return shipped(node.kind == topology::NodeKind::kGpu ? kDefaultGpu : kCpu);
}

const topology::DeviceFigures& device_figures_of(const topology::Node& node) {
  return node.figures != nullptr ? *node.figures : device_class_of(node);
}

std::string_view device_class_name(std::string_view name) {
  const DeviceClass* known = find_device_class(name);
  return known == nullptr ? name : known->name;
}

void name_device_classes(topology::Topology& topology) {
  for (std::size_t r = 0; r < topology.rank_count(); ++r) {
    const NodeId id = topology.node_of(Rank(r));
    topology::Node node = topology.node(id);
    if (node.figures != nullptr) continue;
    if (const std::string_view name = device_class_name(node.device_class);
        name != node.device_class) {
      node.device_class = std::string(name);
      topology.set_node_properties(id, node);
    }
  }
}

}  // namespace rackrail::plan
