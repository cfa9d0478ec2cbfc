#include "runtime/launch/environment.hpp"

#include <catch2/catch.hpp>

#include "base/error.hpp"
#include "runtime/coordinator/local_socket.hpp"

namespace rackrail::runtime::environment_test {
namespace {

LaunchEnvironment detected(const EnvironmentMap& environment) {
  const std::optional<LaunchEnvironment> launch = detect_launch(environment);
  REQUIRE(launch.has_value());
  return *launch;
}

/// The context of the error that the environment causes.
ErrorContext refused(const EnvironmentMap& environment) {
  try {
    detect_launch(environment);
  } catch (const ConfigError& error) {
    CHECK(error.context().file == "<environment>");
    CHECK_FALSE(error.context().found.empty());
    CHECK_FALSE(error.context().expected.empty());
    return error.context();
  }
  FAIL("accepted");
  return {};
}

EnvironmentMap with(EnvironmentMap map, const std::string& name, const std::string& value) {
  map[name] = value;
  return map;
}
EnvironmentMap without(EnvironmentMap map, const std::string& name) {
  map.erase(name);
  return map;
}

const EnvironmentMap kRackrail = {
    {"RACKRAIL_RANK", "1"}, {"RACKRAIL_WORLD_SIZE", "4"}, {"RACKRAIL_COORDINATOR", "head:7000"}};
const EnvironmentMap kTorchrun = {{"RANK", "3"},
                                  {"WORLD_SIZE", "8"},
                                  {"LOCAL_RANK", "1"},
                                  {"MASTER_ADDR", "10.0.0.1"},
                                  {"MASTER_PORT", "29500"}};
const EnvironmentMap kOpenMpi = {{"OMPI_COMM_WORLD_RANK", "2"},
                                 {"OMPI_COMM_WORLD_SIZE", "4"},
                                 {"OMPI_COMM_WORLD_LOCAL_RANK", "2"},
                                 {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"},
                                 {"OMPI_MCA_ess_base_jobid", "3270115329"},
                                 {"PMIX_RANK", "2"},
                                 {"PMIX_NAMESPACE", "3270115329"}};
const EnvironmentMap kPmi = {{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}, {"PMI_JOBID", "job-17"}};
const EnvironmentMap kSlurm = {{"SLURM_PROCID", "5"},    {"SLURM_NTASKS", "16"},
                               {"SLURM_LOCALID", "1"},   {"SLURM_NODELIST", "gpu[07-10]"},
                               {"SLURM_JOB_ID", "4711"}, {"SLURM_STEP_ID", "0"}};
const char* const kTfConfig = R"({
  "cluster": {"chief": ["host0:2222"], "worker": ["host1:2222", "host2:3333"]},
  "task": {"type": "worker", "index": 1}})";

}  // namespace

TEST_CASE("no launcher is no error") {
  CHECK_FALSE(detect_launch({}).has_value());
  CHECK_FALSE(detect_launch({{"PATH", "/bin"}, {"RACKRAIL_COORDINATOR", "a:1"}}).has_value());
  // A common name, and the shell of a Slurm allocation.
  CHECK_FALSE(detect_launch({{"RANK", "colonel"}}).has_value());
  CHECK_FALSE(detect_launch({{"SLURM_JOB_ID", "1"}, {"SLURM_NTASKS", "4"}}).has_value());
  CHECK_FALSE(detect_launch({{"SLURM_PROCID", "0"}, {"SLURM_JOB_ID", "1"}, {"SLURM_NTASKS", "4"}}));
}

TEST_CASE("rackrail's own variables") {
  const LaunchEnvironment launch = detected(with(kRackrail, "RACKRAIL_LOCAL_RANK", "1"));
  CHECK(launch.launcher == "rackrail");
  CHECK(launch.rank == Rank(1));
  CHECK(launch.world_size == 4);
  CHECK(launch.local_rank == 1);
  CHECK(launch.coordinator == HostPort{"head", 7000});
  CHECK(launch.coordinator_source == "RACKRAIL_COORDINATOR");

  CHECK(refused(without(kRackrail, "RACKRAIL_COORDINATOR")).where == "RACKRAIL_COORDINATOR");
  CHECK(refused(without(kRackrail, "RACKRAIL_WORLD_SIZE")).where == "RACKRAIL_WORLD_SIZE");
}

TEST_CASE("torchrun's variables, and the port after its own") {
  const LaunchEnvironment launch = detected(kTorchrun);
  CHECK(launch.launcher == "torchrun");
  CHECK(launch.rank == Rank(3));
  CHECK(launch.world_size == 8);
  CHECK(launch.local_rank == 1);
  CHECK(launch.coordinator == HostPort{"10.0.0.1", 29501});

  CHECK(is_local_meeting(detected(with(kTorchrun, "LOCAL_WORLD_SIZE", "8")).coordinator));
  CHECK(detected(with(kTorchrun, "LOCAL_WORLD_SIZE", "4")).coordinator == launch.coordinator);

  CHECK(refused(without(kTorchrun, "MASTER_ADDR")).where == "MASTER_ADDR");
  CHECK(refused(with(kTorchrun, "MASTER_PORT", "0")).where == "MASTER_PORT");
  CHECK(refused(with(kTorchrun, "MASTER_PORT", "65535")).where == "MASTER_PORT");
  CHECK(refused(with(kTorchrun, "LOCAL_RANK", "8")).where == "LOCAL_RANK");
}

