#include <catch2/catch.hpp>

#include "base/error.hpp"
#include "plan/workload.hpp"

namespace rackrail::plan::astra_text_test {
namespace {

using Catch::Contains;

const std::string kText =
    "HYBRID_TRANSFORMER_FWD_IN_BCKWD\tmodel_parallel_NPU_group: 8 ep: 1 pp: 1 ga: 1 all_gpus: 64\n"
    "3\n"
    "grads -1 1 NONE 0 1 NONE 0 1 REDUCESCATTER_DP_EP 4000 100\n"
    "dense\t-1\t1000\tALLREDUCE\t4096\t500\tALLREDUCE\t4096\t250\tALLREDUCE\t2001\t10\n"
    "last  -1  3000 NONE 0 700 NONE 0 300 NONE 0 10 HYBRID_DATA_MODEL\n";

Workload read(const std::string& text) { return read_workload_text(text, "job.txt"); }

std::string error_of(const std::string& text) {
  try {
    const Workload unused = read(text);
    FAIL("accepted a workload of " << unused.tensors.size() << " tensors");
  } catch (const ConfigError& e) {
    return e.what();
  }
  return {};
}

std::string with(const std::string& from, const std::string& to) {
  std::string text = kText;
  const std::size_t place = text.find(from);
  REQUIRE(place != std::string::npos);
  return text.replace(place, from.size(), to);
}

TEST_CASE("sums of weights' gradients are planned, in the order of backward") {
  const Workload workload = read(kText);
  CHECK(workload.name == "job");
  REQUIRE(workload.tensors.size() == 2);
  CHECK(workload.tensors[0].name == "dense.4");
  CHECK(workload.tensors[0].elements == 501);  // 2001 bytes
  CHECK(workload.tensors[0].ready_gap == 1'750_ns);
  CHECK(workload.tensors[1].name == "grads.3");
  CHECK(workload.tensors[1].ready_gap == 2_ns);
  CHECK(workload.forward == 4'001_ns);
  CHECK(workload.optimizer == 110_ns);
  REQUIRE(workload.notes.size() == 3);
  CHECK_THAT(workload.notes[1], Contains("not planned"));
  CHECK_THAT(workload.notes[2], Contains("of 8 that share the model"));
}

TEST_CASE("other first lines of the same form are known") {
  for (const char* head : {"DATA", "HYBRID_DLRM\t4\t\t", "MICRO", "HYBRID_CUSTOMIZED"}) {
    CAPTURE(head);
    const std::string text =
        std::string(head) + "\r\n1\t\t\r\nconv -1 5 NONE 0 5 NONE 0 5 ALLREDUCE 1048576 5\r\n";
    CHECK(read(text).gradient_bytes() == 1_MiB);
  }
}

TEST_CASE("a wrong text workload is refused with line, found and expected") {
  CHECK_THAT(error_of(with("\n3\n", "\n4\n")), Contains("line 2") && Contains("'4' before 3"));
  CHECK_THAT(error_of(with("3000 NONE", "NONE")), Contains("line 5"));
  CHECK_THAT(error_of(with("\t250\t", "\t-250\t")), Contains("line 4") && Contains("column 9"));
  CHECK_THAT(error_of(with("2001", "1e30")), Contains("number of bytes"));
  CHECK_THAT(error_of(with("1000\tALL", "1e30\tALL")), Contains("nanoseconds"));
  CHECK_THAT(
      error_of(
          with(" HYBRID_DATA_MODEL", "").replace(0, 6, "HYBRID").substr(0, kText.find("dense"))),
      Contains("'3' before 1"));
  CHECK_THAT(error_of("MICRO\n1\nconv -1 5 ALLREDUCE 8 5 NONE 0 5 NONE 0 5\n"),
             Contains("no collective that sums gradients"));
  CHECK_THAT(error_of("MICRO\n1\nconv -1 5\n"), Contains("3 columns"));
}

}  // namespace
}  // namespace rackrail::plan::astra_text_test
