// Files of models and traces as others wrote them, where they are there.
#include <catch2/catch.hpp>

#include <cstdlib>
#include <filesystem>

#include "base/error.hpp"
#include "base/file.hpp"
#include "base/gzip.hpp"
#include "explore/explain_trace.hpp"
#include "plan/workload.hpp"
#include "plan/workloads/kineto_trace.hpp"
#include "tests/support/paths.hpp"
#include "tests/support/skip.hpp"

namespace rackrail::workload_files_test {
namespace {

std::filesystem::path inputs() {
  const char* shared = std::getenv("RACKRAIL_SHARED");
  return (shared != nullptr ? std::filesystem::path(shared)
                            : test::source_dir() / ".." / "shared") /
         "inputs";
}

plan::Workload read(const std::filesystem::path& file) {
  return plan::read_workload(file.string(), test::source_dir() / "configs");
}

void unpack(const std::filesystem::path& archive, const std::filesystem::path& folder) {
  const std::string command = "tar xzf '" + archive.string() + "' -C '" + folder.string() + "'";
  REQUIRE(std::system(command.c_str()) == 0);
}

TEST_CASE("text workloads of SimAI and AICB are read") {
  const std::filesystem::path folder = inputs() / "simai";
  if (!std::filesystem::exists(folder)) RACKRAIL_SKIP("no samples in " + folder.string());
  const plan::Workload megatron = read(folder / "workload_analytical.txt");
  CHECK(megatron.gradient_bytes() == Bytes(5'615'517'696 + 38'654'705'664));
  CHECK(megatron.backward() > 1_s);
  const plan::Workload aicb =
      read(folder / "aicb-G13B-M1-C01_GPT13B_megatron_tp8_pp1_mbs1_A100.txt");
  CHECK(aicb.gradient_bytes() == Bytes(6'497'239'040));
}

TEST_CASE("an execution trace of PyTorch has the gradients of ResNet-50") {
  const std::filesystem::path file =
      inputs() / "traces" / "param-1.1.0-chakra.0.0.4_resnet_2gpu_et.json.gz";
  if (!std::filesystem::exists(file)) RACKRAIL_SKIP("no " + file.string());
  const plan::Workload workload = read(file);
  CHECK(workload.tensors.size() == 161);
  CHECK(workload.elements() == 25'557'032);  // torchvision's table of models
}

TEST_CASE("a trace of one GPU without shapes is explained, and no workload") {
  const std::filesystem::path file = inputs() / "traces" / "param-resnet_kineto.json.gz";
  if (!std::filesystem::exists(file)) RACKRAIL_SKIP("no " + file.string());
  const std::string text = gunzip(read_file(file), file.string());
  const explore::TraceExplanation all =
      explore::explain_trace(plan::read_trace(file.string(), text));
  CHECK(all.steps == 29);
  CHECK(all.collectives.empty());
  CHECK(all.bound == explore::TraceBound::kLaunches);
  CHECK_THROWS_WITH(read(file), Catch::Contains("record_shapes=True"));
}

TEST_CASE("archives of traces are refused with what is in them") {
  for (const char* name : {"traces/param-dlrm_kineto.tar.gz", "chakra/chakra-0.et.tar.gz"}) {
    const std::filesystem::path file = inputs() / name;
    if (!std::filesystem::exists(file)) RACKRAIL_SKIP("no " + file.string());
    CHECK_THROWS_WITH(read(file), Catch::Contains("a tar archive"));
  }
}

TEST_CASE("traces of a recommender on eight GPUs say what each rank waits for") {
  const std::filesystem::path archive = inputs() / "traces" / "param-dlrm_kineto.tar.gz";
  if (!std::filesystem::exists(archive)) RACKRAIL_SKIP("no " + archive.string());
  const test::TemporaryDirectory folder;
  unpack(archive, folder.path());
  int ranks = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder.path() / "dlrm_kineto")) {
    CAPTURE(entry.path());
    const explore::TraceExplanation all =
        explore::explain_trace(plan::read_trace(entry.path().string(), read_file(entry.path())));
    CHECK(all.steps == 1);
    double all_reduces = 0;
    double all_to_alls = 0;
    double reduced_bytes = 0;
    for (const explore::TracedCollectives& one : all.collectives) {
      CHECK(one.ranks == 8);
      const bool is_all_reduce = one.kind == plan::CollectiveKind::kAllReduce;
      (is_all_reduce ? all_reduces : all_to_alls) += one.per_step;
      if (is_all_reduce) reduced_bytes += one.per_step * static_cast<double>(one.bytes);
    }
    // The kernels of NCCL in the trace: 3 of all-reduces, 5 of sends and receives.
    CHECK(all_reduces == 3);
    CHECK(all_to_alls == 5);
    CHECK(static_cast<double>(read(entry.path()).gradient_bytes().count()) == reduced_bytes);
    ++ranks;
  }
  CHECK(ranks == 8);
}

TEST_CASE("an old Chakra trace has the gradients that it reduces") {
  const std::filesystem::path archive = inputs() / "chakra" / "chakra-0.et.tar.gz";
  if (!std::filesystem::exists(archive)) RACKRAIL_SKIP("no " + archive.string());
  const test::TemporaryDirectory folder;
  unpack(archive, folder.path());
  const plan::Workload workload = read(folder.path() / "tests" / "data" / "chakra.0.et");
  CHECK(workload.tensors.size() == 5);
  CHECK(workload.gradient_bytes() == Bytes(4 * 25'557'032));  // ResNet-50 in DDP's buckets
}

}  // namespace
}  // namespace rackrail::workload_files_test
