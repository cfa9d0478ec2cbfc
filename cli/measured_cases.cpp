#include "cli/measured_cases.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <set>
#include <utility>

#include "base/error.hpp"
#include "base/parse_units.hpp"
#include "base/text.hpp"

namespace rackrail::cli {

namespace {

namespace nccl = sim::nccl;
using sim::measured::Measurements;

/// "12 rows of other operations left out (8 all-gather, 4 reduce-scatter)"; empty: none.
std::string others_note(const Measurements& read) {
  std::size_t total = read.unread_others;
  std::string kinds;
  for (const auto& [operation, count] : read.others()) {
    total += count;
    kinds += fmt::format("{}{} {}", kinds.empty() ? "" : ", ", count, to_string(operation));
  }
  if (total == 0) {
    return {};
  }
  return fmt::format("{} of other operations left out{}",
                     counted(static_cast<std::int64_t>(total), "row"),
                     kinds.empty() ? "" : " (" + kinds + ")");
}

std::string name(const nccl::Choice& choice) {
  return fmt::format("{}, {}", choice.algorithm ? nccl::to_string(*choice.algorithm) : "any",
                     choice.protocol ? nccl::to_string(*choice.protocol) : "any");
}

}  // namespace

MeasuredCases read_measured_cases(Session& session, const std::vector<std::string>& files,
                                  Bytes from, const nccl::Choice& forced) {
  MeasuredCases cases;
  for (const std::string& file : files) {
    const Measurements read = sim::measured::read_measurements(file);
    session.add_input(file);
    std::vector<std::string> notes = read.notes;
    if (std::string others = others_note(read); !others.empty()) {
      notes.push_back(std::move(others));
    }
    if (read.are_of_mscclpp) {
      notes.emplace_back(
          "measured with MSCCL++, whose kernels are not NCCL's: predictions are of NCCL");
    }
    std::vector<nccl::Measured> all_reduces = read.all_reduces();
    if (all_reduces.empty()) {
      throw ConfigError(
          ErrorContext{file, "", fmt::format("no measured all-reduce; {}", fmt::join(notes, "; ")),
                       "CSV, JSON lines or a log of nccl-tests with all-reduces"});
    }
    for (const std::string& note : notes) {
      session.note(fmt::format("note: {}: {}", file, note));
    }
    cases.measured_with.insert(read.are_of_mscclpp ? "MSCCL++" : "NCCL");
    for (nccl::Measured& one : all_reduces) {
      if (one.size < from) {
        continue;
      }
      if (read.has_logged_choice && one.choice.algorithm) {
        cases.chosen.push_back(one);
      }
      one.choice.algorithm = forced.algorithm ? forced.algorithm : one.choice.algorithm;
      one.choice.protocol = forced.protocol ? forced.protocol : one.choice.protocol;
      cases.all_reduces.push_back(std::move(one));
    }
  }
  return cases;
}

std::string choice_note(const std::vector<nccl::Measured>& chosen, nccl::Machines& machines) {
  std::size_t different = 0;
  std::string example;
  for (const nccl::Measured& one : chosen) {
    const nccl::Tuned tuned = nccl::tune(machines.of(one), one.size, {});
    const bool is_same = one.choice.algorithm == tuned.algorithm &&
                         (!one.choice.protocol || one.choice.protocol == tuned.protocol);
    if (!is_same && different++ == 0) {
      example = fmt::format("at {} it ran {}, the formula says {}", to_string(one.size),
                            name(one.choice), name({tuned.algorithm, tuned.protocol}));
    }
  }
  if (chosen.empty()) {
    return {};
  }
  return different == 0 ? fmt::format(
                              "note: the log says what NCCL chose for {} rows, as its "
                              "formula does here",
                              chosen.size())
                        : fmt::format(
                              "note: NCCL chose otherwise than its formula here for {} of "
                              "the {} rows that the log tells: {}",
                              different, chosen.size(), example);
}

}  // namespace rackrail::cli
