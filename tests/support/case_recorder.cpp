// Writes what became of each test case to the file named by RACKRAIL_TEST_REPORT, for
// scripts/run-tests to count. One line per event, fields divided by tabs:
//
//   started <case>
//   passed  <case>
//   failed  <case> <the first check that failed>
//   skipped <case> <reason>
//   took    <case> <seconds>
//
// Each line is flushed, so that after a crash the last "started" names the case that caused it.

#define CATCH_CONFIG_EXTERNAL_INTERFACES
#include <catch2/catch.hpp>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <string>
#include <string_view>
#include <vector>

#include "tests/support/skip.hpp"

namespace rackrail::test {
namespace {

std::string current_case = "(no test case)";
std::vector<std::string> skip_reasons;
std::string first_failure;

std::string in_one_line(std::string_view text) {
  std::string line(text);
  for (char& c : line) {
    if (c == '\n' || c == '\r' || c == '\t') c = ' ';
  }
  return line;
}

std::string described(const Catch::AssertionResult& result) {
  const Catch::SourceLineInfo place = result.getSourceInfo();
  const std::string_view file = place.file;
  std::string text(file.substr(file.rfind('/') + 1));
  text += ':' + std::to_string(place.line);
  for (const std::string& part :
       {result.getExpression(), result.getExpandedExpression(), std::string(result.getMessage())}) {
    if (!part.empty() && text.find(part) == std::string::npos) {
      text += ": " + part;
    }
  }
  return in_one_line(text);
}

class CaseRecorder : public Catch::TestEventListenerBase {
 public:
  explicit CaseRecorder(const Catch::ReporterConfig& config)
      : Catch::TestEventListenerBase(config) {
    if (const char* path = std::getenv("RACKRAIL_TEST_REPORT")) {
      report_.open(path, std::ios::app);
    }
  }

  void testCaseStarting(const Catch::TestCaseInfo& info) override {
    Catch::TestEventListenerBase::testCaseStarting(info);
    current_case = in_one_line(info.name);
    start_ = std::chrono::steady_clock::now();
    skip_reasons.clear();
    first_failure.clear();
    write("started", "");
  }

  bool assertionEnded(const Catch::AssertionStats& stats) override {
    if (!stats.assertionResult.isOk() && first_failure.empty()) {
      first_failure = described(stats.assertionResult);
    }
    return Catch::TestEventListenerBase::assertionEnded(stats);
  }

  void testCaseEnded(const Catch::TestCaseStats& stats) override {
    if (!stats.totals.assertions.allOk()) {
      write("failed", first_failure);
    } else if (!skip_reasons.empty()) {
      std::string reasons;
      for (const std::string& reason : skip_reasons) {
        reasons += (reasons.empty() ? "" : "; ") + reason;
      }
      write("skipped", reasons);
    } else {
      write("passed", "");
    }
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start_;
    write("took", std::to_string(took.count()));
    current_case = "(no test case)";
    Catch::TestEventListenerBase::testCaseEnded(stats);
  }

 private:
  void write(std::string_view event, std::string_view detail) {
    if (!report_.is_open()) return;
    report_ << event << '\t' << current_case;
    if (!detail.empty()) report_ << '\t' << detail;
    report_ << std::endl;
  }

  std::ofstream report_;
  std::chrono::steady_clock::time_point start_;
};

CATCH_REGISTER_LISTENER(CaseRecorder)

}  // namespace

void record_skip(std::string_view reason) {
  const std::string line = in_one_line(reason.empty() ? "no reason given" : reason);
  std::cout << "SKIPPED: " << current_case << ": " << line << std::endl;
  // A case runs once per leaf section and may be left by each of them for the same reason.
  for (const std::string& known : skip_reasons) {
    if (known == line) return;
  }
  skip_reasons.push_back(line);
}

}  // namespace rackrail::test
