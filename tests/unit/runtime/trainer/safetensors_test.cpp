#include "runtime/trainer/safetensors.hpp"

#include <catch2/catch.hpp>
#include <cstring>

#include "tests/unit/runtime/trainer/test_data.hpp"

namespace rackrail::trainer::safetensors_test {
namespace {

std::string file_of(const std::string& header, const std::string& data) {
  const std::uint64_t length = header.size();
  std::string content(8, '\0');
  std::memcpy(content.data(), &length, 8);
  return content + header + data;
}

TEST_CASE("Tensors and metadata come back as they were") {
  const std::vector<float> a{1, -2, 3.5F, 0, 1e-40F, 7};
  const std::vector<float> b{42};
  const std::string content = encode_safetensors(
      std::vector<NamedTensor>{{"b/first", {2, 3}, a}, {"a", {}, b}, {"empty", {0, 4}, {}}},
      {{"step", "7"}, {"quote", "\"\n"}});
  const SafetensorsFile file = parse_safetensors(content, "x");
  CHECK(file.metadata == Metadata{{"step", "7"}, {"quote", "\"\n"}});
  REQUIRE(file.tensors.size() == 3);
  CHECK(file.tensors[0].name == "b/first");
  CHECK(file.tensors[0].shape == std::vector<std::int64_t>{2, 3});
  CHECK(file.tensors[0].values == a);
  CHECK(file.tensors[1].shape.empty());
  CHECK(file.tensors[1].values == b);
  CHECK(file.tensors[2].values.empty());
  CHECK(parse_safetensors(encode_safetensors({}, {}), "x").tensors.empty());
}

TEST_CASE("A description is all but the values, of a whole file") {
  const std::vector<float> values{1, 2, 3, 4};
  const std::string content =
      encode_safetensors(std::vector<NamedTensor>{{"w", {2, 2}, values}}, {{"step", "7"}});
  const SafetensorsFile file = describe_safetensors(content, "x");
  CHECK(file.metadata == Metadata{{"step", "7"}});
  REQUIRE(file.tensors.size() == 1);
  CHECK(file.tensors[0].name == "w");
  CHECK(file.tensors[0].shape == std::vector<std::int64_t>{2, 2});
  CHECK(file.tensors[0].values.empty());
  const std::string cut = content.substr(0, content.size() - 1);
  CHECK_THROWS_AS(describe_safetensors(cut, "x"), ConfigError);
}

TEST_CASE("The bytes are those of the format") {
  const std::vector<float> values{1};
  const std::string content = encode_safetensors(std::vector<NamedTensor>{{"w", {1}, values}}, {});
  // 53 characters of JSON, padded to 56, so that data begins at a multiple of 8.
  const std::string header = R"({"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})";
  const std::string padded = header + std::string((8 - header.size() % 8) % 8, ' ');
  CHECK(content == file_of(padded, std::string("\0\0\x80\x3f", 4)));
}

TEST_CASE("A file in another order of tensors is read by its offsets") {
  const std::string header = R"({"late":{"dtype":"F32","shape":[1],"data_offsets":[4,8]},)"
                             R"("early":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})";
  const std::string data("\0\0\x80\x3f\0\0\0\x40", 8);
  const SafetensorsFile file = parse_safetensors(file_of(header, data), "x");
  REQUIRE(file.tensors.size() == 2);
  CHECK(file.tensors[0].name == "early");
  CHECK(file.tensors[0].values == std::vector<float>{1});
  CHECK(file.tensors[1].values == std::vector<float>{2});
}

TEST_CASE("Every truncation is refused, with the sizes") {
  const std::vector<float> values(5, 1);
  const std::string content =
      encode_safetensors(std::vector<NamedTensor>{{"w", {5}, values}}, {{"k", "v"}});
  for (std::size_t size = 0; size < content.size(); ++size) {
    const ErrorContext context = test::context_of<ConfigError>(
        [&] { parse_safetensors(std::string_view(content).substr(0, size), "cut.safetensors"); });
    REQUIRE(context.file == "cut.safetensors");
    REQUIRE(context.where == "size");
    REQUIRE(context.found == std::to_string(size) + " bytes");
  }
  CHECK(test::context_of<ConfigError>([&] { parse_safetensors(content + "x", "x"); }).expected ==
        std::to_string(content.size()) + " bytes");
}

TEST_CASE("Headers that make no sense are refused") {
  const std::string four(4, '\0');
  const auto where = [](const std::string& content) {
    return test::context_of<ConfigError>([&] { parse_safetensors(content, "x"); }).where;
  };
  CHECK(where(std::string(8, '\xff')) == "header length");
  CHECK(where(file_of("[1]", "")) == "header");
  CHECK(where(file_of("{", "")) == "header");
  CHECK(where(file_of(R"({"w":3})", "")) == "w");
  CHECK(where(file_of(R"({"__metadata__":{"k":1}})", "")) == "__metadata__.k");
  CHECK(where(file_of(R"({"w":{"dtype":"F16","shape":[1],"data_offsets":[0,4]}})", four)) ==
        "w.dtype");
  CHECK(where(file_of(R"({"w":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})", four)) ==
        "w.shape");
  CHECK(
      where(file_of(R"({"w":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,4]}})",
                    four)) == "w.shape");
  CHECK(where(file_of(R"({"w":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})", four)) ==
        "w.data_offsets");
  CHECK(where(file_of(R"({"w":{"dtype":"F32","shape":[1],"data_offsets":[4,0]}})", four)) ==
        "w.data_offsets");
  CHECK(where(file_of(R"({"w":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})", four + four)) ==
        "w.data_offsets");
}

TEST_CASE("Sizes that are no 64-bit numbers are refused, beside a size of 0, too") {
  const std::string content =
      file_of(R"({"w":{"dtype":"F32","shape":[0,18446744073709551615],"data_offsets":[0,0]}})", "");
  CHECK(test::context_of<ConfigError>([&] { parse_safetensors(content, "x"); }).where == "w.shape");
}

TEST_CASE("A header that nests as deep as it is long is an error like others") {
  const std::string deep = std::string(1'000'000, '[') + std::string(1'000'000, ']');
  const std::string content =
      file_of(R"({"w":{"dtype":)" + deep + R"(,"shape":[1],"data_offsets":[0,4]}})", "");
  const auto context = test::context_of<ConfigError>([&] { parse_safetensors(content, "x"); });
  CHECK(context.where == "w.dtype");
  CHECK(context.found == "another form");
}

TEST_CASE("An empty tensor stands before the one that begins at its place, whatever their names") {
  const std::vector<float> values{1};
  const SafetensorsFile file = parse_safetensors(
      encode_safetensors(std::vector<NamedTensor>{{"z", {0}, {}}, {"a", {1}, values}}, {}), "x");
  REQUIRE(file.tensors.size() == 2);
  CHECK(file.tensors[0].name == "z");
  CHECK(file.tensors[1].values == values);
}

}  // namespace
}  // namespace rackrail::trainer::safetensors_test
