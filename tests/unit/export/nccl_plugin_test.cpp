// Loads the plugin and calls it as NCCL does, by the structure of every version.
#include <dlfcn.h>
#include <fmt/format.h>

#include <array>
#include <catch2/catch.hpp>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "base/file.hpp"
#include "export/nccl/plugin/tuner_abi.hpp"

namespace rackrail::nccl_tuner {

namespace {

constexpr int kAlgorithms = 7;
constexpr int kProtocols = 3;
constexpr int kAllReduce = 4;
constexpr std::size_t kMebi = std::size_t{1} << 20U;

std::vector<std::string>& log_lines() {
  static std::vector<std::string> lines;
  return lines;
}

// The signature that NCCL hands over.
void remember(int level, unsigned long /*subsystem*/, const char* /*file*/, int /*line*/,
              const char* format, ...) {
  std::array<char, 512> text{};
  va_list values;
  va_start(values, format);
  std::vsnprintf(text.data(), text.size(), format, values);
  va_end(values);
  log_lines().push_back(fmt::format("{} {}", level, text.data()));
}

bool was_logged(const std::string& part) {
  for (const std::string& line : log_lines()) {
    if (line.find(part) != std::string::npos) {
      return true;
    }
  }
  return false;
}

/// The library, loaded for the length of a test.
class Plugin {
 public:
  Plugin() : library_(dlopen(NCCL_TUNER_PLUGIN_PATH, RTLD_NOW | RTLD_LOCAL)) {
    INFO(NCCL_TUNER_PLUGIN_PATH);
    REQUIRE(library_ != nullptr);
    log_lines().clear();
  }
  ~Plugin() { dlclose(library_); }
  Plugin(const Plugin&) = delete;
  Plugin& operator=(const Plugin&) = delete;

  template <typename Tuner>
  const Tuner& version(int number) const {
    const std::string name = fmt::format("ncclTunerPlugin_v{}", number);
    const void* symbol = dlsym(library_, name.c_str());
    INFO(name);
    REQUIRE(symbol != nullptr);
    const auto& tuner = *static_cast<const Tuner*>(symbol);
    CHECK(std::string(tuner.name) == "rackrail");
    return tuner;
  }

 private:
  void* library_;
};

/// A table in a file that NCCL_TUNER_CONFIG_FILE names.
class TableFile {
 public:
  explicit TableFile(const std::string& content)
      : path_(std::filesystem::temp_directory_path() /
              fmt::format("rackrail-tuner-test-{}.csv", ::getpid())) {
    write_file_atomically(path_, content);
    ::setenv("NCCL_TUNER_CONFIG_FILE", path_.c_str(), 1);
  }
  ~TableFile() {
    std::filesystem::remove(path_);
    ::unsetenv("NCCL_TUNER_CONFIG_FILE");
  }
  TableFile(const TableFile&) = delete;
  TableFile& operator=(const TableFile&) = delete;

