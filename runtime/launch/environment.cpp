#include "runtime/launch/environment.hpp"

#include <unistd.h>

#include <charconv>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "runtime/coordinator/job_token.hpp"
#include "runtime/coordinator/local_socket.hpp"
#include "runtime/launch/hostlist.hpp"

namespace rackrail::runtime {
namespace {

constexpr std::uint64_t kMostWorkers = 65'536;
constexpr std::string_view kCoordinatorVariable = "RACKRAIL_COORDINATOR";

std::string quoted(std::string_view text) { return "'" + std::string(text) + "'"; }

[[noreturn]] void reject(std::string_view variable, std::string found, std::string expected) {
  throw ConfigError(ErrorContext{.file = "<environment>",
                                 .where = std::string(variable),
                                 .found = std::move(found),
                                 .expected = std::move(expected)});
}

/// The variables, asked for by name.
class Variables {
 public:
  explicit Variables(const EnvironmentMap& map) : map_(map) {}

  std::optional<std::string_view> text(std::string_view name) const {
    const auto it = map_.find(name);
    if (it == map_.end()) {
      return std::nullopt;
    }
    return it->second;
  }
  bool has(std::string_view name) const { return text(name).has_value(); }

  std::string_view required(std::string_view name, const std::string& expected) const {
    const std::optional<std::string_view> value = text(name);
    if (!value || value->empty()) {
      reject(name, value ? "an empty value" : "nothing", expected);
    }
    return *value;
  }

  std::uint64_t number(std::string_view name, std::uint64_t least, std::uint64_t most) const {
    const std::string expected =
        "a number from " + std::to_string(least) + " to " + std::to_string(most);
    const std::string_view value = required(name, expected);
    std::uint64_t result = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), result);
    if (error != std::errc{} || end != value.data() + value.size() || result < least ||
        result > most) {
      reject(name, quoted(value), expected);
    }
    return result;
  }

  std::uint64_t number_or(std::string_view name, std::uint64_t otherwise,
                          std::uint64_t most) const {
    return has(name) ? number(name, 0, most) : otherwise;
  }

 private:
  const EnvironmentMap& map_;
};

/// FNV-1a: any fixed hash will do, as long as all processes of a job compute the same.
std::uint16_t derived_port(std::string_view job_id) {
  std::uint64_t hash = 0xcbf29ce484222325ULL;
  for (const char c : job_id) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
  }
  return static_cast<std::uint16_t>(20'000 + hash % 10'000);
}

/// Rank and size from the variables that carry them, checked against each other.
LaunchEnvironment rank_and_size(const Variables& variables, std::string_view launcher,
                                std::string_view rank, std::string_view size) {
  LaunchEnvironment launch;
  launch.launcher = launcher;
  launch.world_size = variables.number(size, 1, kMostWorkers);
  launch.rank = Rank(static_cast<std::size_t>(variables.number(rank, 0, launch.world_size - 1)));
  return launch;
}

/// For launchers that do not say where rank 0 is: this host, if the job is known to be on one.
void meet_on_this_host(const Variables& variables, LaunchEnvironment& launch,
                       std::initializer_list<std::string_view> job_id_variables,
                       std::initializer_list<std::string_view> local_size_variables) {
  for (const std::string_view name : local_size_variables) {
    if (variables.has(name) && variables.number(name, 1, kMostWorkers) < launch.world_size) {
      reject(kCoordinatorVariable, "nothing",
             "host:port of rank 0, because the job runs on several hosts (" + std::string(name) +
                 " is " + std::string(*variables.text(name)) + " of " +
                 std::to_string(launch.world_size) + ") and " + launch.launcher +
                 " does not say where rank 0 is");
    }
  }
  for (const std::string_view name : job_id_variables) {
    const std::optional<std::string_view> id = variables.text(name);
    if (id && !id->empty()) {
      launch.coordinator = local_meeting(launch.launcher + " " + std::string(*id));
      launch.coordinator_source = "this host, by " + std::string(name);
      return;
    }
  }
  reject(kCoordinatorVariable, "nothing",
         "host:port of rank 0, because " + launch.launcher + " gives no job id to meet by");
}

