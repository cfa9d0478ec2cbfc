// Where NCCL is on this machine, if it is.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "runtime/nccl/functions.hpp"

namespace rackrail::runtime {

struct NcclStatus {
  std::optional<std::string> unavailable;  ///< why there is no NCCL here
  std::string detail;                      ///< else its version and file
};

/// The table of the NCCL of this process, and whether it could be loaded.
struct NcclLibrary {
  NcclFunctions functions;
  int version = 0;  ///< 22809 is 2.28.9
  NcclStatus status;
};

/// "2.28.9" of 22809.
std::string nccl_version_text(int version);

/// Loads `file` by dlopen(): a shared library that has NCCL's functions, of version 2.18 or newer.
/// Does not throw: status says what is missing. What is loaded stays so until the process ends, as
/// NCCL has threads of its own.
NcclLibrary load_nccl(const std::string& file);

/// The file that RACKRAIL_NCCL_LIBRARY names, else libnccl.so.2 where the loader finds it, else
/// where it was when rackrail was built. Looks once per process; thread-safe.
const NcclLibrary& nccl_library();

}  // namespace rackrail::runtime
