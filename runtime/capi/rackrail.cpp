#include "runtime/capi/rackrail.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "base/build_config.hpp"
#include "base/error.hpp"
#include "runtime/capi/context.hpp"
#include "runtime/transport.hpp"

struct rackrail_context {
  explicit rackrail_context(rackrail::capi::Settings settings) : context(std::move(settings)) {}
  rackrail::capi::Context context;
};

namespace {

using rackrail::BucketId;
using rackrail::ConfigError;
using rackrail::Duration;
using rackrail::Error;
using rackrail::ErrorContext;
using rackrail::PeerLostError;

std::string& last_error() {
  thread_local std::string line;
  return line;
}

rackrail_status failed(rackrail_status status, const char* line) {
  last_error() = line;
  return status;
}

/// No exception may leave the library.
template <typename Act>
rackrail_status guarded(Act act) noexcept {
  try {
    act();
    return RACKRAIL_OK;
  } catch (const PeerLostError& error) {
    return failed(RACKRAIL_PEER_LOST, error.what());
  } catch (const Error& error) {
    return failed(error.is_bad_input() ? RACKRAIL_BAD_INPUT : RACKRAIL_FAILED, error.what());
  } catch (const std::bad_alloc&) {
    return failed(RACKRAIL_FAILED, "out of memory");
  } catch (const std::exception& error) {
    return failed(RACKRAIL_FAILED, error.what());
  } catch (...) {
    return failed(RACKRAIL_FAILED, "an error of unknown kind");
  }
}

[[noreturn]] void reject(std::string where, std::string found, std::string expected) {
  throw ConfigError(ErrorContext{.file = {},
                                 .where = std::move(where),
                                 .found = std::move(found),
                                 .expected = std::move(expected)});
}

template <typename T>
T& required(T* pointer, const char* name) {
  if (pointer == nullptr) {
    reject(name, "NULL", "a pointer");
  }
  return *pointer;
}

// 64 TiB: a number that nobody has set is refused, not planned for.
constexpr std::int64_t kMostElements = std::int64_t{1} << 44U;

rackrail::capi::Context::Array array_of(const rackrail_buffer* given) {
  const rackrail_buffer& buffer = required(given, "buffer");
  if (buffer.size != sizeof buffer) {
    reject("buffer.size", std::to_string(buffer.size),
           std::to_string(sizeof buffer) + ", as in this version's rackrail.h");
  }
  if (buffer.type != RACKRAIL_FLOAT32) {
    reject("buffer.type", std::to_string(buffer.type), "RACKRAIL_FLOAT32");
  }
  if (buffer.device != RACKRAIL_HOST && buffer.device != RACKRAIL_CUDA) {
    reject("buffer.device", std::to_string(buffer.device), "RACKRAIL_HOST or RACKRAIL_CUDA");
  }
  if (buffer.elements < 0 || buffer.elements > kMostElements) {
    reject("buffer.elements", std::to_string(buffer.elements),
           "0 to " + std::to_string(kMostElements));
  }
  if (buffer.elements > 0 && buffer.data == nullptr) {
    reject("buffer.data", "NULL", "memory of " + std::to_string(buffer.elements) + " elements");
  }
  return {.data = {static_cast<float*>(buffer.data), static_cast<std::size_t>(buffer.elements)},
          .is_on_gpu = buffer.device == RACKRAIL_CUDA,
          .stream = buffer.stream};
}

float factor_of(std::int32_t operation, const rackrail::capi::Context& context) {
  if (operation == RACKRAIL_SUM) {
    return 1;
  }
  if (operation != RACKRAIL_MEAN) {
    reject("operation", std::to_string(operation), "RACKRAIL_SUM or RACKRAIL_MEAN");
  }
  return 1.0F / static_cast<float>(context.world_size());
}

std::uint32_t bucket_number(std::int32_t bucket) {
  if (bucket < 0) {
    reject("bucket", std::to_string(bucket), "a number that rackrail_plan() has given");
  }
  return static_cast<std::uint32_t>(bucket);
}

std::vector<rackrail::capi::BucketRequest> requests_of(const std::int64_t* elements,
                                                       const std::int64_t* ready,
                                                       std::int32_t count) {
  constexpr std::int32_t kMostBuckets = 1 << 16;
  constexpr std::int64_t kLongest = 3'600'000'000'000;  // an hour
  if (count < 1 || count > kMostBuckets) {
    reject("count", std::to_string(count), "1 to " + std::to_string(kMostBuckets));
  }
  std::vector<rackrail::capi::BucketRequest> requests;
  std::int64_t before = 0;
  for (std::int32_t i = 0; i < count; ++i) {
    const std::int64_t size = (&required(elements, "elements"))[i];
    const std::string index = "[" + std::to_string(i) + "]";
    if (size < 1 || size > std::numeric_limits<std::int32_t>::max()) {
      reject("elements" + index, std::to_string(size), "1 to 2147483647");
    }
    const std::int64_t at = ready == nullptr ? 0 : ready[i];
    if (at < before || at > kLongest) {
      reject("ready_nanoseconds" + index, std::to_string(at), "times in ascending order");
    }
    before = at;
    requests.push_back({size, Duration(at * 1000)});
  }
  return requests;
}

}  // namespace