LaunchEnvironment from_rackrail(const Variables& variables) {
  LaunchEnvironment launch =
      rank_and_size(variables, "rackrail", "RACKRAIL_RANK", "RACKRAIL_WORLD_SIZE");
  launch.local_rank = variables.number_or("RACKRAIL_LOCAL_RANK", 0, launch.world_size - 1);
  return launch;
}

void meet_by_rackrail(const Variables&, LaunchEnvironment&) {
  reject(kCoordinatorVariable, "nothing", "host:port of rank 0, because RACKRAIL_RANK is set");
}

/// TF_CONFIG's tasks as one list of "host:port", the chief first, and this task's place in it.
struct TaskList {
  std::vector<std::string> addresses;
  std::size_t self = 0;
};

TaskList read_tf_config(std::string_view text) {
  const std::string expected =
      R"(JSON such as {"cluster": {"worker": ["host:port", …]}, "task": {"type": "worker", )"
      R"("index": 0}})";
  const nlohmann::json config = nlohmann::json::parse(text, nullptr, false);
  if (!config.is_object()) {
    reject("TF_CONFIG", text.empty() ? "an empty value" : "text that is no JSON object", expected);
  }
  const auto object = [&](const char* name) -> const nlohmann::json& {
    const auto it = config.find(name);
    if (it == config.end() || !it->is_object()) {
      reject("TF_CONFIG." + std::string(name), it == config.end() ? "nothing" : it->dump(),
             "an object");
    }
    return *it;
  };
  const nlohmann::json& cluster = object("cluster");
  const nlohmann::json& task = object("task");

  const auto type = task.find("type");
  if (type == task.end() || !type->is_string() ||
      (*type != "worker" && *type != "chief" && *type != "master")) {
    reject("TF_CONFIG.task.type", type == task.end() ? "nothing" : type->dump(),
           R"("worker" or "chief": rackrail has no parameter-server or evaluator processes)");
  }
  const auto index = task.find("index");
  if (index == task.end() || !index->is_number_unsigned()) {
    reject("TF_CONFIG.task.index", index == task.end() ? "nothing" : index->dump(),
           "a number from 0");
  }

  TaskList tasks;
  std::optional<std::size_t> self;
  for (const char* role : {"chief", "master", "worker"}) {
    const auto list = cluster.find(role);
    const std::string where = "TF_CONFIG.cluster." + std::string(role);
    if (list == cluster.end()) {
      continue;
    }
    if (!list->is_array()) {
      reject(where, list->dump(), R"(a list of "host:port")");
    }
    for (std::size_t i = 0; i < list->size(); ++i) {
      const nlohmann::json& address = (*list)[i];
      if (!address.is_string()) {
        reject(where + "[" + std::to_string(i) + "]", address.dump(), R"("host:port")");
      }
      if (*type == role && index->get<std::uint64_t>() == i) {
        self = tasks.addresses.size();
      }
      tasks.addresses.push_back(address.get<std::string>());
    }
  }
  if (!self) {
    reject("TF_CONFIG.task.index", index->dump(),
           "an index into TF_CONFIG.cluster." + type->get<std::string>());
  }
  if (tasks.addresses.size() > kMostWorkers) {
    reject("TF_CONFIG.cluster", std::to_string(tasks.addresses.size()) + " tasks",
           "at most " + std::to_string(kMostWorkers));
  }
  tasks.self = *self;
  return tasks;
}

HostPort next_port(HostPort address, std::string_view variable) {
  if (address.port == std::numeric_limits<std::uint16_t>::max()) {
    reject(variable, std::to_string(address.port),
           "a port below 65535, because rackrail uses the next one");
  }
  ++address.port;
  return address;
}

