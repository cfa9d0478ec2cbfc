#include <catch2/catch.hpp>

#include "base/error.hpp"
#include "plan/workloads/reader.hpp"

namespace rackrail::plan::registry_test {
namespace {

using Catch::Contains;

std::string error_of(const std::string& content) {
  try {
    const Workload unused = read_workload_text(content, "file");
    FAIL("accepted a workload of " << unused.tensors.size() << " tensors");
  } catch (const ConfigError& e) {
    return e.what();
  }
  return {};
}

TEST_CASE("a file of no known kind is refused with all that are known, in one line") {
  for (const char* content : {"", "just text", "<xml/>", "{}", "[1, 2]", "- a\n- b\n"}) {
    CAPTURE(content);
    const std::string line = error_of(content);
    CHECK_THAT(line, Contains("no known kind"));
    CHECK(line.find('\n') == std::string::npos);
    for (const auto& reader : workload_readers()) {
      CHECK_THAT(line, Contains(std::string(reader->format())));
    }
  }
}

TEST_CASE("bytes that are no text are refused as such, and archives are named") {
  CHECK_THAT(error_of("name: \xff\xfe\n"), Contains("UTF-8"));
  std::string archive(512, '\0');
  archive.replace(257, 5, "ustar");
  CHECK_THAT(error_of(archive), Contains("a tar archive"));
}

TEST_CASE("gzip within gzip is refused") {
  // printf 'hello\n' | gzip -n | gzip -n
  const std::string twice(
      "\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03\x93\xef\xe6\x60\x00\x03\xe6\xd3\x1e\x67\x4f"
      "\x9e\x7c\xce\xc4\xa0\x60\x60\x65\xc6\x06\x14\x03\x00\x45\xe4\x6f\x47\x1a\x00\x00\x00",
      42);
  CHECK_THAT(error_of(twice), Contains("gzip within gzip"));
}

TEST_CASE("what rackrail writes itself is told from other kinds") {
  CHECK(is_workload_yaml("name: a\nforward: 1 s\n", "w.yaml"));
  CHECK(is_workload_yaml(R"({"name": "a", "tensors": []})", "w.json"));
  CHECK_FALSE(is_workload_yaml(R"({"model_type": "llama"})", "config.json"));
  CHECK_FALSE(is_workload_yaml("tensor,elements,ready_gap_us\na,1,2\n", "w.csv"));
}

TEST_CASE("sums that leave their range are an error of the file") {
  std::string text = "tensor,elements,ready_gap_us\n";
  for (int line = 0; line < 3'000; ++line) text += "t,5,3599000000\n";
  CHECK_THAT(error_of(text), Contains("file"));
}

}  // namespace
}  // namespace rackrail::plan::registry_test
