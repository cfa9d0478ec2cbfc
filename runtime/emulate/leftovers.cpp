#include "runtime/emulate/leftovers.hpp"

#include <fmt/format.h>
#include <linux/magic.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <optional>
#include <string_view>
#include <thread>
#include <vector>

#include "base/processes.hpp"

namespace rackrail::runtime::emulate {
namespace {

namespace fs = std::filesystem;

std::optional<pid_t> parse_pid(std::string_view text) {
  pid_t pid = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), pid);
  const bool is_whole = error == std::errc() && end == text.data() + text.size();
  return is_whole && pid > 0 ? std::optional(pid) : std::nullopt;
}

std::string read_whole(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

struct ProcessState {
  char state = 'X';
  std::string start_time;
};

/// None where there is no such process.
std::optional<ProcessState> process_state(pid_t pid) {
  const std::string text = read_whole(fmt::format("/proc/{}/stat", pid));
  // The name before the third field is in brackets and may hold anything.
  const std::size_t name_end = text.rfind(')');
  if (name_end == std::string::npos) {
    return std::nullopt;
  }
  ProcessState result;
  std::size_t field = 2;
  constexpr std::size_t kState = 3;
  constexpr std::size_t kStartTime = 22;
  std::size_t at = name_end + 1;
  while (field < kStartTime && at < text.size()) {
    const std::size_t begin = text.find_first_not_of(' ', at);
    if (begin == std::string::npos) {
      return std::nullopt;
    }
    at = std::min(text.find(' ', begin), text.size());
    if (++field == kState) {
      result.state = text[begin];
    }
    if (field == kStartTime) {
      result.start_time = text.substr(begin, at - begin);
    }
  }
  return result;
}

/// Whether the process that a mark names still runs.
bool is_alive(std::string_view mark) {
  const std::size_t colon = mark.find(':');
  const auto pid = parse_pid(mark.substr(0, colon));
  const auto state = pid ? process_state(*pid) : std::nullopt;
  return state && state->state != 'Z' && colon != std::string_view::npos &&
         state->start_time == mark.substr(colon + 1);
}

/// The value of kOwnerVariable in a process's environment; empty: it has none.
std::string mark_of(pid_t pid) {
  const std::string environment = read_whole(fmt::format("/proc/{}/environ", pid));
  const std::string wanted = std::string(kOwnerVariable) + "=";
  for (std::size_t at = 0; at < environment.size();) {
    const std::size_t end = std::min(environment.find('\0', at), environment.size());
    const std::string_view entry = std::string_view(environment).substr(at, end - at);
    if (entry.starts_with(wanted)) {
      return std::string(entry.substr(wanted.size()));
    }
    at = end + 1;
  }
  return "";
}

/// Kills live processes other than this one whose mark is wanted; how many.
std::size_t kill_once(const std::function<bool(const std::string&)>& is_wanted) {
  std::size_t killed = 0;
  for (const pid_t pid : process_ids()) {
    const HeldProcess process(pid);                                // before the look at its mark
    const std::string mark = pid == getpid() ? "" : mark_of(pid);  // a zombie has none
    if (process && !mark.empty() && is_wanted(mark)) {
      process.kill();
      ++killed;
    }
  }
  return killed;
}

/// Kills until none is left: one may have started another meanwhile.
std::size_t kill_marked(const std::function<bool(const std::string&)>& is_wanted) {
  constexpr int kRounds = 100;
  constexpr std::chrono::milliseconds kPause(20);
  std::size_t killed = 0;
  for (int round = 0; round < kRounds; ++round) {
    const std::size_t now = kill_once(is_wanted);
    if (now == 0) {
      break;
    }
    killed = std::max(killed, now);
    std::this_thread::sleep_for(kPause);
  }
  return killed;
}

/// Whether it leads to a namespace, as the names of live emulations do.
bool leads_to_namespace(const fs::path& path) {
  struct statfs status = {};
  return statfs(path.c_str(), &status) == 0 && status.f_type == NSFS_MAGIC;
}

/// "rackrail-<pid>-…", and a link, which no other program puts there.
bool is_own_name(const fs::path& path) {
  std::string name = path.filename().string();
  const std::string_view prefix = kNamePrefix;
  if (!name.starts_with(prefix)) {
    return false;
  }
  name.erase(0, prefix.size());
  const std::size_t dash = name.find('-');
  std::error_code status;
  return dash != std::string::npos && parse_pid(name.substr(0, dash)) &&
         fs::is_symlink(fs::symlink_status(path, status));
}

}  // namespace

std::string owner_mark() {
  const auto state = process_state(getpid());
  return fmt::format("{}:{}", getpid(), state ? state->start_time : "");
}

std::string namespace_name(const std::string& station) {
  std::string name = fmt::format("{}{}-", kNamePrefix, getpid());
  for (const char c : station) {
    const bool is_plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                          (c >= '0' && c <= '9') || c == '.' || c == '-' || c == '_';
    name += is_plain ? c : '_';
  }
  constexpr std::size_t kLongestName = 200;
  return name.substr(0, kLongestName);
}

Leftovers remove_leftovers() {
  Leftovers result;
  result.processes = kill_marked([](const std::string& mark) { return !is_alive(mark); });
  std::error_code status;
  std::vector<fs::path> names;
  for (const fs::directory_entry& entry : fs::directory_iterator(kNamesFolder, status)) {
    if (is_own_name(entry.path()) && !leads_to_namespace(entry.path())) {
      names.push_back(entry.path());
    }
  }
  for (const fs::path& name : names) {
    result.names += fs::remove(name, status) ? 1 : 0;
  }
  return result;
}

std::size_t kill_own_processes() {
  const std::string own = owner_mark();
  return kill_marked([&](const std::string& mark) { return mark == own; });
}

}  // namespace rackrail::runtime::emulate