LaunchEnvironment from_tf_config(const Variables& variables) {
  const TaskList tasks = read_tf_config(*variables.text("TF_CONFIG"));
  LaunchEnvironment launch;
  launch.launcher = "TF_CONFIG";
  launch.rank = Rank(tasks.self);
  launch.world_size = tasks.addresses.size();
  return launch;
}

void meet_by_tf_config(const Variables& variables, LaunchEnvironment& launch) {
  const TaskList tasks = read_tf_config(*variables.text("TF_CONFIG"));
  const HostPort first =
      parse_host_port(tasks.addresses.front(), "TF_CONFIG.cluster", "<environment>");
  launch.coordinator = next_port(first, "TF_CONFIG.cluster");
  launch.coordinator_source = "TF_CONFIG: the first task's port + 1";
  if (is_loopback(first.host) && !variables.has(kJobTokenVariable)) {
    launch.coordinator = local_meeting("TF_CONFIG " + std::to_string(first.port));
    launch.coordinator_source = "this host, by the first task's port in TF_CONFIG";
  }
}

LaunchEnvironment from_torchrun(const Variables& variables) {
  LaunchEnvironment launch = rank_and_size(variables, "torchrun", "RANK", "WORLD_SIZE");
  launch.local_rank = variables.number_or("LOCAL_RANK", 0, launch.world_size - 1);
  return launch;
}

void meet_by_torchrun(const Variables& variables, LaunchEnvironment& launch) {
  HostPort master;
  master.host = variables.required("MASTER_ADDR", "the host of rank 0");
  master.port = static_cast<std::uint16_t>(variables.number("MASTER_PORT", 1, 65'535));
  const HostPort next = next_port(master, "MASTER_PORT");
  // Who meets at loopback is on one host, too. With a token, strangers there are kept out by that.
  const bool is_open = is_loopback(master.host) && !variables.has(kJobTokenVariable);
  if (is_open || variables.number_or("LOCAL_WORLD_SIZE", 0, kMostWorkers) == launch.world_size) {
    // One job at a time has the port that torchrun's own store listens at.
    launch.coordinator = local_meeting("torchrun " + std::to_string(master.port));
    launch.coordinator_source = "this host, by MASTER_PORT";
    return;
  }
  launch.coordinator = next;
  launch.coordinator_source = "MASTER_ADDR and MASTER_PORT + 1";
}

LaunchEnvironment from_open_mpi(const Variables& variables) {
  LaunchEnvironment launch =
      rank_and_size(variables, "Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE");
  launch.local_rank = variables.number_or("OMPI_COMM_WORLD_LOCAL_RANK", 0, launch.world_size - 1);
  return launch;
}

void meet_by_open_mpi(const Variables& variables, LaunchEnvironment& launch) {
  meet_on_this_host(variables, launch, {"OMPI_MCA_ess_base_jobid", "PMIX_NAMESPACE"},
                    {"OMPI_COMM_WORLD_LOCAL_SIZE"});
}

LaunchEnvironment from_pmi(const Variables& variables) {
  const bool pmi = variables.has("PMI_RANK");
  LaunchEnvironment launch =
      rank_and_size(variables, pmi ? "PMI" : "PMIx", pmi ? "PMI_RANK" : "PMIX_RANK",
                    pmi ? "PMI_SIZE" : "RACKRAIL_WORLD_SIZE");
  launch.local_rank = variables.number_or("PMI_LOCAL_RANK", 0, launch.world_size - 1);
  return launch;
}

void meet_by_pmi(const Variables& variables, LaunchEnvironment& launch) {
  meet_on_this_host(variables, launch, {"PMIX_NAMESPACE", "PMI_JOBID", "PMI_KVSNAME"},
                    {"PMI_LOCAL_SIZE", "MPI_LOCALNRANKS"});
}

/// The variables of a step, where present, are more exact than those of its job.
std::string_view step_or_job(const Variables& variables, std::string_view step,
                             std::string_view job) {
  return variables.has(step) ? step : job;
}

std::string_view slurm_size(const Variables& variables) {
  return step_or_job(variables, "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS");
}

LaunchEnvironment from_slurm(const Variables& variables) {
  LaunchEnvironment launch =
      rank_and_size(variables, "Slurm", "SLURM_PROCID", slurm_size(variables));
  launch.local_rank = variables.number_or("SLURM_LOCALID", 0, launch.world_size - 1);
  return launch;
}

void meet_by_slurm(const Variables& variables, LaunchEnvironment& launch) {
  const std::string name(step_or_job(variables, "SLURM_STEP_NODELIST", "SLURM_NODELIST"));
  const std::string_view hosts = variables.required(name, "the hosts of the step");
  const std::string_view job = variables.required("SLURM_JOB_ID", "the number of the job");
  const std::string_view step = variables.text("SLURM_STEP_ID").value_or("0");
  const std::string id = std::string(job) + "." + std::string(step);
  const std::vector<std::string> first_two = expand_hostlist(hosts, name, 2);
  if (first_two.size() == 1) {
    launch.coordinator = local_meeting(launch.launcher + " " + id);
    launch.coordinator_source = "this host, by SLURM_JOB_ID";
    return;
  }
  launch.coordinator = {first_two.front(), derived_port(id)};
  launch.coordinator_source = "the first host of " + name + ", port derived from SLURM_JOB_ID";
}

/// srun --mpi=… sets both; see the header.
bool slurm_agrees_with_pmi(const Variables& variables) {
  const auto same = [&](std::string_view pmi, std::string_view slurm) {
    return !variables.has(pmi) || variables.text(pmi) == variables.text(slurm);
  };
  return same("PMI_RANK", "SLURM_PROCID") && same("PMIX_RANK", "SLURM_PROCID") &&
         same("PMI_SIZE", slurm_size(variables));
}

struct Launcher {
  bool is_there;
  LaunchEnvironment (*read)(const Variables&);
  /// Finds the coordinator where RACKRAIL_COORDINATOR does not say it.
  void (*meet)(const Variables&, LaunchEnvironment&);
};

}  // namespace

EnvironmentMap process_environment() {
  EnvironmentMap map;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const std::size_t equals = text.find('=');
    if (equals != std::string_view::npos) {
      map.emplace(text.substr(0, equals), text.substr(equals + 1));
    }
  }
  return map;
}