const char* rackrail_version(void) { return rackrail::build_config::kVersion.data(); }

int32_t rackrail_interface(void) { return RACKRAIL_INTERFACE; }

const char* rackrail_unavailable(void) {
  static const std::string reason = [] {
    std::string reasons;
    try {
      for (const rackrail::runtime::TransportKind& kind : rackrail::runtime::transport_kinds()) {
        if (kind.name == "in-process") {
          continue;
        }
        if (!kind.unavailable) {
          return std::string();
        }
        reasons += (reasons.empty() ? "" : "; ") + kind.name + ": " + *kind.unavailable;
      }
    } catch (const std::exception& error) {
      reasons = error.what();
    }
    return "no transport between processes can be used: " + reasons;
  }();
  return reason.empty() ? nullptr : reason.c_str();
}

const char* rackrail_last_error(void) { return last_error().c_str(); }

rackrail_status rackrail_init(const rackrail_config* config, rackrail_context** context) {
  return guarded([&] {
    required(context, "context") = nullptr;
    auto made = std::make_unique<rackrail_context>(
        rackrail::capi::read_settings(config, rackrail::runtime::process_environment()));
    *context = made.release();
  });
}

int32_t rackrail_rank(const rackrail_context* context) {
  return context == nullptr ? 0 : static_cast<int32_t>(context->context.rank().value());
}

int32_t rackrail_world_size(const rackrail_context* context) {
  return context == nullptr ? 1 : static_cast<int32_t>(context->context.world_size());
}

rackrail_status rackrail_all_reduce(rackrail_context* context, const rackrail_buffer* buffer,
                                    int32_t operation) {
  return guarded([&] {
    auto& job = required(context, "context").context;
    job.all_reduce(array_of(buffer), factor_of(operation, job));
  });
}

rackrail_status rackrail_plan(rackrail_context* context, const int64_t* elements,
                              const int64_t* ready_nanoseconds, int32_t count, int32_t* first) {
  return guarded([&] {
    auto& job = required(context, "context").context;
    int32_t& number = required(first, "first");
    number = static_cast<int32_t>(job.plan(requests_of(elements, ready_nanoseconds, count)));
  });
}

rackrail_status rackrail_start(rackrail_context* context, int32_t bucket,
                               const rackrail_buffer* buffer, int32_t operation) {
  return guarded([&] {
    auto& job = required(context, "context").context;
    job.start(bucket_number(bucket), array_of(buffer), factor_of(operation, job));
  });
}

rackrail_status rackrail_wait(rackrail_context* context, int32_t bucket) {
  return guarded([&] { required(context, "context").context.wait(bucket_number(bucket)); });
}

rackrail_status rackrail_forget_errors(rackrail_context* context) {
  return guarded([&] { required(context, "context").context.forget_errors(); });
}

size_t rackrail_describe(const rackrail_context* context, char* text, size_t capacity) {
  std::string description = "[]";
  (void)guarded([&] { description = required(context, "context").context.describe(); });
  if (text != nullptr && capacity > 0) {
    const std::size_t length = std::min(capacity - 1, description.size());
    std::memcpy(text, description.data(), length);
    text[length] = '\0';
  }
  return description.size();
}

rackrail_status rackrail_finish(rackrail_context* context) {
  return guarded([&] { required(context, "context").context.finish(); });
}

void rackrail_abort(rackrail_context* context, const char* reason) {
  (void)guarded([&] {
    required(context, "context").context.abort(reason == nullptr ? "it was aborted" : reason);
  });
}

void rackrail_destroy(rackrail_context* context) { delete context; }
