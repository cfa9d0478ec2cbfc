#include "base/config_tree.hpp"

#include <catch2/catch.hpp>
#include <string>

#include "base/error.hpp"

namespace rackrail::config_tree_test {

using namespace rackrail;

namespace {
ConfigValue parse(const std::string& text) { return ConfigValue::parse("c.yaml", text); }

template <typename Read>
std::string error_of(Read read) {
  try {
    read();
  } catch (const ConfigError& e) {
    return e.what();
  }
  return "(none)";
}
}  // namespace

TEST_CASE("values know their file, line and field") {
  const ConfigValue root = parse("a: 1\nlist:\n  - x\n  - {deep: 5}\n");
  CHECK(root.require("list").elements()[1].require("deep").where() == "line 4, list[1].deep");
  CHECK_THAT(error_of([&] { (void)root.require("list").elements()[0].bandwidth(); }),
             Catch::Contains("c.yaml: line 3, list[0]: found 'x', expected a rate"));
}

TEST_CASE("each kind of scalar is checked") {
  const ConfigValue root = parse(
      "n: 40\nrate: 40 Gbit/s\nzero: 0 B/s\nhuge: 99999999 TB/s\nneg: -3\nflag: yes\nshare: 35 %\n"
      "half: 0.5\nbig: 101 %\nempty: ''\nlong: 2 h\nword: x\nnothing:\n");
  CHECK(root.require("rate").bandwidth() == 40_Gbps);
  CHECK(root.require("share").share() == Approx(0.35));
  CHECK(root.require("half").share() == Approx(0.5));
  CHECK(root.require("half").ratio(0, 1) == Approx(0.5));
  CHECK(root.require("n").count(1, 100) == 40);
  for (const char* key : {"n", "zero", "huge", "neg", "word", "nothing"}) {
    CAPTURE(key);
    CHECK_THROWS_AS(root.require(key).bandwidth(), ConfigError);
    CHECK_THROWS_AS(root.require(key).bytes(), ConfigError);
  }
  CHECK_THROWS_AS(root.require("long").duration(), ConfigError);
  CHECK_THROWS_AS(root.require("n").duration(), ConfigError);
  CHECK_THROWS_AS(root.require("n").count(1, 39), ConfigError);
  CHECK_THROWS_AS(root.require("neg").count(0, 39), ConfigError);
  CHECK_THROWS_AS(root.require("half").count(0, 39), ConfigError);
  CHECK_THROWS_AS(root.require("flag").flag(), ConfigError);
  CHECK_THROWS_AS(root.require("big").share(), ConfigError);
  CHECK_THROWS_AS(root.require("word").share(), ConfigError);
  CHECK_THROWS_AS(root.require("word").ratio(0, 1), ConfigError);
  CHECK_THROWS_AS(root.require("empty").name(), ConfigError);
  CHECK_THROWS_AS(root.require("word").elements(), ConfigError);
  CHECK_THROWS_AS(root.require("word").members(), ConfigError);
  CHECK_THROWS_AS(root.require("none"), ConfigError);
  CHECK(root.find("none") == nullptr);
}

TEST_CASE("unknown keys are named with those that exist") {
  const ConfigValue root = parse("hosts: 1\nhotss: 2\n");
  CHECK_THAT(error_of([&] {
               root.allow_only({"hosts", "racks"});
             }),
             Catch::Contains("line 2") && Catch::Contains("unknown key 'hotss'") &&
                 Catch::Contains("hosts, racks"));
}

TEST_CASE("a key twice is an error") {
  CHECK_THAT(error_of([] { parse("a: 1\nb: 2\na: 3\n"); }),
             Catch::Contains("line 3") && Catch::Contains("a second 'a'"));
}

TEST_CASE("broken YAML is one line with its place") {
  for (const char* text : {"a: [1, 2", "a: {b: 1", "a: \"open", "\t- x", "a: b: c", "&x *x",
                           "? [complex]\n: 1", "- a\nb: 1", "%YAML 9.9\n"}) {
    CAPTURE(text);
    const std::string message = error_of([&] { parse(text).allow_only({"a"}); });
    CHECK(message.starts_with("c.yaml"));
    CHECK(message.find('\n') == std::string::npos);
  }
}

TEST_CASE("anchors that multiply are stopped") {
  std::string text = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n";
  for (int i = 1; i < 12; ++i) {
    const std::string before = "*a" + std::to_string(i - 1);
    text += "a" + std::to_string(i) + ": &a" + std::to_string(i) + " [";
    for (int j = 0; j < 10; ++j) text += (j == 0 ? "" : ", ") + before;
    text += "]\n";
  }
  CHECK_THAT(error_of([&] { parse(text); }), Catch::Contains("more than 1000000 values"));
}

TEST_CASE("anchors that multiply a long name are stopped") {
  std::string text = "few: &few [x";
  for (int i = 1; i < 100; ++i) text += ", x";
  text += "]\n? " + std::string(8'000, 'k') + "\n: [*few";
  for (int i = 1; i < 100; ++i) text += ", *few";
  CHECK_THAT(error_of([&] { parse(text + "]\n"); }), Catch::Contains("values of more than 64 MiB"));
}

TEST_CASE("nesting is limited") {
  const std::string deep = std::string(200, '[') + std::string(200, ']');
  CHECK_THAT(error_of([&] { parse(deep); }), Catch::Contains("levels"));
  const std::string deeper = std::string(100'000, '[');
  CHECK_THROWS_AS(parse(deeper), ConfigError);
}

}  // namespace rackrail::config_tree_test
