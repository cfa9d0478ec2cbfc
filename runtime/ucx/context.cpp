#include "runtime/ucx/context.hpp"

#include <sys/eventfd.h>
#include <ucs/config/global_opts.h>
#include <ucs/debug/log_def.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <mutex>
#include <span>
#include <sstream>
#include <system_error>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "runtime/ucx/sealed_address.hpp"

namespace rackrail::runtime {
namespace {

/// A setting by the name of its environment variable, and by the name that ucp_config_modify knows.
struct Setting {
  const char* variable;
  const char* name;
  const char* value;
};

// Slices are sent eagerly, so the sizes of TCP's own buffers matter: 8 KiB segments, the default,
// cost a system call each. The keep-alive interval is how soon a killed process is noticed over
// shared memory (sockets tell at once). UCX (1.13) aborts the process when one of several socket
// events taken at once closes the endpoint of a later one, as happens when a peer dies; so they are
// taken one by one, which costs nothing that could be measured. Of shared memory UCX takes 4.1 MiB
// a process at once, with 16 buffers at a time 0.7 MiB.
constexpr std::array<Setting, 5> kSettings{
    Setting{"UCX_TCP_TX_SEG_SIZE", "TX_SEG_SIZE", "128k"},
    Setting{"UCX_TCP_RX_SEG_SIZE", "RX_SEG_SIZE", "128k"},
    Setting{"UCX_TCP_MAX_POLL", "MAX_POLL", "1"},
    Setting{"UCX_MM_RX_BUFS_GROW", "MM_RX_BUFS_GROW", "16"},
    Setting{"UCX_KEEPALIVE_INTERVAL", "KEEPALIVE_INTERVAL", "1s"}};

// Memory shared between processes tells of a peer that died only when asked to. It is asked to
// where there is no network device, as in some sandboxes, and nothing else could tell; elsewhere
// UCX takes sockets in the mode for peer failure, over which lost workers were tried
// (runtime/README.md).
constexpr Setting kSharedMemoryAlone{"UCX_MM_ERROR_HANDLING", "ERROR_HANDLING", "y"};

// Without /dev/shm, or with a small one, as containers may have: UCX fails where it cannot have
// what it wants of it, though there are other ways.
constexpr Setting kNoPosixMemory{"UCX_TLS", "TLS", "^posix"};
constexpr const char* kSharedMemoryFolder = "/dev/shm";
constexpr std::uintmax_t kLeastSharedMemory = std::uintmax_t{2} << 20U;  // bytes

constexpr Duration kSleepWithoutArming = 1_ms;

/// What UCX last said of an error on this thread, in its own words.
thread_local std::string last_logged_error;  // NOLINT(*-avoid-non-const-global-variables)

ucs_log_func_rc_t keep_error(const char* /*file*/, unsigned /*line*/, const char* /*function*/,
                             ucs_log_level_t level, const ucs_log_component_config_t* /*component*/,
                             const char* format, va_list arguments) {
  if (level == UCS_LOG_LEVEL_FATAL) {
    return UCS_LOG_FUNC_RC_CONTINUE;
  }
  std::array<char, 256> text{};
  std::vsnprintf(text.data(), text.size(), format, arguments);
  last_logged_error = text.data();
  return UCS_LOG_FUNC_RC_STOP;
}

/// UCX logs to the standard output, between the lines of the program, and calls it an error that
/// a peer went away. Errors arrive here as exceptions or as failures of a peer; so nothing but its
/// last words before it aborts is printed, unless the user asks for its log.
void quieten_ucx() {
  static std::once_flag once;
  std::call_once(once, [] {
    if (std::getenv("UCX_LOG_LEVEL") == nullptr) {
      ucs_global_opts_set_value("LOG_LEVEL", "error");
      ucs_log_push_handler(keep_error);
    }
  });
}

}  // namespace

void check_ucx(ucs_status_t status, const char* what) {
  const std::string logged = std::exchange(last_logged_error, {});
  if (status != UCS_OK) {
    throw RuntimeFailure(std::string("transport ucx: ") + what + ": " + ucs_status_string(status) +
                         (logged.empty() ? "" : " (" + logged + ")"));
  }
}

namespace {

/// `devices`: that alone lead to other machines; null: as the environment says.
UcpContext open_context(std::span<const Setting> settings, const char* devices = nullptr) {
  ucp_config_t* raw_config = nullptr;
  check_ucx(ucp_config_read(nullptr, nullptr, &raw_config), "reading its configuration");
  const UcpConfig config(raw_config);
  for (const Setting& setting : settings) {
    if (std::getenv(setting.variable) == nullptr) {
      // A version of UCX that lacks one of them works with its own value.
      (void)ucp_config_modify(config.get(), setting.name, setting.value);
    }
  }
  if (devices != nullptr) {
    check_ucx(ucp_config_modify(config.get(), "NET_DEVICES", devices), "choosing devices");
  }
  ucp_params_t parameters = {};
  parameters.field_mask = UCP_PARAM_FIELD_FEATURES;
  parameters.features = UCP_FEATURE_AM | UCP_FEATURE_WAKEUP;
  ucp_context_h context = nullptr;
  check_ucx(ucp_init(&parameters, config.get(), &context), "opening a context");
  return UcpContext(context);
}

std::vector<Setting> settings_here() {
  std::vector<Setting> settings(kSettings.begin(), kSettings.end());
  std::error_code status;
  const std::filesystem::space_info space = std::filesystem::space(kSharedMemoryFolder, status);
  if (status || space.available < kLeastSharedMemory || access(kSharedMemoryFolder, W_OK) != 0) {
    settings.push_back(kNoPosixMemory);
  }
  return settings;
}

/// Whether the context reaches other processes by the memory of this machine only.
bool is_alone(const UcpContext& context) { return ucx_network_devices(context).empty(); }

}  // namespace

UcpContext open_ucx_context() {
  quieten_ucx();
  std::vector<Setting> settings = settings_here();
  UcpContext context = open_context(settings);
  if (is_alone(context)) {
    settings.push_back(kSharedMemoryAlone);
    context = open_context(settings);
  }
  return context;
}

UcpContext open_ucx_context_on(const std::string& devices) {
  quieten_ucx();
  UcpContext context = open_context(settings_here(), devices.c_str());
  if (is_alone(context)) {
    throw RuntimeFailure("transport ucx: it sees no device " + devices);
  }
  return context;
}

UcpWorker open_ucx_worker(const UcpContext& context) {
  ucp_worker_params_t parameters = {};
  parameters.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
  parameters.thread_mode = UCS_THREAD_MODE_SERIALIZED;
  ucp_worker_h worker = nullptr;
  const ucs_status_t status = ucp_worker_create(context.get(), &parameters, &worker);
  check_ucx(status, status == UCS_ERR_NO_MEMORY || status == UCS_ERR_NO_RESOURCE
                        ? "opening a worker (UCX_TLS=tcp,self does without shared memory)"
                        : "opening a worker");
  return UcpWorker(worker);
}

std::vector<std::string> ucx_devices(const UcpContext& context) {
  // UCP has no call for it but the one that prints: "#  resource 1  : md 1 dev 1 flags -- tcp/lo".
  char* text = nullptr;
  std::size_t size = 0;
  std::FILE* stream = open_memstream(&text, &size);
  if (stream == nullptr) {
    return {};
  }
  ucp_context_print_info(context.get(), stream);
  std::fclose(stream);
  const std::unique_ptr<char, decltype(&std::free)> owner(text, &std::free);

  std::vector<std::string> devices;
  std::istringstream lines(std::string(text, size));
  for (std::string line; std::getline(lines, line);) {
    const std::size_t device = line.rfind(' ');
    if (line.find(" resource ") != std::string::npos && device != std::string::npos &&
        line.find('/', device) != std::string::npos) {
      devices.push_back(line.substr(device + 1));
    }
  }
  return devices;
}

std::vector<std::string> ucx_network_devices(const UcpContext& context) {
  std::vector<std::string> found;
  for (const std::string& device : ucx_devices(context)) {
    // "self/memory0", "posix/memory", "cma/memory"; those of a GPU are beside them.
    const std::string name = device.substr(device.find('/') + 1);
    if (!name.starts_with("memory") && !name.ends_with("cuda") &&
        std::find(found.begin(), found.end(), name) == found.end()) {
      found.push_back(name);
    }
  }
  return found;
}

std::vector<std::byte> ucx_address(const UcpWorker& worker) {
  ucp_address_t* address = nullptr;
  std::size_t length = 0;
  check_ucx(ucp_worker_get_address(worker.get(), &address, &length), "asking for its address");
  const auto* bytes = reinterpret_cast<const std::byte*>(address);
  std::vector<std::byte> sealed = sealed_address({bytes, length});
  ucp_worker_release_address(worker.get(), address);
  return sealed;
}

UcxWaiter::UcxWaiter() {
  const int descriptor = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  if (descriptor < 0) {
    throw RuntimeFailure(std::string("transport ucx: making an event descriptor: ") +
                         std::strerror(errno));
  }
  descriptors_.push_back({.fd = descriptor, .events = POLLIN, .revents = 0});
}

UcxWaiter::~UcxWaiter() { ::close(descriptors_.front().fd); }

void UcxWaiter::add(const UcpWorker& worker) {
  int descriptor = -1;
  check_ucx(ucp_worker_get_efd(worker.get(), &descriptor), "asking for a wake-up descriptor");
  workers_.push_back(worker.get());
  descriptors_.push_back({.fd = descriptor, .events = POLLIN, .revents = 0});
}

bool UcxWaiter::arm() noexcept {
  bool is_armed = true;
  for (const ucp_worker_h worker : workers_) {
    const ucs_status_t armed = ucp_worker_arm(worker);
    if (armed == UCS_ERR_BUSY) {
      return false;  // something came in the meantime
    }
    is_armed = is_armed && armed == UCS_OK;
  }
  is_armed_ = is_armed;
  return true;
}

void UcxWaiter::sleep(Duration at_most) noexcept {
  if (!is_armed_) {
    at_most = std::min(at_most, kSleepWithoutArming);
  }
  constexpr std::int64_t kPerSecond = 1'000'000'000'000;
  const timespec time{.tv_sec = at_most.picoseconds() / kPerSecond,
                      .tv_nsec = at_most.picoseconds() % kPerSecond / 1000};
  thread_local std::vector<pollfd> descriptors;  // poll() writes there
  descriptors = descriptors_;
  ppoll(descriptors.data(), descriptors.size(), &time, nullptr);
  if (descriptors.front().revents != 0) {
    std::uint64_t count = 0;
    (void)!read(descriptors.front().fd, &count, sizeof count);
  }
}

void UcxWaiter::wake() noexcept {
  const std::uint64_t one = 1;
  // Fails only where the counter is at its end: then it is set already.
  (void)!write(descriptors_.front().fd, &one, sizeof one);
}

}  // namespace rackrail::runtime
