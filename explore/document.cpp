#include "explore/document.hpp"

#include <fmt/format.h>

#include <charconv>
#include <string_view>
#include <variant>

#include "base/error.hpp"
#include "base/yaml.hpp"

namespace rackrail::explore {
namespace {

using Step = std::variant<std::string, std::size_t>;  // a key, or the number of an element

/// "racks[0].hosts" as {"racks", 0, "hosts"}; none when it is no path.
std::optional<std::vector<Step>> split(std::string_view path) {
  std::vector<Step> steps;
  while (true) {
    const std::size_t end = path.find_first_of(".[");
    if (end == 0 || path.empty()) {
      return std::nullopt;
    }
    steps.emplace_back(std::string(path.substr(0, end)));
    path.remove_prefix(std::min(end, path.size()));
    while (path.starts_with('[')) {
      const std::size_t close = path.find(']');
      std::size_t index = 0;
      const char* last = path.data() + (close == std::string_view::npos ? 0 : close);
      const auto [read, error] = std::from_chars(path.data() + 1, last, index);
      if (close == std::string_view::npos || error != std::errc{} || read != last) {
        return std::nullopt;
      }
      steps.emplace_back(index);
      path.remove_prefix(close + 1);
    }
    if (path.empty()) {
      return steps;
    }
    if (!path.starts_with('.')) {
      return std::nullopt;
    }
    path.remove_prefix(1);
  }
}

/// The member that a step leads to; undefined when there is none.
YAML::Node member(const YAML::Node& node, const Step& step) {
  if (const auto* key = std::get_if<std::string>(&step)) {
    return node.IsMap() ? node[*key] : YAML::Node(YAML::NodeType::Undefined);
  }
  const std::size_t index = std::get<std::size_t>(step);
  return node.IsSequence() && index < node.size() ? node[index]
                                                  : YAML::Node(YAML::NodeType::Undefined);
}

/// The node that all steps but the last lead to; undefined when there is none.
YAML::Node parent_of(const YAML::Node& root, const std::vector<Step>& steps) {
  YAML::Node at;
  at.reset(root);
  for (std::size_t i = 0; i + 1 < steps.size(); ++i) {
    const YAML::Node next = member(at, steps[i]);
    if (!next.IsDefined()) {
      return next;
    }
    at.reset(next);
  }
  return at;
}

FieldState state_of(const YAML::Node& root, const std::optional<std::vector<Step>>& steps) {
  if (!steps) {
    return FieldState::kAbsent;
  }
  const YAML::Node parent = parent_of(root, *steps);
  if (!parent.IsDefined()) {
    return FieldState::kAbsent;
  }
  const YAML::Node field = member(parent, steps->back());
  if (!field.IsDefined()) {
    const bool is_key = std::holds_alternative<std::string>(steps->back());
    return parent.IsMap() && is_key ? FieldState::kAddable : FieldState::kAbsent;
  }
  return field.IsMap() || field.IsSequence() ? FieldState::kBranch : FieldState::kThere;
}

void collect(const YAML::Node& node, const std::string& path, std::vector<std::string>& paths) {
  if (node.IsMap()) {
    for (const auto& entry : node) {
      const std::string key = entry.first.IsScalar() ? entry.first.Scalar() : std::string();
      collect(entry.second, path.empty() ? key : path + "." + key, paths);
    }
  } else if (node.IsSequence()) {
    for (std::size_t i = 0; i < node.size(); ++i) {
      collect(node[i], fmt::format("{}[{}]", path, i), paths);
    }
  } else if (!path.empty()) {
    paths.push_back(path);
  }
}

}  // namespace

std::vector<std::string> field_paths(const std::string& text) {
  std::vector<std::string> paths;
  collect(load_yaml(text, ""), "", paths);
  return paths;
}

FieldState find_field(const std::string& text, const std::string& path) {
  return state_of(load_yaml(text, ""), split(path));
}

std::string with_fields(const std::string& text, const std::vector<FieldValue>& values) {
  if (values.empty()) {
    return text;
  }
  const YAML::Node root = load_yaml(text, "");
  for (const auto& [path, value] : values) {
    const auto steps = split(path);
    const FieldState state = state_of(root, steps);
    if (state == FieldState::kAbsent || state == FieldState::kBranch) {
      throw ConfigError(ErrorContext{"", path, "no such field", "the path of a single value"});
    }
    YAML::Node parent = parent_of(root, *steps);
    if (const auto* key = std::get_if<std::string>(&steps->back())) {
      parent[*key] = value;
    } else {
      parent[std::get<std::size_t>(steps->back())] = value;
    }
  }
  YAML::Emitter out;
  out << root;
  return std::string(out.c_str()) + "\n";
}

}  // namespace rackrail::explore