TEST_CASE("Open MPI on one host meets at a socket of this user, named by the job") {
  const LaunchEnvironment launch = detected(kOpenMpi);
  CHECK(launch.launcher == "Open MPI");
  CHECK(launch.rank == Rank(2));
  CHECK(launch.world_size == 4);
  CHECK(launch.local_rank == 2);
  CHECK(is_local_meeting(launch.coordinator));
  CHECK(detected(with(kOpenMpi, "OMPI_COMM_WORLD_RANK", "0")).coordinator == launch.coordinator);
  CHECK(detected(with(kOpenMpi, "OMPI_MCA_ess_base_jobid", "3270115330")).coordinator.host !=
        launch.coordinator.host);
  // Version 5 has only the namespace.
  const LaunchEnvironment version5 = detected(
      without(with(kOpenMpi, "PMIX_NAMESPACE", "prterun-host-17@1"), "OMPI_MCA_ess_base_jobid"));
  CHECK(is_local_meeting(version5.coordinator));
}

TEST_CASE("Open MPI over several hosts needs to be told where rank 0 is") {
  const EnvironmentMap two_hosts = with(kOpenMpi, "OMPI_COMM_WORLD_LOCAL_SIZE", "2");
  const ErrorContext error = refused(two_hosts);
  CHECK(error.where == "RACKRAIL_COORDINATOR");
  CHECK_THAT(error.expected, Catch::Contains("several hosts"));
  CHECK(detected(with(two_hosts, "RACKRAIL_COORDINATOR", "head:1")).coordinator ==
        HostPort{"head", 1});
}

TEST_CASE("PMI and PMIx") {
  const LaunchEnvironment pmi = detected(kPmi);
  CHECK(pmi.launcher == "PMI");
  CHECK(pmi.rank == Rank(1));
  CHECK(pmi.world_size == 2);
  CHECK(is_local_meeting(pmi.coordinator));
  CHECK(refused(without(kPmi, "PMI_JOBID")).where == "RACKRAIL_COORDINATOR");

  const EnvironmentMap pmix = {{"PMIX_RANK", "0"}, {"PMIX_NAMESPACE", "ns"}};
  CHECK(refused(pmix).where == "RACKRAIL_WORLD_SIZE");
  const LaunchEnvironment sized = detected(with(pmix, "RACKRAIL_WORLD_SIZE", "2"));
  CHECK(sized.launcher == "PMIx");
  CHECK(sized.world_size == 2);
}

