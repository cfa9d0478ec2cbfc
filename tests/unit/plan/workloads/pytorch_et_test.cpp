#include <catch2/catch.hpp>

#include "base/error.hpp"
#include "plan/workload.hpp"

namespace rackrail::plan::pytorch_et_test {
namespace {

using Catch::Contains;

std::string gradient(const std::string& shape, const std::string& type) {
  return R"-({"id": 3, "name": "torch::autograd::AccumulateGrad",
    "inputs": {"values": [], "shapes": [)-" +
         shape + R"-(], "types": ["Tensor()-" + type + R"-()"]}},)-";
}

std::string trace(const std::string& nodes) {
  return R"({"schema": "1.1.0-chakra.0.0.4", "nodes": [)" + nodes + R"({"id": 1, "name": "end"}]})";
}

TEST_CASE("gradients of an execution trace are those of its last whole step") {
  const std::string step_end = R"({"id": 9, "name": "Optimizer.step#SGD.step"},)";
  const std::string first = gradient("[7]", "float") + gradient("[8]", "float") + step_end;
  const std::string second =
      gradient("[1000, 512]", "float") + gradient("[30]", "c10::BFloat16") + step_end;
  const Workload workload =
      read_workload_text(trace(first + second + gradient("[5]", "float")), "job.json");
  REQUIRE(workload.tensors.size() == 2);
  CHECK(workload.tensors[0].elements == 512'000);
  CHECK(workload.tensors[0].shape == MatrixShape{1000, 512});
  CHECK(workload.tensors[1].elements == 15);
  CHECK_THAT(workload.notes.front(), Contains("1.1.0-chakra") && Contains("no times"));
}

TEST_CASE("shapes beside the inputs are those of schema 1.0") {
  const std::string node = R"-({"id": 3, "name": "torch::autograd::AccumulateGrad", "inputs": [1],
    "input_shapes": [[6, 2]], "input_types": ["Tensor(float)"]},)-";
  CHECK(read_workload_text(trace(node), "job.json").elements() == 12);
}

TEST_CASE("an execution trace without gradients is refused") {
  for (const std::string& nodes :
       {std::string(), gradient("", "float"), gradient("[3]", "thing"), gradient("[-3]", "float"),
        gradient("[9000000000, 9000000000]", "float")}) {
    CAPTURE(nodes);
    CHECK_THROWS_WITH(read_workload_text(trace(nodes), "job.json"),
                      Contains("no AccumulateGrad with shape and type"));
  }
  CHECK_THROWS_WITH(read_workload_text(R"({"schema": "1", "nodes": [)", "job.json"),
                    Contains("broken JSON"));
}

}  // namespace
}  // namespace rackrail::plan::pytorch_et_test
