// librackrail-nccl-tuner.so: NCCL asks it for each collective, it answers from the table that
// `rackrail tune-nccl` computed for this cluster.
//
// The table is the file that NCCL_TUNER_CONFIG_FILE names, else rackrail-tuner.csv beside the
// library. Without a table that can be read, and for a collective without a line, NCCL chooses by
// itself; the log says so (NCCL_DEBUG=INFO, NCCL_DEBUG_SUBSYS=TUNING). No exception leaves a
// function here: NCCL is C.
#include <dlfcn.h>

#include <cstdlib>
#include <exception>
#include <fstream>
#include <memory>
#include <new>
#include <optional>
#include <sstream>
#include <string>

#include "export/nccl/plugin/table.hpp"
#include "export/nccl/plugin/tuner_abi.hpp"

namespace rackrail::nccl_tuner {

namespace {

constexpr const char* kName = "rackrail";
constexpr const char* kTableFile = "rackrail-tuner.csv";

/// Of one communicator.
struct Context {
  Table table;
  std::size_t ranks = 1;
  std::size_t nodes = 1;
  Logger log = nullptr;
};

template <typename... Values>
void say(const Context& context, int level, const char* format, Values... values) {
  if (context.log != nullptr) {
    context.log(level, kLogTuning, __FILE__, __LINE__, format, values...);
  }
}

/// Path of the table; empty where the library does not know where it lies.
std::string table_path() {
  if (const char* named = std::getenv("NCCL_TUNER_CONFIG_FILE")) {
    return named;
  }
  Dl_info library;
  if (dladdr(reinterpret_cast<const void*>(&table_path), &library) == 0) {
    return {};
  }
  const std::string path = library.dli_fname;
  const std::size_t slash = path.rfind('/');
  return (slash == path.npos ? "" : path.substr(0, slash + 1)) + kTableFile;
}

/// None where it cannot be read, as a folder cannot.
std::optional<std::string> text_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  if (!file || !(text << file.rdbuf())) {
    return std::nullopt;
  }
  return text.str();
}

void load(Context& context) {
  const std::string path = table_path();
  const std::optional<std::string> text = text_of(path);
  if (!text) {
    say(context, kLogWarn, "rackrail tuner: no table at '%s': NCCL chooses by itself",
        path.c_str());
    return;
  }
  context.table = parse_table(*text);
  if (!context.table.problem.empty()) {
    say(context, kLogWarn, "rackrail tuner: %s, %s: NCCL chooses by itself", path.c_str(),
        context.table.problem.c_str());
    return;
  }
  say(context, kLogInfo, "rackrail tuner: %zu lines of %s for %zu ranks on %zu nodes",
      context.table.rules.size(), path.c_str(), context.ranks, context.nodes);
}

int init(std::size_t ranks, std::size_t nodes, Logger log, void** result) {
  try {
    auto context = std::make_unique<Context>();
    context->ranks = ranks;
    context->nodes = nodes;
    context->log = log;
    load(*context);
    *result = context.release();
    return kSuccess;
  } catch (const std::exception&) {
    return kSystemError;
  }
}

int init_v5(void** result, std::uint64_t /*communicator*/, std::size_t ranks, std::size_t nodes,
            Logger log, NvlDomains* /*domains*/, Constants* /*constants*/) {
  return init(ranks, nodes, log, result);
}

int destroy(void* context) {
  delete static_cast<Context*>(context);
  return kSuccess;
}

/// The first rule for the question that `may_choose` lets pass; null if none.
template <typename MayChoose>
const Rule* find_rule(const Context& context, const Question& question,
                      const MayChoose& may_choose) {
  for (const Rule& rule : context.table.rules) {
    if (matches(rule, question) && may_choose(rule)) {
      return &rule;
    }
  }
  return nullptr;
}

void say_choice(const Context& context, const Question& question, const Rule& rule) {
  say(context, kLogInfo, "rackrail tuner: %s of %zu bytes: %s %s, channels %ld",
      name_of(rule.function).data(), question.bytes, name_of(rule.algorithm).data(),
      name_of(rule.protocol).data(), rule.channels);
}

void set_channels(const Rule& rule, int* channels) {
  if (rule.channels > 0) {
    *channels = static_cast<int>(rule.channels);
  }
}

int get_coll_info_v2(void* handle, int function, std::size_t bytes, int collnet, int nvls,
                     int operations, int* algorithm, int* protocol, int* channels) {
  if (handle == nullptr) {
    return kInternalError;
  }
  const auto& context = *static_cast<const Context*>(handle);
  const Question question{function, bytes, context.nodes, context.ranks, operations};
  const Rule* rule = find_rule(context, question, [&](const Rule& one) {
    const bool is_collnet =
        one.algorithm == Algorithm::kCollnetDirect || one.algorithm == Algorithm::kCollnetChain;
    const bool is_nvls = one.algorithm == Algorithm::kNvls || one.algorithm == Algorithm::kNvlsTree;
    // The first versions do not know PAT.
    return (!is_collnet || collnet != 0) && (!is_nvls || nvls != 0) &&
           one.algorithm != Algorithm::kPat;
  });
  if (rule != nullptr) {
    *algorithm = static_cast<int>(rule->algorithm);
    *protocol = static_cast<int>(rule->protocol);
    set_channels(*rule, channels);
    say_choice(context, question, *rule);
  }
  return kSuccess;
}

int get_coll_info_v4(void* handle, int function, std::size_t bytes, int operations, float** costs,
                     int algorithms, int protocols, int is_registered, int* channels) {
  if (handle == nullptr) {
    return kInternalError;
  }
  const auto& context = *static_cast<const Context*>(handle);
  const Question question{function, bytes, context.nodes, context.ranks, operations, is_registered};
  // NCCL hands over a plain array of floats as a pointer to pointers.
  auto* const table = reinterpret_cast<float*>(costs);
  const auto entry = [&](const Rule& rule) -> float* {
    const int row = static_cast<int>(rule.algorithm);
    const int column = static_cast<int>(rule.protocol);
    return row < algorithms && column < protocols ? table + row * protocols + column : nullptr;
  };
  const Rule* rule = find_rule(context, question, [&](const Rule& one) {
    const float* cost = entry(one);
    return cost != nullptr && *cost != kIgnored;
  });
  if (rule != nullptr) {
    *entry(*rule) = 0;
    set_channels(*rule, channels);
    say_choice(context, question, *rule);
  }
  return kSuccess;
}

int get_coll_info_v3(void* handle, int function, std::size_t bytes, int operations, float** costs,
                     int algorithms, int protocols, int* channels) {
  return get_coll_info_v4(handle, function, bytes, operations, costs, algorithms, protocols, -1,
                          channels);
}

int get_chunk_size(void* handle, int function, std::size_t bytes, int algorithm, int protocol,
                   int /*channels*/, std::size_t* chunk_bytes) {
  if (handle == nullptr) {
    return kInternalError;
  }
  const auto& context = *static_cast<const Context*>(handle);
  Question question{function, bytes, context.nodes, context.ranks};
  question.operations = -1;  // not told here
  const Rule* rule = find_rule(context, question, [&](const Rule& one) {
    return static_cast<int>(one.algorithm) == algorithm &&
           static_cast<int>(one.protocol) == protocol;
  });
  if (rule != nullptr && rule->chunk_bytes > 0) {
    *chunk_bytes = static_cast<std::size_t>(rule->chunk_bytes);
  }
  return kSuccess;
}

}  // namespace

}  // namespace rackrail::nccl_tuner

