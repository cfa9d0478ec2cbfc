// Runs the same flows in rackrail and in SimGrid and prints what each took.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <exception>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/build_config.hpp"
#include "base/error.hpp"
#include "base/random.hpp"
#include "bench/peers/measure.hpp"
#include "bench/peers/peers.hpp"
#include "bench/sim/fabric.hpp"

namespace rackrail::bench {

std::string name(const Case& what) {
  switch (what.pattern) {
    case Pattern::kRing:
      return fmt::format("ring/{}", what.ranks);
    case Pattern::kAllToAll:
      return fmt::format("all-to-all/{}", what.ranks);
    case Pattern::kChurn:
      break;
  }
  return fmt::format("churn/{}", what.ranks);
}

Message churn_message(std::size_t ranks, std::size_t from, std::size_t number) {
  const std::uint64_t bits = random_bits(from, number);
  return {.to = (from + 1 + (bits & UINT32_MAX) % (ranks - 1)) % ranks,
          .bytes = 1000 + static_cast<std::int64_t>((bits >> 32U) % 4'000'000)};
}

namespace {

constexpr double kTolerance = 1e-6;

struct Row {
  Case what;
  Measurement rackrail;
  Measurement simgrid;

  double ratio() const { return simgrid.cpu_seconds / rackrail.cpu_seconds; }
  /// Of the simulated times, relative. They should agree but for rounding, which churn amplifies:
  /// who sends next depends on whose message ended.
  double time_difference() const {
    return rackrail.outcome.simulated_seconds / simgrid.outcome.simulated_seconds - 1;
  }
};

Case parse(const std::string& text) {
  for (const Pattern pattern : {Pattern::kRing, Pattern::kAllToAll, Pattern::kChurn}) {
    for (const std::size_t ranks : {64, 128, 256, 512, 1024, 2048, 4096}) {
      if (name({pattern, ranks}) == text) {
        return {pattern, ranks};
      }
    }
  }
  throw ConfigError({.file = "<command line>",
                     .where = "--case",
                     .found = "'" + text + "'",
                     .expected = "ring, all-to-all or churn, '/', and 64, 128, … 4096 ranks"});
}

std::uint64_t flows_of(const Case& what) {
  switch (what.pattern) {
    case Pattern::kRing:
      return 2 * what.ranks * (what.ranks - 1);
    case Pattern::kAllToAll:
      return what.ranks * (what.ranks - 1);
    case Pattern::kChurn:
      break;
  }
  return what.ranks * kChurnMessages;
}

/// The run with the least processor time: what else goes on in the machine only adds to it.
Measurement least(const std::vector<Measurement>& runs) {
  return *std::min_element(
      runs.begin(), runs.end(),
      [](const Measurement& a, const Measurement& b) { return a.cpu_seconds < b.cpu_seconds; });
}

/// The two sides take turns, so that both see the same machine.
Row compare(const Case& what, int repetitions) {
  constexpr double kLong = 10;
  std::vector<Measurement> rackrail;
  std::vector<Measurement> simgrid;
  for (int i = 0; i < repetitions && (i == 0 || simgrid.back().cpu_seconds < kLong); ++i) {
    rackrail.push_back(measure([&] { return run_rackrail(what); }));
    simgrid.push_back(measure([&] { return run_simgrid(what); }));
  }
  for (const Measurement& side : {rackrail.back(), simgrid.back()}) {
    if (side.outcome.flows != flows_of(what)) {
      throw Error(fmt::format("{}: found {} flows, expected {}", name(what), side.outcome.flows,
                              flows_of(what)));
    }
  }
  return {what, least(rackrail), least(simgrid)};
}

nlohmann::json to_json(const Measurement& side) {
  return {{"simulated_seconds", side.outcome.simulated_seconds},
          {"cpu_seconds", side.cpu_seconds},
          {"setup_cpu_seconds", side.outcome.setup_cpu_seconds},
          {"flows_per_cpu_second", static_cast<double>(side.outcome.flows) / side.cpu_seconds},
          {"peak_mb", side.peak_mb}};
}

nlohmann::json to_json(const Row& row) {
  return {{"case", name(row.what)},
          {"flows", flows_of(row.what)},
          {"rackrail", to_json(row.rackrail)},
          {"simgrid", to_json(row.simgrid)},
          {"simulated_time_difference", row.time_difference()},
          {"cpu_ratio", row.ratio()}};
}

void print_header() {
  fmt::print("{:16} {:>9}  {:>21}  {:>10}  {:>17}  {:>19}  {:>6}  {:>15}\n", "", "", "simulated ms",
             "difference", "CPU s", "flows per CPU s", "CPU", "peak MB");
  fmt::print("{:16} {:>9}  {:>10} {:>10}  {:>10}  {:>8} {:>8}  {:>9} {:>9}  {:>6}  {:>7} {:>7}\n",
             "case", "flows", "rackrail", "SimGrid", "", "rackrail", "SimGrid", "rackrail",
             "SimGrid", "ratio", "rackrl", "SimGrid");
}

void print(const Row& row) {
  const Measurement& r = row.rackrail;
  const Measurement& s = row.simgrid;
  const auto flows = static_cast<double>(flows_of(row.what));
  fmt::print(
      "{:16} {:9}  {:10.4f} {:10.4f}  {:10.1e}  {:8.3f} {:8.3f}  {:9.0f} {:9.0f}  {:6.1f}  {:7.1f} "
      "{:7.1f}\n",
      name(row.what), flows_of(row.what), r.outcome.simulated_seconds * 1e3,
      s.outcome.simulated_seconds * 1e3, row.time_difference(), r.cpu_seconds, s.cpu_seconds,
      flows / r.cpu_seconds, flows / s.cpu_seconds, row.ratio(), r.peak_mb, s.peak_mb);
  std::fflush(stdout);
}

int run(int argc, char** argv) {
  CLI::App app(
      "The same flows in rackrail and in SimGrid (CM02): processor time of one thread, memory, and "
      "whether the simulated times agree.");
  std::vector<std::string> names{"ring/64",       "ring/256",       "ring/1024",
                                 "all-to-all/64", "all-to-all/256", "churn/1024"};
  int repetitions = 5;
  bool is_json = false;
  app.add_option("--case", names, "Pattern and ranks; may be given several times")
      ->capture_default_str();
  app.add_option("--repeat", repetitions, "The best of so many runs; one where SimGrid takes 10 s")
      ->check(CLI::Range(1, 99))
      ->capture_default_str();
  app.add_flag("--json", is_json, "Print JSON");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) {  // --help
      return app.exit(error);
    }
    throw ConfigError(error.what());
  }
  std::vector<Case> cases;
  for (const std::string& text : names) {
    cases.push_back(parse(text));
  }
  const Measurement nothing = measure([] { return Outcome(); });
  if (!is_json) {
    print_header();
  }
  bool agree = true;
  nlohmann::json rows = nlohmann::json::array();
  for (const Case& what : cases) {
    const Row row = compare(what, repetitions);
    agree = agree && std::abs(row.time_difference()) <= kTolerance;
    rows.push_back(to_json(row));
    if (!is_json) {
      print(row);
    }
  }
  if (is_json) {
    fmt::print("{}\n", nlohmann::json{{"rackrail", build_config::kGitRevision},
                                      {"compiler", build_config::kCompiler},
                                      {"build_type", build_config::kBuildType},
                                      {"simgrid", simgrid_version()},
                                      {"repetitions", repetitions},
                                      {"peak_mb_of_an_empty_run", nothing.peak_mb},
                                      {"cases", rows}}
                           .dump(2));
  } else {
    fmt::print("SimGrid {}; of each peak, {:.1f} MB are the program and its libraries\n",
               simgrid_version(), nothing.peak_mb);
  }
  if (!agree) {
    fmt::print(stderr, "peers_bench: simulated times differ by more than {:g}\n", kTolerance);
  }
  return agree ? 0 : 1;
}

}  // namespace
}  // namespace rackrail::bench

int main(int argc, char** argv) {
  try {
    return rackrail::bench::run(argc, argv);
  } catch (const rackrail::Error& error) {
    fmt::print(stderr, "peers_bench: {}\n", error.what());
    return error.is_bad_input() ? 2 : 1;
  }
}
