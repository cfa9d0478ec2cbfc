// A process that dies in the middle of a job, for tests; the token is in the environment.
//
//   mortal die <host:port> <rank>      joins, says "joined", and dies as by a crash
//   mortal freeze <host:port> <rank>   joins, says "joined", and stops, its connection still open
//   mortal coordinate <workers>        runs a coordinator, says its address, until it is killed
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <iostream>
#include <string>

#include "runtime/coordinator/client.hpp"
#include "runtime/coordinator/job_token.hpp"
#include "runtime/coordinator/server.hpp"

namespace {

using namespace rackrail;

int coordinate(const std::string& workers) {
  runtime::CoordinatorOptions options;
  options.token = runtime::read_job_token("");
  options.membership.world_size = std::stoul(workers);
  options.membership.version = "test";
  const runtime::CoordinatorServer server(options);
  std::cout << to_string(server.address()) << std::endl;
  while (true) {
    pause();
  }
}

int work(const std::string& end, const std::string& address, const std::string& rank) {
  runtime::CoordinatorClient client(runtime::parse_host_port(address, "argument 2"),
                                    runtime::read_job_token(""), {});
  runtime::JoinRequest request;
  request.rank = Rank(std::stoi(rank));
  request.host = "host-m";
  request.pid = getpid();
  request.version = "test";
  client.join(request, Duration(30'000'000'000'000));
  std::cout << "joined" << std::endl;
  raise(end == "die" ? SIGKILL : SIGSTOP);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    if (argc == 3) {
      return coordinate(argv[2]);
    }
    return argc == 4 ? work(argv[1], argv[2], argv[3]) : 2;
  } catch (const std::exception& error) {
    std::cout << "failed: " << error.what() << std::endl;
    return 1;
  }
}