 private:
  std::filesystem::path path_;
};

constexpr const char* kTable =
    "# of a test\n"
    "allreduce,0,65536,nvls,simple,16,1,8,-1,-1,0\n"
    "allreduce,0,65536,tree,ll,8,1,8,-1,-1,0\n"
    "allreduce,65537,1073741824,ring,ll128,-1,1,8,-1,-1,32768\n";

/// NCCL's cost table, in which everything may be chosen and costs 7 µs.
struct Costs {
  std::array<float, kAlgorithms * kProtocols> entries;
  Costs() { entries.fill(7); }
  float& at(Algorithm algorithm, Protocol protocol) {
    return entries.at(static_cast<std::size_t>(static_cast<int>(algorithm) * kProtocols +
                                               static_cast<int>(protocol)));
  }
  float** for_nccl() { return reinterpret_cast<float**>(entries.data()); }
  /// How many entries are no longer as they were.
  int changed() const {
    int count = 0;
    for (const float entry : entries) {
      count += entry == 7 || entry == kIgnored ? 0 : 1;
    }
    return count;
  }
};

void* context_of(const TunerV5& tuner) {
  void* context = nullptr;
  NvlDomains domains{1, 8, 8};
  REQUIRE(tuner.init(&context, 42, 8, 1, remember, &domains, nullptr) == kSuccess);
  REQUIRE(context != nullptr);
  return context;
}

}  // namespace

TEST_CASE("version 2 of the tuner answers with algorithm, protocol and channels", "[export]") {
  const TableFile table(kTable);
  const Plugin plugin;
  const auto& tuner = plugin.version<TunerV2>(2);
  void* context = nullptr;
  REQUIRE(tuner.init(8, 1, remember, &context) == kSuccess);
  int algorithm = -1;
  int protocol = -1;
  int channels = 0;
  REQUIRE(tuner.get_coll_info(context, kAllReduce, 1024, 0, 1, 1, &algorithm, &protocol,
                              &channels) == kSuccess);
  CHECK(algorithm == 4);  // NVLS
  CHECK(protocol == 2);   // Simple
  CHECK(channels == 16);
  // Without NVLS the next line counts.
  REQUIRE(tuner.get_coll_info(context, kAllReduce, 1024, 0, 0, 1, &algorithm, &protocol,
                              &channels) == kSuccess);
  CHECK(algorithm == 0);  // tree
  CHECK(protocol == 0);   // LL
  CHECK(channels == 8);
  // What no line is about stays as NCCL has it.
  algorithm = protocol = -1;
  REQUIRE(tuner.get_coll_info(context, 2, 1024, 0, 1, 1, &algorithm, &protocol, &channels) ==
          kSuccess);
  CHECK(algorithm == -1);
  CHECK(protocol == -1);
  CHECK(tuner.destroy(context) == kSuccess);
  CHECK(was_logged("allreduce of 1024 bytes: nvls simple, channels 16"));
}

TEST_CASE("versions 3 and 4 of the tuner make the cost of their choice nothing", "[export]") {
  const TableFile table(kTable);
  const Plugin plugin;
  const auto& v3 = plugin.version<TunerV3>(3);
  const auto& v4 = plugin.version<TunerV4>(4);
  void* context = nullptr;
  REQUIRE(v3.init(8, 1, remember, &context) == kSuccess);
  {
    Costs costs;
    costs.at(Algorithm::kNvls, Protocol::kSimple) = kIgnored;
    int channels = 0;
    REQUIRE(v3.get_coll_info(context, kAllReduce, 4096, 1, costs.for_nccl(), kAlgorithms,
                             kProtocols, &channels) == kSuccess);
    CHECK(costs.at(Algorithm::kTree, Protocol::kLl) == 0);
    CHECK(costs.at(Algorithm::kNvls, Protocol::kSimple) == kIgnored);
    CHECK(costs.changed() == 1);
    CHECK(channels == 8);
  }
  REQUIRE(v3.destroy(context) == kSuccess);
  REQUIRE(v4.init(8, 1, remember, &context) == kSuccess);
  {
    Costs costs;
    int channels = 0;
    REQUIRE(v4.get_coll_info(context, kAllReduce, kMebi, 1, costs.for_nccl(), kAlgorithms,
                             kProtocols, 1, &channels) == kSuccess);
    CHECK(costs.at(Algorithm::kRing, Protocol::kLl128) == 0);
    CHECK(costs.changed() == 1);
    CHECK(channels == 0);  // -1 in the table: NCCL's own
  }
  {
    // A library that knows fewer algorithms than the table.
    Costs costs;
    int channels = 0;
    REQUIRE(v4.get_coll_info(context, kAllReduce, 4096, 1, costs.for_nccl(), 4, kProtocols, 1,
                             &channels) == kSuccess);
    CHECK(costs.at(Algorithm::kTree, Protocol::kLl) == 0);
    CHECK(costs.changed() == 1);
  }
  CHECK(v4.destroy(context) == kSuccess);
}

TEST_CASE("versions 5 to 7 of the tuner have their own first call, and give chunks", "[export]") {
  const TableFile table(kTable);
  const Plugin plugin;
  const auto& v5 = plugin.version<TunerV5>(5);
  void* context = context_of(v5);
  Costs costs;
  int channels = 0;
  REQUIRE(v5.get_coll_info(context, kAllReduce, 1024, 1, costs.for_nccl(), kAlgorithms, kProtocols,
                           0, &channels) == kSuccess);
  CHECK(costs.at(Algorithm::kNvls, Protocol::kSimple) == 0);
  CHECK(costs.changed() == 1);
  CHECK(channels == 16);
  CHECK(v5.finalize(context) == kSuccess);
  for (const int version : {6, 7}) {
    const auto& tuner = plugin.version<TunerV6>(version);
    NvlDomains domains{1, 8, 8};
    REQUIRE(tuner.init(&context, 42, 8, 1, remember, &domains, nullptr) == kSuccess);
    std::size_t chunk = 524288;
    REQUIRE(tuner.get_chunk_size(context, kAllReduce, kMebi, 1, 1, 8, &chunk) == kSuccess);
    CHECK(chunk == 32768);
    chunk = 524288;  // of another protocol than the table's
    REQUIRE(tuner.get_chunk_size(context, kAllReduce, kMebi, 1, 2, 8, &chunk) == kSuccess);
    CHECK(chunk == 524288);
    CHECK(tuner.finalize(context) == kSuccess);
  }
}

TEST_CASE("a tuner of other communicators, or without a table, leaves the choice to NCCL",
          "[export]") {
  Costs costs;
  int channels = 0;
  SECTION("another number of ranks") {
    const TableFile table(kTable);
    const Plugin plugin;
    const auto& tuner = plugin.version<TunerV4>(4);
    void* context = nullptr;
    REQUIRE(tuner.init(16, 2, remember, &context) == kSuccess);
    REQUIRE(tuner.get_coll_info(context, kAllReduce, 1024, 1, costs.for_nccl(), kAlgorithms,
                                kProtocols, 0, &channels) == kSuccess);
    CHECK(tuner.destroy(context) == kSuccess);
  }
  SECTION("no file") {
    ::setenv("NCCL_TUNER_CONFIG_FILE", "/nowhere/tuner.csv", 1);
    const Plugin plugin;
    const auto& tuner = plugin.version<TunerV4>(4);
    void* context = nullptr;
    REQUIRE(tuner.init(8, 1, remember, &context) == kSuccess);
    ::unsetenv("NCCL_TUNER_CONFIG_FILE");
    REQUIRE(tuner.get_coll_info(context, kAllReduce, 1024, 1, costs.for_nccl(), kAlgorithms,
                                kProtocols, 0, &channels) == kSuccess);
    CHECK(was_logged("2 rackrail tuner: no table at '/nowhere/tuner.csv'"));
    CHECK(tuner.destroy(context) == kSuccess);
  }
  SECTION("a folder") {
    ::setenv("NCCL_TUNER_CONFIG_FILE", "/tmp", 1);
    const Plugin plugin;
    const auto& tuner = plugin.version<TunerV4>(4);
    void* context = nullptr;
    REQUIRE(tuner.init(8, 1, remember, &context) == kSuccess);
    ::unsetenv("NCCL_TUNER_CONFIG_FILE");
    CHECK(was_logged("2 rackrail tuner: no table at '/tmp'"));
    CHECK(tuner.destroy(context) == kSuccess);
  }
  SECTION("a file that cannot be read, and no logger") {
    const TableFile table("allreduce,0,65536,trees,ll,8,1,8\n");
    const Plugin plugin;
    const auto& tuner = plugin.version<TunerV4>(4);
    void* context = nullptr;
    REQUIRE(tuner.init(8, 1, nullptr, &context) == kSuccess);
    REQUIRE(tuner.destroy(context) == kSuccess);
    REQUIRE(tuner.init(8, 1, remember, &context) == kSuccess);
    REQUIRE(tuner.get_coll_info(context, kAllReduce, 1024, 1, costs.for_nccl(), kAlgorithms,
                                kProtocols, 0, &channels) == kSuccess);
    CHECK(was_logged("line 1: 'trees' in column 4"));
    CHECK(tuner.destroy(context) == kSuccess);
  }
  CHECK(costs.changed() == 0);
  CHECK(channels == 0);
}

}  // namespace rackrail::nccl_tuner
