#include "base/yaml.hpp"

#include <fmt/format.h>

#include <vector>

#include "base/error.hpp"

namespace rackrail {
namespace {

std::string line_of(const YAML::Mark& mark) {
  return mark.is_null() ? "" : fmt::format("line {}", mark.line + 1);
}

}  // namespace

YAML::Node load_yaml(const std::string& text, const std::string& file) {
  std::vector<YAML::Node> documents;
  try {
    documents = YAML::LoadAll(text);
  } catch (const YAML::Exception& e) {
    throw ConfigError(ErrorContext{file, line_of(e.mark), fmt::format("'{}'", e.msg), "YAML"});
  }
  if (documents.size() > 1) {
    throw ConfigError(
        ErrorContext{file, line_of(documents[1].Mark()), "a second document", "one YAML document"});
  }
  return documents.empty() ? YAML::Node() : documents.front();
}

}  // namespace rackrail
