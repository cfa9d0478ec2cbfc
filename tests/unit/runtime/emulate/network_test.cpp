#include "runtime/emulate/network.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <functional>
#include <set>

#include "base/error.hpp"
#include "runtime/emulate/leftovers.hpp"
#include "runtime/emulate/tools.hpp"
#include "tests/support/skip.hpp"
#include "topology/reader.hpp"

namespace rackrail::runtime::emulate::network_test {
namespace {

namespace fs = std::filesystem;

NetworkPlan pair_plan() {
  return plan_network(
      topology::read_cluster_text(
          "pair.csv",
          "source,target,bandwidth,latency,kind\n"
          "host0,tor,100 Mbit/s,1 us,host-link\nhost1,tor,100 Mbit/s,1 us,host-link\n",
          {})
          .topology,
      1, 2);
}

/// What a command prints, run as a child that `prepare` has placed.
std::vector<std::string> output_of(std::vector<std::string> words,
                                   const std::function<void(ChildCommand&)>& prepare) {
  std::vector<std::string> lines;
  ChildProcesses children([&](std::size_t, std::string_view line) { lines.emplace_back(line); });
  ChildCommand command;
  command.words = std::move(words);
  prepare(command);
  children.start(command);
  while (children.running() > 0) {
    children.wait_for(1_s);
  }
  return lines;
}

std::set<std::string> own_names() {
  std::set<std::string> names;
  std::error_code status;
  for (const auto& entry : fs::directory_iterator(kNamesFolder, status)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with(fmt::format("{}{}-", kNamePrefix, getpid()))) {
      names.insert(name);
    }
  }
  return names;
}

std::string own_network() { return fs::read_symlink("/proc/thread-self/ns/net").string(); }

TEST_CASE("emulate network: a child is in its host's namespace, name and interfaces") {
  if (const std::string reason = namespaces_unavailable(); !reason.empty()) {
    RACKRAIL_SKIP(reason);
  }
  const EmulatedNetwork network(pair_plan());
  for (const std::size_t rank : {0U, 1U}) {
    const auto place = [&](ChildCommand& command) { network.place(command, Rank(rank)); };
    CHECK(output_of({"/bin/hostname"}, place) ==
          std::vector<std::string>{fmt::format("host{}", rank)});
    const auto interfaces = output_of({"/bin/ls", "/sys/class/net"}, place);
    CHECK(std::set<std::string>(interfaces.begin(), interfaces.end()) ==
          std::set<std::string>{"lo", "mgmt0", "rail0"});
    CHECK(output_of({"/bin/cat", "/proc/sys/net/ipv4/tcp_congestion_control"}, place) ==
          std::vector<std::string>{"reno"});
    // No way out: only the two networks, and no default route.
    for (const std::string& route : output_of({find_program("ip"), "route"}, place)) {
      CHECK(route.rfind("default", 0) != 0);
    }
  }
}

TEST_CASE("emulate network: what makes a rank of a launched job") {
  if (const std::string reason = namespaces_unavailable(); !reason.empty()) {
    RACKRAIL_SKIP(reason);
  }
  const EmulatedNetwork network(pair_plan());
  ChildCommand command;
  network.launch(command, Rank(1), {Rank(0), Rank(1)}, "a-secret");
  const auto& set = command.environment;
  CHECK(set.at("RACKRAIL_RANK") == "1");
  CHECK(set.at("RACKRAIL_WORLD_SIZE") == "2");
  CHECK(set.at("RACKRAIL_LOCAL_RANK") == "0");
  CHECK(set.at("RACKRAIL_COORDINATOR") == "10.78.0.2:29500");
  CHECK(set.at("RACKRAIL_JOB_TOKEN") == "a-secret");
  CHECK(set.at("RACKRAIL_INSECURE") == "1");
  CHECK(set.at("UCX_NET_DEVICES") == "rail0");

  // Of a job of one rank it is the first, wherever it is.
  network.launch(command, Rank(0), {Rank(1)}, "a-secret");
  CHECK(set.at("RACKRAIL_RANK") == "0");
  CHECK(set.at("RACKRAIL_WORLD_SIZE") == "1");
  CHECK(set.at("RACKRAIL_COORDINATOR") == "10.78.0.3:29500");
}

TEST_CASE("emulate network: names lead to the namespaces as long as it lives, and then are gone") {
  if (const std::string reason = namespaces_unavailable(); !reason.empty()) {
    RACKRAIL_SKIP(reason);
  }
  const std::string before = own_network();
  {
    const EmulatedNetwork network(pair_plan());
    CHECK(own_network() == before);
    CHECK(own_names().size() == 4);  // two hosts, a switch, the management network
    const auto seen = output_of(
        {find_program("ip"), "netns", "exec", namespace_name("host1"), "/bin/ls", "/sys/class/net"},
        [](ChildCommand&) {});
    CHECK(std::set<std::string>(seen.begin(), seen.end()) ==
          std::set<std::string>{"lo", "mgmt0", "rail0"});
    // Another start leaves alone what has an owner.
    CHECK(remove_leftovers().names == 0);
    CHECK(own_names().size() == 4);
  }
  CHECK(own_names().empty());
  CHECK(own_network() == before);
}

TEST_CASE("emulate network: a failing command of iproute2 is named, and nothing stays") {
  if (const std::string reason = namespaces_unavailable(); !reason.empty()) {
    RACKRAIL_SKIP(reason);
  }
  const NetworkNamespace network;
  CHECK_NOTHROW(run_batch("ip", "link set dev lo up\n", network.descriptor()));
  CHECK_THROWS_WITH(
      run_batch("ip", "link set dev lo up\nlink set dev nothing up\n", network.descriptor()),
      Catch::Contains("'ip link set dev nothing up'") && Catch::Contains("nothing"));
  NetworkPlan plan = pair_plan();
  plan.links[1].address_a = "10.77.0.999";
  CHECK_THROWS_AS(EmulatedNetwork(plan), RuntimeFailure);
  CHECK(own_names().empty());
}

TEST_CASE("emulate leftovers: only own names that lead nowhere go") {
  if (geteuid() != 0) {
    RACKRAIL_SKIP("writing to /run/netns needs root");
  }
  fs::create_directories(kNamesFolder);
  const fs::path folder = kNamesFolder;
  // No process has this id: it is above the kernel's limit for them.
  const fs::path dead = folder / "rackrail-4194999-host0";
  const fs::path stranger = folder / "rackrail-tests-host0";
  const fs::path file = folder / "rackrail-4194999-file";
  for (const fs::path& path : {dead, stranger, file}) {
    fs::remove(path);
  }
  fs::create_symlink("/proc/4194999/fd/3", dead);
  fs::create_symlink("/proc/4194999/fd/3", stranger);
  { std::ofstream(file) << "not a link"; }
  CHECK(remove_leftovers().names == 1);
  CHECK_FALSE(fs::is_symlink(dead));
  CHECK(fs::is_symlink(stranger));
  CHECK(fs::exists(file));
  fs::remove(stranger);
  fs::remove(file);
}

TEST_CASE("emulate leftovers: processes of a dead owner are ended, those of a live one are not") {
  ChildProcesses children([](std::size_t, std::string_view) {});
  const auto start = [&](const std::string& mark) {
    children.start({.words = {"/bin/sleep", "100"}, .environment = {{kOwnerVariable, mark}}});
  };
  start(owner_mark());
  start(fmt::format("{}:1", getpid()));  // another process that had this id long ago
  start("4194999:1");
  CHECK(remove_leftovers().processes == 2);
  std::set<std::size_t> ended;
  for (int i = 0; i < 20 && ended.size() < 2; ++i) {
    for (const ChildEnd& end : children.wait_for(100_ms)) {
      CHECK(end.signal == SIGKILL);
      ended.insert(end.child);
    }
  }
  CHECK(ended == std::set<std::size_t>{1, 2});
  CHECK(children.running() == 1);
  CHECK(kill_own_processes() == 1);
}

}  // namespace
}  // namespace rackrail::runtime::emulate::network_test
