#include "base/yaml.hpp"

#include <catch2/catch.hpp>
#include <string>

#include "base/error.hpp"

namespace rackrail::yaml_test {
namespace {

std::string error_of(const std::string& text) {
  try {
    load_yaml(text, "a.yaml");
    return "";
  } catch (const ConfigError& e) {
    return e.what();
  }
}

TEST_CASE("one YAML document is read, or none") {
  CHECK(load_yaml("a: 1\n", "a.yaml")["a"].as<int>() == 1);
  CHECK(load_yaml("---\na: 2\n...\n", "a.yaml")["a"].as<int>() == 2);
  CHECK(load_yaml("", "a.yaml").IsNull());
  CHECK(load_yaml("# nothing\n", "a.yaml").IsNull());
}

TEST_CASE("a second YAML document, and what is none, is refused with its line") {
  CHECK_THAT(error_of("a: 1\n---\nb: 2\n"),
             Catch::StartsWith("a.yaml: line 2: found a second document, expected one"));
  CHECK_THAT(error_of("a: 1\nb: x\xa8y\n"),
             Catch::StartsWith("a.yaml: line 2: found bytes that are no UTF-8"));
  CHECK_THAT(error_of("a: 1\nb: [x\n"), Catch::StartsWith("a.yaml: line 3: found '"));
}

}  // namespace
}  // namespace rackrail::yaml_test
