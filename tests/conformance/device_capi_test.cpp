// The C interface with gradients on a GPU, which is emulated: ranks are threads, each with a
// context of its own, and messages go through pinned memory.
#include <cuda_runtime_api.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <limits>
#include <thread>

#include "tests/conformance/on_device.hpp"
#include "tests/support/emulated_gpu/fibers.hpp"
#include "tests/support/skip.hpp"
#include "tests/unit/runtime/capi/ranks.hpp"

namespace rackrail::test::device_capi_test {
namespace {

using runtime::CudaStream;

void on_gpu(rackrail_config& config) { config.device = RACKRAIL_CUDA; }

TEST_CASE("C interface on a GPU: arrays and buckets of device and host give the exact sums") {
  if (const char* reason = rackrail_unavailable()) RACKRAIL_SKIP(reason);
  setenv("RACKRAIL_GPU_PATH", "staged", 1);
  const std::string problems = on_ranks(2, on_gpu, [](TestRank& rank) {
    const CudaStream stream;
    for (const std::size_t size : {1U, 1'023U, 5'000U, 70'001U}) {
      OnDevice array(values_of(rank.rank, size, 1), stream);
      const rackrail_buffer buffer = array.buffer();
      rank.expect(rackrail_all_reduce(rank.context, &buffer, RACKRAIL_SUM), RACKRAIL_OK, "sum");
      rank.expect(array.read() == sum_of(2, size, 1), "array of " + std::to_string(size));
      std::vector<float> host = values_of(rank.rank, size, 2);
      const rackrail_buffer host_buffer = buffer_of(host.data(), host.size());
      rank.expect(rackrail_all_reduce(rank.context, &host_buffer, RACKRAIL_MEAN), RACKRAIL_OK,
                  "mean of a host's array");
      std::vector<float> mean = sum_of(2, size, 2);
      std::for_each(mean.begin(), mean.end(), [](float& value) { value /= 2; });
      rank.expect(host == mean, "host's array of " + std::to_string(size));
    }
    const std::vector<std::int64_t> elements{30'000, 700};
    std::int32_t first = -1;
    rank.expect(rackrail_plan(rank.context, elements.data(), nullptr, 2, &first), RACKRAIL_OK,
                "plan");
    for (int step = 0; step < 3; ++step) {
      OnDevice large(values_of(rank.rank, 30'000, step), stream);
      std::vector<float> small = values_of(rank.rank, 700, step);
      const rackrail_buffer large_buffer = large.buffer();
      const rackrail_buffer small_buffer = buffer_of(small.data(), small.size());
      rank.expect(rackrail_start(rank.context, first, &large_buffer, RACKRAIL_SUM), RACKRAIL_OK,
                  "start");
      rank.expect(rackrail_start(rank.context, first + 1, &small_buffer, RACKRAIL_SUM), RACKRAIL_OK,
                  "start of a host's bucket");
      rank.expect(rackrail_wait(rank.context, first + 1), RACKRAIL_OK, "wait");
      rank.expect(rackrail_wait(rank.context, first), RACKRAIL_OK, "wait");
      rank.expect(large.read() == sum_of(2, 30'000, step), "bucket on the device");
      rank.expect(small == sum_of(2, 700, step), "bucket on the host");
    }
    rank.expect(rackrail_finish(rank.context), RACKRAIL_OK, "finish");
  });
  CHECK(problems == "");
}

TEST_CASE("C interface on a GPU: sums take no memory where earlier ones had as much") {
  if (const char* reason = rackrail_unavailable()) RACKRAIL_SKIP(reason);
  setenv("RACKRAIL_GPU_PATH", "staged", 1);
  const std::string problems = on_ranks(2, on_gpu, [](TestRank& rank) {
    const CudaStream stream;
    const std::int64_t elements = 5'000;
    std::int32_t bucket = -1;
    rank.expect(rackrail_plan(rank.context, &elements, nullptr, 1, &bucket), RACKRAIL_OK, "plan");
    std::vector<std::vector<float>> hosts;
    std::vector<OnDevice> devices;
    for (const std::size_t size : {70'001U, 1'023U, 5'000U}) {
      hosts.emplace_back(size);
      devices.emplace_back(std::vector<float>(size), stream);
    }
    const auto start_and_wait = [&](const rackrail_buffer& buffer) {
      rank.expect(rackrail_start(rank.context, bucket, &buffer, RACKRAIL_SUM), RACKRAIL_OK,
                  "start");
      rank.expect(rackrail_wait(rank.context, bucket), RACKRAIL_OK, "wait");
    };
    const auto all_reduce = [&](const rackrail_buffer& buffer) {
      rank.expect(rackrail_all_reduce(rank.context, &buffer, RACKRAIL_SUM), RACKRAIL_OK, "sum");
    };
    const auto sum_all = [&](int step, const auto& sum, std::size_t first) {
      for (std::size_t i = first; i < hosts.size(); ++i) {
        const std::size_t size = hosts[i].size();
        hosts[i] = values_of(rank.rank, size, step);
        runtime::copy_to_device<float>(hosts[i], devices[i].memory, stream.get());
        sum(buffer_of(hosts[i].data(), size));
        sum(devices[i].buffer());
        rank.expect(hosts[i] == sum_of(2, size, step), "host's " + std::to_string(size));
        rank.expect(devices[i].read() == sum_of(2, size, step), "GPU's " + std::to_string(size));
      }
    };
    int before = 0;
    for (int step = 0; step < 3; ++step) {
      sum_all(step, all_reduce, 0);
      sum_all(step, start_and_wait, 2);
      rank.expect(step == 0 || emulated_gpu::memory_calls == before, "memory was taken");
      rank.expect(emulated_gpu::memory_calls > before || step > 0, "nothing is counted");
      before = emulated_gpu::memory_calls;
    }
    rank.expect(rackrail_finish(rank.context), RACKRAIL_OK, "finish");
  });
  CHECK(problems == "");
}

TEST_CASE("C interface on a GPU: the caller's current device stays what it is") {
  if (const char* reason = rackrail_unavailable()) RACKRAIL_SKIP(reason);
  setenv("RACKRAIL_GPU_PATH", "staged", 1);
  setenv("EMULATED_GPUS", "2", 1);
  const std::string problems = on_ranks(2, on_gpu, [](TestRank& rank) {
    const CudaStream stream;
    OnDevice array(values_of(rank.rank, 640, 1), stream);
    const rackrail_buffer buffer = array.buffer();
    const std::int64_t elements = 640;
    std::int32_t bucket = -1;
    int device = -1;
    rank.expect(cudaSetDevice(1) == cudaSuccess, "a second device");
    rank.expect(rackrail_all_reduce(rank.context, &buffer, RACKRAIL_SUM), RACKRAIL_OK, "sum");
    rank.expect(rackrail_plan(rank.context, &elements, nullptr, 1, &bucket), RACKRAIL_OK, "plan");
    rank.expect(rackrail_start(rank.context, bucket, &buffer, RACKRAIL_MEAN), RACKRAIL_OK, "start");
    rank.expect(rackrail_wait(rank.context, bucket), RACKRAIL_OK, "wait");
    rank.expect(rackrail_finish(rank.context), RACKRAIL_OK, "finish");
    rank.expect(cudaGetDevice(&device) == cudaSuccess && device == 1, "another device");
  });
  unsetenv("EMULATED_GPUS");
  CHECK(problems == "");
}

TEST_CASE("a thread that chose no device is given no context on the first one") {
  if (const char* reason = rackrail_unavailable()) RACKRAIL_SKIP(reason);
  setenv("EMULATED_GPUS", "2", 1);
  int count = 0;
  REQUIRE(cudaGetDeviceCount(&count) == cudaSuccess);
  if (count < 2) RACKRAIL_SKIP("there is one GPU");
  const bool had_context = runtime::has_context(0);
  int current = -1;
  std::thread([&] {
    { const runtime::CurrentDevice here(1); }
    static_cast<void>(cudaGetDevice(&current));
  }).join();
  CHECK(runtime::has_context(1));
  CHECK(runtime::has_context(0) == had_context);
  CHECK(current == (had_context ? 0 : 1));
  REQUIRE(cudaSetDevice(0) == cudaSuccess);
  { const runtime::CurrentDevice here(1); }
  CHECK(cudaGetDevice(&current) == cudaSuccess);
  CHECK(current == 0);
  unsetenv("EMULATED_GPUS");
}

rackrail_buffer taken_for_device_memory(std::vector<float>& host) {
  rackrail_buffer buffer = buffer_of(host.data(), host.size());
  buffer.device = RACKRAIL_CUDA;
  return buffer;
}

void expect_refused_as_device_memory(TestRank& rank, std::vector<float>& host) {
  const rackrail_buffer wrong = taken_for_device_memory(host);
  rank.expect(rackrail_all_reduce(rank.context, &wrong, RACKRAIL_SUM), RACKRAIL_BAD_INPUT,
              "the host's memory as the device's");
  rank.expect(std::string(rackrail_last_error()).find("memory of the host") != std::string::npos,
              rackrail_last_error());
}

TEST_CASE("C interface on a GPU: memory that is not there is refused, and the job goes on") {
  if (const char* reason = rackrail_unavailable()) RACKRAIL_SKIP(reason);
  setenv("RACKRAIL_GPU_PATH", "staged", 1);
  const std::string problems = on_ranks(2, on_gpu, [](TestRank& rank) {
    std::vector<float> host(64);
    expect_refused_as_device_memory(rank, host);
    const CudaStream stream;
    OnDevice array(values_of(rank.rank, 64, 1), stream);
    const rackrail_buffer buffer = array.buffer();
    rank.expect(rackrail_all_reduce(rank.context, &buffer, RACKRAIL_SUM), RACKRAIL_OK, "sum");
    rank.expect(array.read() == sum_of(2, 64, 1), "the sum after it");
    rank.expect(rackrail_finish(rank.context), RACKRAIL_OK, "finish");
  });
  CHECK(problems == "");
}

TEST_CASE("C interface on a GPU: a job of one takes the device's memory as it is, and no other") {
  const std::string path = GENERATE("auto", "nccl");  // NCCL would carry nothing
  CAPTURE(path);
  setenv("RACKRAIL_GPU_PATH", path.c_str(), 1);
  const std::string problems = on_ranks(1, on_gpu, [](TestRank& rank) {
    constexpr std::int64_t kElements = 64;
    std::vector<float> host(kElements, 3.0F);
    const rackrail_buffer host_buffer = buffer_of(host.data(), host.size());
    expect_refused_as_device_memory(rank, host);
    const rackrail_buffer wrong = taken_for_device_memory(host);
    const CudaStream stream;
    OnDevice array(values_of(0, kElements, 1), stream);
    const rackrail_buffer buffer = array.buffer();
    std::int32_t bucket = -1;
    rank.expect(rackrail_plan(rank.context, &kElements, nullptr, 1, &bucket), RACKRAIL_OK, "plan");
    rank.expect(rackrail_start(rank.context, bucket, &wrong, RACKRAIL_SUM), RACKRAIL_BAD_INPUT,
                "the host's memory as the device's, in a bucket");
    for (const rackrail_buffer* given : {&buffer, &host_buffer}) {
      rank.expect(rackrail_all_reduce(rank.context, given, RACKRAIL_MEAN), RACKRAIL_OK, "mean");
      rank.expect(rackrail_start(rank.context, bucket, given, RACKRAIL_SUM), RACKRAIL_OK, "start");
      rank.expect(rackrail_wait(rank.context, bucket), RACKRAIL_OK, "wait");
    }
    rank.expect(array.read() == values_of(0, kElements, 1), "the device's array");
    rank.expect(host == std::vector<float>(kElements, 3.0F), "the host's array");
    rank.expect(rackrail_finish(rank.context), RACKRAIL_OK, "finish");
  });
  unsetenv("RACKRAIL_GPU_PATH");
  CHECK(problems == "");
}

TEST_CASE("C interface on a GPU: alone, too, any stream may read what was waited for") {
  const std::string problems = on_ranks(1, on_gpu, [](TestRank& rank) {
    constexpr std::int64_t kElements = 64;
    std::int32_t bucket = -1;
    rank.expect(rackrail_plan(rank.context, &kElements, nullptr, 1, &bucket), RACKRAIL_OK, "plan");
    for (const bool is_planned : {false, true}) {
      const CudaStream writer;
      const CudaStream reader;
      OnDevice array(values_of(0, kElements, 1), writer);
      const rackrail_buffer buffer = array.buffer();
      emulated_gpu::enqueue(reader.get(), [] {});
      rank.expect(!emulated_gpu::has_seen_all(reader.get()), "waited for before the sum");
      if (is_planned) {
        rank.expect(rackrail_start(rank.context, bucket, &buffer, RACKRAIL_SUM), RACKRAIL_OK,
                    "start");
        rank.expect(rackrail_wait(rank.context, bucket), RACKRAIL_OK, "wait");
      } else {
        rank.expect(rackrail_all_reduce(rank.context, &buffer, RACKRAIL_SUM), RACKRAIL_OK, "sum");
      }
      emulated_gpu::enqueue(reader.get(), [] {});
      rank.expect(emulated_gpu::has_seen_all(reader.get()),
                  is_planned ? "bucket not waited for" : "array not waited for");
    }
    rank.expect(rackrail_finish(rank.context), RACKRAIL_OK, "finish");
  });
  CHECK(problems == "");
}

TEST_CASE("C interface on a GPU: a bucket that could not be started may be started again") {
  if (const char* reason = rackrail_unavailable()) RACKRAIL_SKIP(reason);
  setenv("RACKRAIL_GPU_PATH", "staged", 1);
  const std::string problems = on_ranks(2, on_gpu, [](TestRank& rank) {
    constexpr std::int64_t kElements = 20'000;
    std::int32_t bucket = -1;
    rank.expect(rackrail_plan(rank.context, &kElements, nullptr, 1, &bucket), RACKRAIL_OK, "plan");
    std::vector<float> host = values_of(rank.rank, kElements, 1);
    const rackrail_buffer buffer = buffer_of(host.data(), host.size());
    emulated_gpu::largest_allocation = 1'000;  // its copy on the device is larger
    rank.expect(rackrail_start(rank.context, bucket, &buffer, RACKRAIL_SUM), RACKRAIL_FAILED,
                "start without memory");
    emulated_gpu::largest_allocation = std::numeric_limits<std::size_t>::max();
    rank.expect(rackrail_wait(rank.context, bucket), RACKRAIL_BAD_INPUT, "wait for nothing");
    rank.expect(rackrail_start(rank.context, bucket, &buffer, RACKRAIL_SUM), RACKRAIL_OK, "start");
    rank.expect(rackrail_wait(rank.context, bucket), RACKRAIL_OK, "wait");
    rank.expect(host == sum_of(2, kElements, 1), "the sum after it");
    rank.expect(rackrail_finish(rank.context), RACKRAIL_OK, "finish");
  });
  CHECK(problems == "");
}

TEST_CASE("C interface on a GPU: the environment that other threads may read stays as it is") {
  if (const char* reason = rackrail_unavailable()) RACKRAIL_SKIP(reason);
  const std::string path = GENERATE("staged", "auto");
  CAPTURE(path);
  setenv("RACKRAIL_GPU_PATH", path.c_str(), 1);
  setenv("RACKRAIL_SHARE_GPU", "1", 1);
  unsetenv("NCCL_HOSTID");
  // Its threads are the ranks: NCCL cannot be told that they are hosts, and is done without.
  const std::string problems = on_ranks(2, on_gpu, [](TestRank& rank) {
    rank.expect(rackrail_finish(rank.context), RACKRAIL_OK, "finish");
  });
  unsetenv("RACKRAIL_SHARE_GPU");
  CHECK(problems == "");
  CHECK(std::getenv("NCCL_HOSTID") == nullptr);
  CHECK(std::getenv("GRPC_VERBOSITY") == nullptr);
}

TEST_CASE("C interface on a GPU: ranks with threads that insist on NCCL hear what they lack") {
  if (const char* reason = rackrail_unavailable()) RACKRAIL_SKIP(reason);
  setenv("RACKRAIL_GPU_PATH", "nccl", 1);
  setenv("RACKRAIL_SHARE_GPU", "1", 1);
  unsetenv("NCCL_HOSTID");
  const std::string problems = on_ranks(2, on_gpu, [](TestRank&) {});
  unsetenv("RACKRAIL_SHARE_GPU");
  unsetenv("RACKRAIL_GPU_PATH");
  CHECK_THAT(problems, Catch::Contains("NCCL_HOSTID=rackrail-rank-0"));
  CHECK_THAT(problems, Catch::Contains("from its start"));
}

TEST_CASE("C interface on a GPU: a job of the host refuses the device's memory") {
  const std::string problems = on_ranks(
      1, [](rackrail_config&) {},
      [](TestRank& rank) {
        const CudaStream stream;
        OnDevice array({1, 2}, stream);
        const rackrail_buffer buffer = array.buffer();
        rank.expect(rackrail_all_reduce(rank.context, &buffer, RACKRAIL_SUM), RACKRAIL_BAD_INPUT,
                    "sum");
      });
  CHECK(problems == "");
}

}  // namespace
}  // namespace rackrail::test::device_capi_test
