#include "cli/insecure_flag.hpp"

#include <CLI/CLI.hpp>
#include <cstdlib>

#include "runtime/coordinator/tls.hpp"

namespace rackrail::cli {

void add_insecure_flag(CLI::App& command) {
  command.add_flag_callback(
      "--insecure", [] { setenv(runtime::kInsecureVariable, "1", 1); },
      "Let the job's secret cross the network without encryption, as RACKRAIL_INSECURE=1 does");
}

}  // namespace rackrail::cli