// The names that NCCL looks for.
extern "C" {
extern const rackrail::nccl_tuner::TunerV2 ncclTunerPlugin_v2{
    rackrail::nccl_tuner::kName, rackrail::nccl_tuner::init, rackrail::nccl_tuner::get_coll_info_v2,
    rackrail::nccl_tuner::destroy};
extern const rackrail::nccl_tuner::TunerV3 ncclTunerPlugin_v3{
    rackrail::nccl_tuner::kName, rackrail::nccl_tuner::init, rackrail::nccl_tuner::get_coll_info_v3,
    rackrail::nccl_tuner::destroy};
extern const rackrail::nccl_tuner::TunerV4 ncclTunerPlugin_v4{
    rackrail::nccl_tuner::kName, rackrail::nccl_tuner::init, rackrail::nccl_tuner::get_coll_info_v4,
    rackrail::nccl_tuner::destroy};
extern const rackrail::nccl_tuner::TunerV5 ncclTunerPlugin_v5{
    rackrail::nccl_tuner::kName, rackrail::nccl_tuner::init_v5,
    rackrail::nccl_tuner::get_coll_info_v4, rackrail::nccl_tuner::destroy};
extern const rackrail::nccl_tuner::TunerV6 ncclTunerPlugin_v6{
    rackrail::nccl_tuner::kName, rackrail::nccl_tuner::init_v5,
    rackrail::nccl_tuner::get_coll_info_v4, rackrail::nccl_tuner::destroy,
    rackrail::nccl_tuner::get_chunk_size};
extern const rackrail::nccl_tuner::TunerV6 ncclTunerPlugin_v7{
    rackrail::nccl_tuner::kName, rackrail::nccl_tuner::init_v5,
    rackrail::nccl_tuner::get_coll_info_v4, rackrail::nccl_tuner::destroy,
    rackrail::nccl_tuner::get_chunk_size};
}
