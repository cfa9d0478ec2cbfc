#include <catch2/catch.hpp>

#include <cstdint>
#include <string>

#include "base/error.hpp"
#include "plan/workload.hpp"

namespace rackrail::plan::chakra_et_test {
namespace {

using Catch::Contains;

// The wire format by hand: https://protobuf.dev/programming-guides/encoding.
std::string varint(std::uint64_t value) {
  std::string bytes;
  for (; value >= 0x80; value >>= 7U) bytes += static_cast<char>(value | 0x80U);
  return bytes + static_cast<char>(value);
}
std::string number(unsigned field, std::uint64_t value) {
  return varint(field << 3U) + varint(value);
}
std::string text(unsigned field, const std::string& value) {
  return varint(field << 3U | 2U) + varint(value.size()) + value;
}
std::string framed(const std::string& message) { return varint(message.size()) + message; }

std::string attribute(const std::string& name, unsigned field, std::uint64_t value) {
  return text(10, text(1, name) + number(field, value));
}
std::string compute(std::uint64_t id, std::uint64_t after, std::uint64_t microseconds) {
  return framed(number(1, id) + text(2, "op") + number(3, 4) +
                (after > 0 ? text(5, varint(after)) : "") + number(7, microseconds));
}
std::string collective(std::uint64_t id, std::uint64_t after, std::uint64_t kind,
                       std::uint64_t bytes, bool on_cpu = false) {
  return framed(number(1, id) + text(2, "comm") + number(3, 7) + text(5, varint(after)) +
                number(7, 1'000'000) + attribute("is_cpu_op", 27, on_cpu ? 1 : 0) +
                attribute("comm_type", 9, kind) + attribute("comm_size", 9, bytes));
}

Workload read(const std::string& content) { return read_workload_text(content, "job.0.et"); }

std::string error_of(const std::string& content) {
  try {
    const Workload unused = read(content);
    FAIL("accepted a workload of " << unused.tensors.size() << " tensors");
  } catch (const ConfigError& e) {
    return e.what();
  }
  return {};
}

const std::string kHead = framed(text(1, "0.0.4") + text(2, text(1, "schema")));

TEST_CASE("sums of a Chakra trace are ready at the end of the longest path to them") {
  const Workload workload =
      read(kHead + compute(1, 0, 300) + compute(2, 1, 300) + collective(3, 2, 0, 4'000) +
           compute(4, 3, 300) + collective(5, 4, 7, 2'000) + collective(6, 4, 2, 8'000) +
           collective(7, 4, 0, 4'000, true));
  REQUIRE(workload.tensors.size() == 2);
  CHECK(workload.tensors[0].elements == 1'000);
  CHECK(workload.tensors[1].elements == 500);
  CHECK(workload.forward == 300_us);
  CHECK(workload.tensors[0].ready_gap == 300_us);
  CHECK(workload.tensors[1].ready_gap == 300_us);
  REQUIRE(workload.notes.size() == 2);
  CHECK_THAT(workload.notes[0], Contains("0.0.4"));
  CHECK_THAT(workload.notes[1], Contains("other collectives"));
}

TEST_CASE("control dependencies order a Chakra trace that has no others") {
  const auto node = [](std::uint64_t id, std::uint64_t type, const std::string& more) {
    return framed(number(1, id) + text(2, "node") + number(3, type) + more);
  };
  const Workload workload =
      read(kHead + node(1, 4, number(7, 300)) +
           node(2, 7, text(4, varint(1)) + attribute("comm_size", 13, 4'000)));
  CHECK(workload.forward == 100_us);
  CHECK(workload.backward() == 200_us);
}

TEST_CASE("older schemas: metadata without a version, and graphs without metadata") {
  const std::string old_head = framed(text(1, text(1, "schema") + text(29, "1.0.1")));
  CHECK(read(old_head + compute(1, 0, 30) + collective(2, 1, 0, 64)).tensors.size() == 1);
  const auto node = [](std::uint64_t id, std::uint64_t type, const std::string& more) {
    return framed(number(1, id) + text(2, "node") + number(3, type) + more);
  };
  const Workload graph = read(node(1, 3, number(7, 300)) +
                              node(2, 6, number(4, 1) + number(13, 1) + number(18, 4'000)));
  REQUIRE(graph.tensors.size() == 1);
  CHECK(graph.tensors[0].elements == 1'000);
  CHECK(graph.forward == 100_us);
  CHECK(graph.backward() == 200_us);
}

TEST_CASE("a Chakra trace that is damaged or says nothing of gradients is refused") {
  CHECK_THAT(error_of(kHead + compute(1, 0, 300)), Contains("0 all-reduces"));
  const std::string whole = kHead + compute(1, 0, 300) + collective(2, 1, 0, 4'000);
  CHECK_THAT(error_of(whole.substr(0, whole.size() - 3)), Contains("message 2"));
  CHECK_THAT(error_of(kHead + compute(1, 2, 1) + compute(2, 1, 1) + collective(3, 2, 0, 64)),
             Contains("cycle"));
  for (std::size_t end = 0; end < whole.size(); ++end) {  // no prefix crashes
    try {
      read(whole.substr(0, end));
    } catch (const ConfigError&) {
      continue;
    }
    FAIL("accepted " << end << " bytes");
  }
}

}  // namespace
}  // namespace rackrail::plan::chakra_et_test
