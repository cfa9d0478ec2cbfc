#include "base/yaml.hpp"

#include <fmt/format.h>
#include <yaml-cpp/eventhandler.h>

#include <optional>
#include <sstream>

#include "base/error.hpp"
#include "base/text.hpp"

namespace rackrail {
namespace {

std::string line_of(const YAML::Mark& mark) {
  return mark.is_null() ? "" : fmt::format("line {}", mark.line + 1);
}

/// Notes where the latest document begins, and nothing else.
class DocumentStart : public YAML::EventHandler {
 public:
  std::optional<YAML::Mark> begin;

  void OnDocumentStart(const YAML::Mark& mark) override { begin = mark; }
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark&, YAML::anchor_t) override {}
  void OnAlias(const YAML::Mark&, YAML::anchor_t) override {}
  void OnScalar(const YAML::Mark&, const std::string&, YAML::anchor_t,
                const std::string&) override {}
  void OnSequenceStart(const YAML::Mark&, const std::string&, YAML::anchor_t,
                       YAML::EmitterStyle::value) override {}
  void OnSequenceEnd() override {}
  void OnMapStart(const YAML::Mark&, const std::string&, YAML::anchor_t,
                  YAML::EmitterStyle::value) override {}
  void OnMapEnd() override {}
};

/// YAML::LoadAll() would say it, too, but does not end for some texts that are no YAML.
std::optional<YAML::Mark> second_document(const std::string& text) {
  if (text.find("\n---") == std::string::npos && text.find("\n...") == std::string::npos) {
    return std::nullopt;
  }
  std::istringstream stream(text);
  YAML::Parser parser(stream);
  DocumentStart start;
  parser.HandleNextDocument(start);
  start.begin.reset();
  parser.HandleNextDocument(start);
  return start.begin;
}

}  // namespace

YAML::Node load_yaml(const std::string& text, const std::string& file) {
  require_utf8(text, file);
  YAML::Node document;
  std::optional<YAML::Mark> second;
  try {
    document = YAML::Load(text);
    second = second_document(text);
  } catch (const YAML::Exception& e) {
    throw ConfigError(ErrorContext{file, line_of(e.mark), fmt::format("'{}'", e.msg), "YAML"});
  }
  if (second) {
    throw ConfigError(
        ErrorContext{file, line_of(*second), "a second document", "one YAML document"});
  }
  return document;
}

}  // namespace rackrail