std::optional<LaunchEnvironment> detect_launch(const EnvironmentMap& environment) {
  const Variables variables(environment);
  const bool pmi = variables.has("PMI_RANK") || variables.has("PMIX_RANK");
  const bool slurm_step = variables.has("SLURM_PROCID") && variables.has("SLURM_STEP_ID");
  const Launcher launchers[] = {
      {variables.has("RACKRAIL_RANK"), from_rackrail, meet_by_rackrail},
      {variables.has("TF_CONFIG"), from_tf_config, meet_by_tf_config},
      {variables.has("RANK") && variables.has("WORLD_SIZE"), from_torchrun, meet_by_torchrun},
      {variables.has("OMPI_COMM_WORLD_RANK"), from_open_mpi, meet_by_open_mpi},
      {pmi && !(slurm_step && slurm_agrees_with_pmi(variables)), from_pmi, meet_by_pmi},
      {slurm_step, from_slurm, meet_by_slurm},
  };
  for (const Launcher& launcher : launchers) {
    if (!launcher.is_there) {
      continue;
    }
    LaunchEnvironment launch = launcher.read(variables);
    if (const auto address = variables.text(kCoordinatorVariable)) {
      launch.coordinator =
          parse_host_port(*address, std::string(kCoordinatorVariable), "<environment>");
      launch.coordinator_source = kCoordinatorVariable;
    } else if (launch.world_size == 1) {
      launch.coordinator = {"127.0.0.1", 0};
      launch.coordinator_source = "the only worker";
    } else {
      launcher.meet(variables, launch);
    }
    return launch;
  }
  return std::nullopt;
}

}  // namespace rackrail::runtime
