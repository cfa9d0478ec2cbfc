#include <catch2/catch.hpp>

#include "base/error.hpp"
#include "plan/workload.hpp"
#include "plan/workloads/kineto_trace.hpp"
#include "tests/support/traces.hpp"

namespace rackrail::plan::kineto_test {
namespace {

using Catch::Contains;

Workload read(const std::string& text) { return read_workload_text(text, "job.pt.trace.json"); }

std::string error_of(const std::string& text) {
  try {
    const Workload unused = read(text);
    FAIL("accepted a workload of " << unused.tensors.size() << " tensors");
  } catch (const ConfigError& e) {
    return e.what();
  }
  return {};
}

TEST_CASE("gradients of a trace are ready when the kernels before them end") {
  const Workload workload = read(test::small_step().text());
  REQUIRE(workload.tensors.size() == 2);
  CHECK(workload.tensors[0].elements == 512'000);
  CHECK(workload.tensors[0].shape == MatrixShape{1000, 512});
  CHECK_THAT(workload.tensors[0].name, Contains("AddmmBackward0"));
  CHECK(workload.tensors[1].elements == 512);
  // Backward runs from 220 to 320, and to 520 for the second.
  CHECK(workload.tensors[0].ready_gap == 100_us);
  CHECK(workload.tensors[1].ready_gap == 200_us);
  CHECK(workload.forward == 120_us);
  CHECK(workload.optimizer == 50_us);
  CHECK(workload.profiled_batch == 32);
  CHECK(workload.device_class == "A100");
}

TEST_CASE("the all-reduces of backward stand for gradients without shapes") {
  std::string text = test::small_step().text();
  for (std::size_t at = 0; (at = text.find("AccumulateGrad\"", at)) != std::string::npos; ++at) {
    text.replace(at, 15, "Accumulated\"");
  }
  const Workload workload = read(text);
  REQUIRE(workload.tensors.size() == 1);
  CHECK(workload.tensors[0].name == "bucket.0");
  CHECK(workload.gradient_bytes() == Bytes(4'000'000));
  CHECK(workload.tensors[0].ready_gap == 100_us);
  CHECK_THAT(workload.notes.front(), Contains("record_shapes=True"));
}

TEST_CASE("collectives have kind, bytes and group from wherever the trace has them") {
  const Trace trace = read_trace("t", test::small_step().text());
  REQUIRE(trace.kernels.size() == 5);
  REQUIRE(trace.kernels[2].collective);
  CHECK(trace.kernels[2].collective->kind == CollectiveKind::kAllReduce);
  CHECK(trace.kernels[2].collective->bytes == 4'000'000);
  CHECK(trace.world_size == 4);

  // What newer traces say beside the kernel.
  test::TraceText newer;
  newer.kernel("ncclDevKernel_Generic", 0, 5, 10, 1,
               R"("Collective name": "_allgather_base", "In msg nelems": 1000,
                  "Out msg nelems": 8000, "Group size": 8, "dtype": "BFloat16")");
  newer.kernel("ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL", 20, 25, 10, 1,
               R"("Collective name": "_reduce_scatter_base", "In msg nelems": 8000,
                  "Out msg nelems": 1000, "Group size": 8, "dtype": "BFloat16")");
  const Trace second = read_trace("t", newer.text());
  REQUIRE(second.kernels.size() == 2);
  CHECK(second.kernels[0].collective->kind == CollectiveKind::kAllGather);
  CHECK(second.kernels[0].collective->bytes == 16'000);
  CHECK(second.kernels[0].collective->group_size == 8);
  CHECK(second.kernels[1].collective->kind == CollectiveKind::kReduceScatter);
  CHECK(second.kernels[1].collective->bytes == 16'000);
}

TEST_CASE("a step is what the profiler marks, else what optimisers end, else all") {
  CHECK(read_trace("t", test::small_step().text()).steps.size() == 1);
  test::TraceText marked;
  for (int step = 0; step < 4; ++step) {
    marked.event("user_annotation", "Optimizer.step#Adam.step", step * 100, 10, 1);
    marked.kernel("gemm", step * 100 + 20, step * 100 + 30, 10, 1);
  }
  const Trace trace = read_trace("t", marked.text());
  REQUIRE(trace.steps.size() == 3);
  CHECK(trace.steps[0].length() == Approx(100));
  CHECK_THAT(trace.notes.front(), Contains("no ProfilerStep"));
  const Trace bare = read_trace("t", test::TraceText().kernel("gemm", 0, 5, 10, 1).text());
  CHECK(bare.steps.size() == 1);
}

TEST_CASE("a list of events alone is a trace, too") {
  CHECK(is_trace(R"([{"ph": "X", "cat": "kernel", "name": "k", "ts": 1, "dur": 2}])"));
  CHECK(read_trace("t", R"([{"ph": "X", "cat": "kernel", "name": "k", "ts": 1, "dur": 2}])")
            .kernels.size() == 1);
  CHECK_FALSE(is_trace(R"({"model_type": "llama"})"));
  CHECK_FALSE(is_trace(""));
}

TEST_CASE("a trace that says too little is refused with what it needs") {
  CHECK_THAT(error_of(R"({"traceEvents": []})"), Contains("no work of a GPU"));
  CHECK_THAT(error_of(R"({"traceEvents": [{"ph": "X", "cat": "kernel", "ts": 1, "dur": 1}]})"),
             Contains("record_shapes=True"));
  CHECK_THAT(error_of(test::small_step().text().substr(0, 900)), Contains("broken JSON"));
  // Numbers that no clock shows are left out.
  CHECK_THAT(error_of(R"({"traceEvents": [{"ph": "X", "cat": "kernel", "ts": 1e300, "dur": 1},
      {"ph": "X", "cat": "kernel", "ts": 1, "dur": -1}, {"ph": "X", "cat": "kernel"}, 7, [[]]]})"),
             Contains("no work of a GPU"));
}

}  // namespace
}  // namespace rackrail::plan::kineto_test
