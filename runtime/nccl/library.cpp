#include "runtime/nccl/library.hpp"

#include <dlfcn.h>
#include <fmt/format.h>

#include <cstdlib>
#include <string_view>
#include <vector>

#include "base/build_config.hpp"

namespace rackrail::runtime {
namespace {

// The first whose communicators can be split; older ones read another NcclConfig.
constexpr int kOldestVersion = 21800;

/// Sets function pointers by name, and remembers the first that is missing.
class Symbols {
 public:
  explicit Symbols(void* library) : library_(library) {}

  template <typename Function>
  void optional(Function*& function, const char* name) {
    function = reinterpret_cast<Function*>(dlsym(library_, name));
  }
  template <typename Function>
  void required(Function*& function, const char* name) {
    optional(function, name);
    if (function == nullptr && missing_.empty()) {
      missing_ = name;
    }
  }
  const std::string& missing() const { return missing_; }

 private:
  void* library_;
  std::string missing_;
};

std::string fill(NcclFunctions& f, void* library) {
  Symbols symbols(library);
  symbols.required(f.get_version, "ncclGetVersion");
  symbols.required(f.get_error_string, "ncclGetErrorString");
  symbols.required(f.get_last_error, "ncclGetLastError");
  symbols.required(f.get_unique_id, "ncclGetUniqueId");
  symbols.required(f.comm_init_rank_config, "ncclCommInitRankConfig");
  symbols.required(f.comm_split, "ncclCommSplit");
  symbols.required(f.comm_finalize, "ncclCommFinalize");
  symbols.required(f.comm_destroy, "ncclCommDestroy");
  symbols.required(f.comm_abort, "ncclCommAbort");
  symbols.required(f.comm_get_async_error, "ncclCommGetAsyncError");
  symbols.required(f.group_start, "ncclGroupStart");
  symbols.required(f.group_end, "ncclGroupEnd");
  symbols.required(f.send, "ncclSend");
  symbols.required(f.recv, "ncclRecv");
  symbols.required(f.all_reduce, "ncclAllReduce");
  symbols.required(f.reduce, "ncclReduce");
  symbols.required(f.reduce_scatter, "ncclReduceScatter");
  symbols.required(f.broadcast, "ncclBroadcast");
  symbols.required(f.all_gather, "ncclAllGather");
  symbols.optional(f.comm_shrink, "ncclCommShrink");
  return symbols.missing();
}

NcclLibrary refusal(std::string reason) {
  NcclLibrary library;
  library.status.unavailable = "no NCCL: " + std::move(reason);
  return library;
}

/// The file that the loader took, for which `name` may be short.
std::string path_of(const NcclFunctions& functions, const std::string& name) {
  Dl_info info = {};
  const auto* address = reinterpret_cast<const void*>(functions.get_version);
  return dladdr(address, &info) != 0 && info.dli_fname != nullptr ? info.dli_fname : name;
}

std::vector<std::string> places() {
  if (const char* named = std::getenv("RACKRAIL_NCCL_LIBRARY")) {
    return {named};
  }
  std::vector<std::string> files{"libnccl.so.2"};
  if (!build_config::kNcclLibrary.empty()) {
    files.emplace_back(build_config::kNcclLibrary);
  }
  return files;
}

}  // namespace

std::string nccl_version_text(int version) {
  return fmt::format("{}.{}.{}", version / 10'000, version / 100 % 100, version % 100);
}

NcclLibrary load_nccl(const std::string& file) {
  void* handle = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* reason = dlerror();
    return refusal(reason == nullptr ? file + " cannot be loaded" : reason);
  }
  NcclLibrary library;
  if (const std::string missing = fill(library.functions, handle); !missing.empty()) {
    return refusal(file + " has no " + missing);
  }
  if (library.functions.get_version(&library.version) != NcclResult::kSuccess ||
      library.version < kOldestVersion) {
    return refusal(fmt::format("{} is version {}, expected {} or newer", file,
                               nccl_version_text(library.version),
                               nccl_version_text(kOldestVersion)));
  }
  library.status.detail =
      fmt::format("{} ({})", nccl_version_text(library.version), path_of(library.functions, file));
  return library;
}

const NcclLibrary& nccl_library() {
  static const NcclLibrary library = [] {
    NcclLibrary found;
    std::string first_reason;
    for (const std::string& file : places()) {
      found = load_nccl(file);
      if (!found.status.unavailable) {
        return found;
      }
      first_reason = first_reason.empty() ? *found.status.unavailable : first_reason;
    }
    found.status.unavailable = first_reason;
    return found;
  }();
  return library;
}

}  // namespace rackrail::runtime
