#include "plan/json_layout.hpp"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

namespace rackrail::plan::json_layout_test {
namespace {

TEST_CASE("short lists come to one line") {
  CHECK(with_compact_lists("{\n \"a\": [\n  1,\n  2\n ],\n \"b\": []\n}\n") ==
        "{\n \"a\": [1, 2],\n \"b\": []\n}\n");
}

TEST_CASE("lists of lists and of objects keep their lines, their inner lists do not") {
  CHECK(with_compact_lists("[\n {\n  \"a\": [\n   true,\n   null\n  ]\n }\n]") ==
        "[\n {\n  \"a\": [true, null]\n }\n]");
}

TEST_CASE("brackets, commas and quotes in texts are left alone") {
  const std::string text = R"({"a": ["x, [y]", "\"]", "\\"], "b[": "[ 1,  2 ]"})";
  CHECK(with_compact_lists(text) == text);
}

TEST_CASE("long lists are broken into lines of at most 100 columns and stay the same") {
  nlohmann::json json;
  for (int i = 0; i < 500; ++i) {
    json["numbers"].push_back(i * 37);
    json["deep"]["names"].push_back("name " + std::to_string(i));
  }
  const std::string text = with_compact_lists(json.dump(1));
  CHECK(nlohmann::json::parse(text) == json);
  std::size_t begin = 0;
  std::size_t lines = 0;
  while (begin < text.size()) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    CHECK(end - begin <= 100);
    begin = end + 1;
    ++lines;
  }
  CHECK(lines < 120);
}

TEST_CASE("text that is not whole is given back") {
  for (const char* text : {"", "[", "[1", "[1,", "\"abc", "[\"abc", "\"\\"}) {
    CAPTURE(text);
    CHECK(with_compact_lists(text) == text);
  }
}

}  // namespace
}  // namespace rackrail::plan::json_layout_test