TEST_CASE("Slurm meets at the first host of the step") {
  const LaunchEnvironment launch = detected(kSlurm);
  CHECK(launch.launcher == "Slurm");
  CHECK(launch.rank == Rank(5));
  CHECK(launch.world_size == 16);
  CHECK(launch.local_rank == 1);
  CHECK(launch.coordinator.host == "gpu07");
  CHECK(launch.coordinator.port >= 20'000);
  CHECK(detected(with(kSlurm, "SLURM_STEP_ID", "1")).coordinator.port != launch.coordinator.port);

  EnvironmentMap step = with(kSlurm, "SLURM_STEP_NODELIST", "gpu[09-10]");
  step["SLURM_STEP_NUM_TASKS"] = "8";
  CHECK(detected(step).coordinator.host == "gpu09");
  CHECK(detected(step).world_size == 8);

  // On one host at a socket that nobody else can reach.
  const LaunchEnvironment alone = detected(with(kSlurm, "SLURM_STEP_NODELIST", "gpu09"));
  CHECK(is_local_meeting(alone.coordinator));

  CHECK(refused(with(kSlurm, "SLURM_NODELIST", "gpu[07-")).where == "SLURM_NODELIST");
  CHECK(refused(without(kSlurm, "SLURM_JOB_ID")).where == "SLURM_JOB_ID");
}

TEST_CASE("srun with PMI is Slurm; mpirun inside a Slurm step is not") {
  EnvironmentMap both = with(kSlurm, "PMI_RANK", "5");
  both["PMI_SIZE"] = "16";
  CHECK(detected(both).launcher == "Slurm");
  CHECK(detected(with(kSlurm, "PMIX_RANK", "5")).launcher == "Slurm");

  both["PMI_RANK"] = "7";
  both["PMI_JOBID"] = "x";
  CHECK(detected(both).launcher == "PMI");
  EnvironmentMap mpirun = kOpenMpi;
  mpirun.insert(kSlurm.begin(), kSlurm.end());
  CHECK(detected(mpirun).launcher == "Open MPI");
}

TEST_CASE("TF_CONFIG counts the chief first") {
  const LaunchEnvironment launch = detected({{"TF_CONFIG", kTfConfig}});
  CHECK(launch.launcher == "TF_CONFIG");
  CHECK(launch.rank == Rank(2));
  CHECK(launch.world_size == 3);
  CHECK(launch.coordinator == HostPort{"host0", 2223});

  const LaunchEnvironment chief = detected(
      {{"TF_CONFIG",
        R"({"cluster": {"chief": ["a:1"], "worker": ["b:1"]}, "task": {"type": "chief", "index": 0}})"}});
  CHECK(chief.rank == Rank(0));
  const LaunchEnvironment no_chief = detected(
      {{"TF_CONFIG",
        R"({"cluster": {"worker": ["a:5", "b:5"]}, "task": {"type": "worker", "index": 1}})"}});
  CHECK(no_chief.rank == Rank(1));
  CHECK(no_chief.coordinator == HostPort{"a", 6});
}

TEST_CASE("a TF_CONFIG that is wrong names the place in it") {
  const auto where = [](const char* text) { return refused({{"TF_CONFIG", text}}).where; };
  CHECK(where("") == "TF_CONFIG");
  CHECK(where("{") == "TF_CONFIG");
  CHECK(where("[1]") == "TF_CONFIG");
  CHECK(where(R"({"task": {}})") == "TF_CONFIG.cluster");
  CHECK(where(R"({"cluster": {"worker": ["a:1"]}})") == "TF_CONFIG.task");
  CHECK(where(R"({"cluster": {"worker": ["a:1"]}, "task": {"type": "ps", "index": 0}})") ==
        "TF_CONFIG.task.type");
  CHECK(where(R"({"cluster": {"worker": ["a:1"]}, "task": {"type": "worker", "index": 1}})") ==
        "TF_CONFIG.task.index");
  CHECK(where(R"({"cluster": {"worker": ["a:1"]}, "task": {"type": "worker", "index": -1}})") ==
        "TF_CONFIG.task.index");
  CHECK(where(R"({"cluster": {"worker": "a:1"}, "task": {"type": "worker", "index": 0}})") ==
        "TF_CONFIG.cluster.worker");
  CHECK(where(R"({"cluster": {"worker": ["a:1", 2]}, "task": {"type": "worker", "index": 0}})") ==
        "TF_CONFIG.cluster.worker[1]");
  CHECK(where(R"({"cluster": {"worker": ["a", "b"]}, "task": {"type": "worker", "index": 0}})") ==
        "TF_CONFIG.cluster");
}

TEST_CASE("the order among launchers is the documented one") {
  EnvironmentMap all = kSlurm;
  all.insert(kOpenMpi.begin(), kOpenMpi.end());
  CHECK(detected(all).launcher == "Open MPI");
  all.insert(kTorchrun.begin(), kTorchrun.end());
  CHECK(detected(all).launcher == "torchrun");
  all.emplace("TF_CONFIG", kTfConfig);
  CHECK(detected(all).launcher == "TF_CONFIG");
  all.insert(kRackrail.begin(), kRackrail.end());
  CHECK(detected(all).launcher == "rackrail");
}

TEST_CASE("numbers that are none are refused by name, for every launcher") {
  const std::pair<EnvironmentMap, const char*> cases[] = {{kRackrail, "RACKRAIL_RANK"},
                                                          {kRackrail, "RACKRAIL_WORLD_SIZE"},
                                                          {kTorchrun, "RANK"},
                                                          {kTorchrun, "WORLD_SIZE"},
                                                          {kOpenMpi, "OMPI_COMM_WORLD_RANK"},
                                                          {kOpenMpi, "OMPI_COMM_WORLD_SIZE"},
                                                          {kPmi, "PMI_RANK"},
                                                          {kPmi, "PMI_SIZE"},
                                                          {kSlurm, "SLURM_PROCID"},
                                                          {kSlurm, "SLURM_NTASKS"}};
  for (const auto& [environment, variable] : cases) {
    for (const char* value : {"", "x", "1x", "-1", " 1", "1.5", "99999999999999999999"}) {
      CAPTURE(variable, value);
      CHECK(refused(with(environment, variable, value)).where == variable);
    }
  }
  CHECK(refused(with(kTorchrun, "RANK", "8")).expected == "a number from 0 to 7");
  CHECK(refused(with(kTorchrun, "WORLD_SIZE", "0")).where == "WORLD_SIZE");
}

TEST_CASE("a job of one worker meets nobody") {
  const LaunchEnvironment launch =
      detected({{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "1"}});
  CHECK(launch.coordinator == HostPort{"127.0.0.1", 0});
}

TEST_CASE("the environment of this process is read whole") {
  setenv("RACKRAIL_TEST_VARIABLE", "a=b", 1);
  const EnvironmentMap environment = process_environment();
  unsetenv("RACKRAIL_TEST_VARIABLE");
  CHECK(environment.at("RACKRAIL_TEST_VARIABLE") == "a=b");
}

}  // namespace rackrail::runtime::environment_test
