#include "base/parse_units.hpp"

#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <string>

#include "base/error.hpp"

namespace rackrail::parse_units_test {

using namespace rackrail;

TEST_CASE("sizes are read with decimal and binary prefixes") {
  CHECK(parse_bytes("64 MiB") == Bytes(64LL << 20));
  CHECK(parse_bytes("25MB") == Bytes(25'000'000));
  CHECK(parse_bytes("  4096 B ") == Bytes(4096));
  CHECK(parse_bytes("1.5 GiB") == Bytes(3LL << 29));
  CHECK(parse_bytes("2 TB") == Bytes(2'000'000'000'000));
  CHECK(parse_bytes("0 B") == Bytes(0));
}

TEST_CASE("rates are read in bits and bytes") {
  CHECK(parse_bandwidth("400 Gbps") == Bandwidth(50'000'000'000));
  CHECK(parse_bandwidth("400Gbit/s") == Bandwidth(50'000'000'000));
  CHECK(parse_bandwidth("25 GB/s") == Bandwidth(25'000'000'000));
  CHECK(parse_bandwidth("12.4 GB/s") == Bandwidth(12'400'000'000));
  CHECK(parse_bandwidth("100 Mbit/s") == Bandwidth(12'500'000));
  CHECK(parse_bandwidth("1 GiB/s") == Bandwidth(1 << 30));
}

TEST_CASE("times are read from picoseconds to hours") {
  CHECK(parse_duration("7 ps") == Duration(7));
  CHECK(parse_duration("0.0005ms") == Duration(500'000));
  CHECK(parse_duration("8.2 us") == Duration(8'200'000));
  CHECK(parse_duration("8.2 µs") == Duration(8'200'000));
  CHECK(parse_duration("2 min") == Duration(120'000'000'000'000));
  CHECK(parse_duration("1 h") == Duration(3'600'000'000'000'000));
}

TEST_CASE("a share is a number or percent, above 0") {
  CHECK(parse_share("10 %") == Approx(0.1));
  CHECK(parse_share("0.5%") == Approx(0.005));
  CHECK(parse_share("0.02") == Approx(0.02));
  CHECK(parse_share("0.5") == Approx(0.5));
  CHECK(parse_share("100%") == Approx(1));
  for (const char* text : {"", "%", "0", "-1%", "nan", "inf %", "1 percent", "1%%"}) {
    CHECK_THROWS_AS(parse_share(text), ConfigError);
  }
}

TEST_CASE("a share up to a limit may be 0") {
  CHECK(parse_share_up_to("0", 1) == 0);
  CHECK(parse_share_up_to("2%", 1) == Approx(0.02));
  CHECK(parse_share_up_to("100%", 1) == Approx(1));
  for (const char* text : {"101%", "-1", "nan", "inf", "2", ""}) {
    CHECK_THROWS_AS(parse_share_up_to(text, 1), ConfigError);
  }
}

TEST_CASE("a large share without a percent sign is asked what it means") {
  for (const char* text : {"0.51", "1", "5", "1e9"}) {
    CHECK_THROWS_AS(parse_share(text), ConfigError);
  }
  try {
    (void)parse_share("1");
    FAIL("accepted");
  } catch (const ConfigError& e) {
    CHECK(e.context().found == "'1', which is 100 %");
    CHECK_THAT(e.context().expected, Catch::StartsWith("1% or 100%"));
  }
}

TEST_CASE("a number without its unit is an error that says so") {
  try {
    (void)parse_bandwidth("40");
    FAIL("accepted");
  } catch (const ConfigError& e) {
    CHECK(e.context().found == "'40'");
    CHECK_THAT(e.context().expected, Catch::Contains("a rate with a unit"));
  }
}

TEST_CASE("what is no quantity is refused") {
  const std::string text = GENERATE(as<std::string>{}, "", " ", "B", "GB", "GB 3", "-1 B", "nan B",
                                    "inf B", "1 GB/s", "1 gb", "1e30 TB", "1e400 B", "3 B B",
                                    "0x10 B", "1,5 GB", "64 MiB extra", "--3 B", "1 Bytes");
  CAPTURE(text);
  CHECK_THROWS_AS(parse_bytes(text), ConfigError);
}

TEST_CASE("where the unit is right and the range is not, the range is said") {
  const auto expected = [](auto parse, const char* text) {
    try {
      (void)parse(text);
    } catch (const QuantityRangeError& e) {
      CHECK(e.context().found == fmt::format("'{}'", text));
      return e.context().expected;
    } catch (const ConfigError&) {
      return std::string("another error");
    }
    return std::string("no error");
  };
  for (const char* text : {"-3 Gbit/s", "99999999999 GB/s", "1e30 GB/s", "1e400 GB/s", "inf B/s"}) {
    CAPTURE(text);
    CHECK(expected(parse_bandwidth, text) == "a rate from 0 to 9200000 TB/s");
  }
  CHECK(expected(parse_duration, "-1 us") == "a time from 0 to 2500 h");
  CHECK(expected(parse_bytes, "1e7 TB") == "a size from 0 to 9200000 TB");
  CHECK(expected(parse_bandwidth, "-3") == "another error");
  CHECK(expected(parse_bandwidth, "nan GB/s") == "another error");
  CHECK(parse_bandwidth("9200000 TB/s") == Bandwidth(9'200'000'000'000'000'000));
  CHECK(parse_bytes("9200000 TB") == Bytes(9'200'000'000'000'000'000));
  CHECK(parse_duration("2500 h") == Duration(9'000'000'000'000'000'000));
}

TEST_CASE("a rate is no time and a time is no size") {
  CHECK_THROWS_AS(parse_duration("1 GB"), ConfigError);
  CHECK_THROWS_AS(parse_bandwidth("1 s"), ConfigError);
  CHECK_THROWS_AS(parse_bytes("1 us"), ConfigError);
}

TEST_CASE("exact text reads back as the same quantity") {
  const std::int64_t value = GENERATE(as<std::int64_t>{}, 0, 1, 999, 12'400'000'000, 1LL << 52);
  CHECK(parse_bytes(to_exact_string(Bytes(value))) == Bytes(value));
  CHECK(parse_bandwidth(to_exact_string(Bandwidth(value))) == Bandwidth(value));
  CHECK(parse_duration(to_exact_string(Duration(value))) == Duration(value));
}

TEST_CASE("exact text reads back beyond the integers that a double holds") {
  const std::int64_t value = GENERATE(as<std::int64_t>{}, (1LL << 53) + 1, 9'007'199'254'740'993,
                                      1'234'567'890'123'456'789);
  CHECK(parse_bytes(to_exact_string(Bytes(value))) == Bytes(value));
  CHECK(parse_duration(to_exact_string(Duration(value))) == Duration(value));
}

TEST_CASE("shown text has three significant digits") {
  CHECK(to_string(Bytes(1023)) == "1023 B");
  CHECK(to_string(64_MiB) == "64.0 MiB");
  CHECK(to_string(Bandwidth(1'073'741'824)) == "1.07 GB/s");
  CHECK(to_string(400_Gbps) == "50.0 GB/s");
  CHECK(to_string(Duration(68'719'000'000)) == "68.7 ms");
  CHECK(to_string(Duration(0)) == "0 s");
  CHECK(to_string(Bandwidth(0)) == "0 B/s");
}

TEST_CASE("shown text changes its prefix where rounding reaches it") {
  CHECK(to_string(Duration(999'999)) == "1.00 us");
  CHECK(to_string(Bandwidth(999'999'999)) == "1.00 GB/s");
  CHECK(to_string(Bandwidth(9'999'000'000)) == "10.0 GB/s");
  CHECK(to_string(Bandwidth(99'990'000'000)) == "100 GB/s");
}

}  // namespace rackrail::parse_units_test
