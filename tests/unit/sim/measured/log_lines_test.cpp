#include "sim/measured/log_lines.hpp"

#include <catch2/catch.hpp>

#include <string>
#include <vector>

namespace rackrail::sim::measured::log_lines_test {

std::vector<std::string> program(const std::string& content) {
  std::vector<std::string> texts;
  for (const ProgramLine& line : separate(content).program) {
    texts.push_back(line.text);
  }
  return texts;
}

TEST_CASE("tags of launchers, collectors and time stamps are taken off", "[logs]") {
  for (const char* tag :
       {"", "0: ", " 12: ", "node7: ", "[0] ",
        "[1,0]<stdout>:", "[1,0]<stderr>: ", "[1,3]:", "[pod/bench-launcher-x2/launcher] ",
        "(head, rank=0, pid=3808) ", "(worker pid=12, ip=10.0.0.1) [1,0]<stdout>:", "bench-1  | ",
        "> ", "2024-05-01T10:00:00.1Z ", "2024-05-01T10:00:00.123456789Z stdout F ",
        "2025-03-31 05:54:07,123 ", "[2025-03-31 05:54:07] ", "[1718000000.1] [host1:0]:"}) {
    INFO(tag);
    CHECK(without_tags(std::string(tag) + "#  Rank  0 Group") == "#  Rank  0 Group");
    CHECK(without_tags(std::string(tag) + "      64   16   float") == "64   16   float");
  }
  CHECK(without_tags("# Avg bus bandwidth    : 5") == "# Avg bus bandwidth    : 5");
}

TEST_CASE("a row that NCCL's lines interrupt is put together", "[logs]") {
  const std::vector<std::string> expected = {
      "8 2 float sum -1 64.18 0.00 0.00 0 63.90 0.00 0.00 0",
      "16 4 float sum -1 65.00 0.00 0.00 0 64.00 0.00 0.00 0"};
  const auto words = [](std::vector<std::string> lines) {
    for (std::string& line : lines) {
      std::string joined;
      for (const std::string_view word : words_of(line)) {
        joined += (joined.empty() ? "" : " ") + std::string(word);
      }
      line = joined;
    }
    return lines;
  };
  CHECK(words(program(
            "node7:10:11 [0] NCCL INFO Init\n"
            "           8             2     float     sum      -1node7:10:11 [0] NCCL INFO a\n"
            "node7:10:11 [0] NCCL INFO b\n"
            "    64.18    0.00    0.00      0node7:10:11 [0] NCCL INFO c\n"
            "    63.90    0.00    0.00      0\n"
            "          16             4     float     sum      -1    65.00    0.00    0.00"
            "      0    64.00    0.00    0.00      0\n")) == expected);
  CHECK(words(program(
            "[1,0]<stdout>:node7:10:11 [0] NCCL INFO Init\n"
            "[1,0]<stdout>:     8    2     float     sum      -1[1,0]<stdout>:node7:10:11 [0] NCCL "
            "INFO a\n"
            "[1,3]<stdout>:node9:10:11 [0] NCCL INFO b\n"
            "[1,0]<stdout>:    64.18    0.00    0.00      0node7:10:11 [0] NCCL INFO c\n"
            "[1,0]<stdout>:    63.90    0.00    0.00      0\n"
            "[1,0]<stdout>:    16    4     float     sum      -1    65.00    0.00    0.00      0 "
            "   64.00    0.00    0.00      0\n")) == expected);
  // The same with tags, before each write and not only before each line.
  CHECK(words(program(
            "[0] 8-way:10:11 [0] NCCL INFO Init\n"
            "[0]            8             2     float     sum      -1[0] 8-way:10:11 [0] NCCL "
            "INFO a\n"
            "[0] 8-way:10:11 [0] NCCL INFO b\n"
            "[0]     64.18    0.00    0.00      0[0] 8-way:10:11 [0] NCCL INFO c\n"
            "[0]     63.90    0.00    0.00      0\n"
            "[0]           16             4     float     sum      -1    65.00    0.00    "
            "0.00      0    64.00    0.00    0.00      0\n")) == expected);
}

TEST_CASE("lines of NCCL name their host, warnings too, and several on a line are several",
          "[logs]") {
  const SeparatedLog log = separate(
      "[1,2]<stdout>:a-1:5:6 [3] NCCL INFO first\n"
      "[2025-06-27 15:04:20] b:7:8 [0] misc/socket.cc:57 NCCL WARN second\n"
      "NCCL INFO third\n"
      "a-1:5:6 [3] NCCL INFO fourtha-1:5:9 [3] NCCL INFO fifth\r\n"
      "\x1b[1mNCCL version 2.21.5+cuda12.4\x1b[0m\n");
  REQUIRE(log.nccl.size() == 5);
  CHECK(log.nccl[0].host == "a-1");
  CHECK(log.nccl[0].process == "a-1:5:6");
  CHECK(log.nccl[0].text == "first");
  CHECK(log.nccl[1].host == "b");
  CHECK(log.nccl[1].is_warning);
  CHECK(log.nccl[1].text == "second");
  CHECK(log.nccl[2].host.empty());
  CHECK(log.nccl[3].text == "fourth");
  CHECK(log.nccl[4].text == "fifth");
  CHECK(log.nccl[4].number == 4);
  REQUIRE(log.program.size() == 1);
  CHECK(log.program[0].text == "NCCL version 2.21.5+cuda12.4");
}

}  // namespace rackrail::sim::measured::log_lines_test
