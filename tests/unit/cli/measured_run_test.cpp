#include "cli/measured_run.hpp"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "base/file.hpp"
#include "plan/format.hpp"
#include "planner/planner.hpp"
#include "sim/simulator.hpp"
#include "tests/support/clusters.hpp"
#include "tests/support/paths.hpp"

namespace rackrail::cli::measured_run_test {
namespace {

plan::Plan some_plan() {
  const topology::Topology cluster = test::two_racks();
  plan::Workload workload;
  workload.name = "one-tensor";
  workload.tensors.push_back({.name = "w", .elements = 1'000'000, .ready_gap = 40_ms});
  planner::PlannerOptions options;
  options.local_batch = 32;
  options.compare_baselines = false;
  return planner::make_plan(cluster, workload, *sim::make_cost_model(cluster, {}), options);
}

class RunFile {
 public:
  explicit RunFile(const plan::Plan& plan) : plan_(plan) {
    run = {{"command", "train"},
           {"plan_name", plan.name},
           {"plan_digest", plan::digest(plan)},
           {"link_rates",
            {{{"link", "rack0-tor→core"}, {"planned_Bps", 4'000'000'000}, {"now_Bps", 2'000'000}}}},
           {"slow", nlohmann::json::array()}};
  }

  MeasuredRun read() const { return read_text(run.dump()); }
  MeasuredRun read_text(const std::string& text) const {
    const std::string path = (folder_.path() / "run.json").string();
    write_file_atomically(path, text);
    Session session;
    return read_measured_run(session, path, plan_);
  }
  /// What is wrong with it.
  ErrorContext refusal(const std::string& text) const {
    try {
      read_text(text);
    } catch (const ConfigError& error) {
      CHECK(std::string(error.what()).find('\n') == std::string::npos);
      return error.context();
    }
    FAIL("it is taken for a run");
    return {};
  }
  ErrorContext refusal() const { return refusal(run.dump()); }

  nlohmann::json run;

 private:
  const plan::Plan& plan_;
  test::TemporaryDirectory folder_;
};

TEST_CASE("a run says which links have another rate, and what else no plan for links can mend") {
  const plan::Plan plan = some_plan();
  RunFile file(plan);
  MeasuredRun run = file.read();
  REQUIRE(run.links.size() == 1);
  CHECK(run.links[0].name == "rack0-tor→core");
  CHECK(run.links[0].rate == Bandwidth(2'000'000));
  CHECK(run.notes.empty());

  const auto finding = [](double factor) {
    const nlohmann::json rank = {{"rank", "rack0-host0"}, {"time_factor", factor}};
    return nlohmann::json{{"ranks", nlohmann::json::array({rank})}};
  };
  file.run["slow"] = nlohmann::json::array({finding(3)});
  // In so many words: of a list of one, compilers make a list or what is in it.
  const nlohmann::json loss = {{"lost", {"rack1-host0", "rack1-host1"}},
                               {"new_workers_for", nlohmann::json::array({"rack1-host1"})}};
  file.run["losses_of_workers"] = nlohmann::json::array({loss});
  run = file.read();
  REQUIRE(run.notes.size() == 2);
  CHECK_THAT(run.notes[0], Catch::StartsWith("rack0-host0 took 3.0 times as long"));
  CHECK_THAT(run.notes[1], Catch::StartsWith("rack1-host0 was lost"));
  file.run["slow"] = {finding(3), finding(1)};  // it is well again
  CHECK(file.read().notes.size() == 1);
  file.run["link_rates"] = nlohmann::json::array();
  CHECK(file.read().links.empty());
}

TEST_CASE("what is no run of the plan, or one that measured no links, is refused in a line") {
  const plan::Plan plan = some_plan();
  const RunFile file(plan);
  CHECK(file.refusal("host,rate\n").found == "no JSON");
  CHECK(file.refusal("[1, 2]").found == "no JSON object");
  CHECK(file.refusal("{}").where == "command");
  RunFile other(plan);
  other.run["command"] = "plan";
  CHECK(other.refusal().found == "'plan'");
  other.run = file.run;
  other.run["plan_digest"] = "0123";
  CHECK(other.refusal().where == "plan_digest");
  other.run = file.run;
  other.run.erase("link_rates");
  CHECK_THAT(other.refusal().expected, Catch::Contains("--on-slow"));
  for (const nlohmann::json& rate : {nlohmann::json(0), nlohmann::json(-4), nlohmann::json(1.5),
                                     nlohmann::json("fast"), nlohmann::json()}) {
    other.run = file.run;
    other.run["link_rates"][0]["now_Bps"] = rate;
    CHECK(other.refusal().where == "link_rates[0].now_Bps");
  }
  for (const nlohmann::json& entry :
       {nlohmann::json(3), nlohmann::json::object(), nlohmann::json({{"link", 7}})}) {
    other.run = file.run;
    other.run["link_rates"][0] = entry;
    CHECK(other.refusal().where == "link_rates[0].link");
  }
}

}  // namespace
}  // namespace rackrail::cli::measured_run_test
