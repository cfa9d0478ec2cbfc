// What somebody who is no worker asks a job's coordinator (job_status.hpp).
#pragma once

#include <optional>
#include <string>

#include "base/units.hpp"
#include "runtime/coordinator/host_port.hpp"
#include "runtime/coordinator/job_status.hpp"
#include "runtime/coordinator/tls.hpp"

namespace rackrail::runtime {

struct Inquirer {
  HostPort coordinator;
  std::string token;
  std::string token_source;  ///< a file, for errors; empty: the environment
  std::optional<TlsCertificates> tls{};
  bool is_network_private = false;  ///< nobody else reads it: no certificates are needed
};

// Each throws ConfigError when the token is not the job's or would cross a network in clear
// (require_private), RuntimeFailure when no coordinator
// answers there in time, or one that cannot be asked this.

JobStatus ask_for_status(const Inquirer& inquirer, Duration at_most = 5_s);
/// Returns once it is decided; the epoch with the other plan, where there is one, begins then.
ReplanAnswer ask_for_replan(const Inquirer& inquirer, Duration at_most = 120_s);

}  // namespace rackrail::runtime
