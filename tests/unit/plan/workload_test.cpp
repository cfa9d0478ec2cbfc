#include "plan/workload.hpp"

#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <map>

#include "base/error.hpp"
#include "base/file.hpp"
#include "plan/workloads/formats.hpp"
#include "tests/support/paths.hpp"
#include "tests/support/skip.hpp"

namespace rackrail::plan::workload_test {
namespace {

std::filesystem::path configs() { return test::source_dir() / "configs"; }

Workload small() {
  Workload workload;
  workload.name = "small";
  workload.device_class = "V100";
  workload.profiled_batch = 10;
  workload.forward = 100_us;
  workload.optimizer = 30_us;
  workload.fixed_share = 0.2;
  workload.backward_tail = 10_us;
  workload.tensors = {{.name = "b", .elements = 3, .ready_gap = 40_us},
                      {.name = "a", .elements = 5, .ready_gap = 50_us}};
  return workload;
}

TEST_CASE("shipped profiles have the sizes that were published") {
  const std::map<std::string, std::int64_t> published{
      // torchvision's table of models.
      {"resnet-50", 25'557'032},
      {"vgg-16", 138'357'544},
      // BertModel of 335,141,888 parameters, without its pooler of 1024 · 1024 + 1024, with the
      // question-answering head of 2 · 1024 + 2, and the vocabulary padded by 6 rows of 1024.
      {"bert-large", 335'141'888 - 1'049'600 + 2'050 + 6 * 1'024},
      // Hugging Face's gpt2 with the output layer tied to the embedding.
      {"gpt2-124m", 124'439'808}};
  for (const auto& [name, parameters] : published) {
    CAPTURE(name);
    const Workload workload = read_workload(name, configs());
    CHECK(workload.name == name);
    CHECK(workload.elements() == parameters);
    CHECK(workload.gradient_bytes() == Bytes(parameters * 4));
    CHECK(workload.device_class == "V100");
    CHECK(workload.forward.picoseconds() * 2 == workload.backward().picoseconds());
    CHECK_FALSE(workload.source.empty());
    // What is stated must fit into the 16 GB of the device on which it was measured.
    REQUIRE(workload.memory_fixed);
    REQUIRE(workload.memory_per_sample);
    CHECK(*workload.memory_fixed + *workload.memory_per_sample * workload.profiled_batch < 16_GiB);
    CHECK(workload.memory_fixed->count() % parameters == 0);
  }
}

TEST_CASE("shipped models that were counted have the sizes that were published") {
  const std::map<std::string, std::int64_t> published{
      // The models' pages on Hugging Face; of the last, torchvision's table of models (vit_l_16).
      {"llama3-8b", 8'030'261'248},
      {"llama3-70b", 70'553'706'496},
      {"mixtral-8x7b", 46'702'792'704},
      {"vit-large", 304'326'632},
      // The perceptrons alone; with 78,106,492 rows of 128 in tables 10 billion.
      {"dlrm-10b", 9'999'999'873 - 78'106'492LL * 128}};
  CHECK(shipped_workloads(configs()).size() == published.size() + 4);
  for (const auto& [name, parameters] : published) {
    CAPTURE(name);
    const Workload workload = read_workload(name, configs());
    CHECK(workload.name == name);
    CHECK(workload.elements() == parameters);
    CHECK(workload.device_class == "A100");
    CHECK_FALSE(workload.source.empty());
    CHECK(workload.memory_fixed);
  }
}

TEST_CASE("shipped profiles hold the measured gaps") {
  const char* shared = std::getenv("RACKRAIL_SHARED");
  const std::filesystem::path folder =
      shared != nullptr ? std::filesystem::path(shared) : test::source_dir() / ".." / "shared";
  const std::filesystem::path profiles = folder / "inputs" / "profiles";
  if (!std::filesystem::exists(profiles)) {
    RACKRAIL_SKIP("no measured profiles in " + profiles.string());
  }
  const std::map<std::string, std::string> files{{"resnet-50", "resnet50-v100.csv"},
                                                 {"vgg-16", "vgg16-v100.csv"},
                                                 {"bert-large", "bert-large-v100.csv"},
                                                 {"gpt2-124m", "gpt2-v100.csv"}};
  for (const auto& [name, file] : files) {
    CAPTURE(name);
    const Workload shipped = read_workload(name, configs());
    const Workload measured = read_workload((profiles / file).string(), configs());
    REQUIRE(shipped.tensors.size() == measured.tensors.size());
    CHECK(shipped.digest() == measured.digest());
    CHECK(shipped.forward == measured.forward);
    for (std::size_t i = 0; i < shipped.tensors.size(); ++i) {
      REQUIRE(shipped.tensors[i].ready_gap == measured.tensors[i].ready_gap);
    }
  }
}

TEST_CASE("norms, biases and small tensors are protected") {
  const auto is_protected = [](const char* name, std::int64_t elements) {
    return GradientTensor{.name = name, .elements = elements, .ready_gap = {}}.is_protected();
  };
  constexpr std::int64_t kLarge = 1'000'000;
  CHECK(is_protected("fc.weight", 65'535));
  CHECK_FALSE(is_protected("fc.weight", 65'536));
  CHECK(is_protected("fc.bias", kLarge));
  CHECK(is_protected("bias", kLarge));
  CHECK(is_protected("layer1.0.bn2.weight", kLarge));
  CHECK(is_protected("h.3.ln_1.weight", kLarge));
  CHECK(is_protected("transformer.ln_f.weight", kLarge));
  CHECK(is_protected("encoder.LayerNorm.weight", kLarge));
  CHECK_FALSE(is_protected("unbiased.weight", kLarge));
  CHECK_FALSE(is_protected("bnet.weight", kLarge));
  CHECK_FALSE(is_protected("bias.weight", kLarge));
}

TEST_CASE("totals and digest follow the tensors") {
  Workload workload = small();
  CHECK(workload.elements() == 8);
  CHECK(workload.backward() == 100_us);
  const std::string digest = workload.digest();
  workload.forward = 5_s;
  CHECK(workload.digest() == digest);
  workload.tensors[0].elements = 4;
  CHECK(workload.digest() != digest);
  workload.tensors[0].elements = 3;
  workload.tensors[0].name = "c";
  CHECK(workload.digest() != digest);
}

TEST_CASE("compute times grow with the batch, but for the fixed share and the optimiser") {
  const Workload workload = small();
  const ComputeTimes profiled = compute_times(workload, "V100", 10);
  CHECK(profiled.forward == 100_us);
  CHECK(profiled.backward == 100_us);
  CHECK(profiled.optimizer == 30_us);
  REQUIRE(profiled.ready.size() == 2);
  CHECK(profiled.ready[0] == 40_us);
  CHECK(profiled.ready[1] == 90_us);

  // 0.2 + 0.8 · 2 = 1.8
  const ComputeTimes doubled = compute_times(workload, "V100", 20);
  CHECK(doubled.forward == 180_us);
  CHECK(doubled.ready[1] == 162_us);
  CHECK(doubled.optimizer == 30_us);
}

TEST_CASE("compute times scale between device classes by the stated rule") {
  // ½ · 15.7/156 + ½ · 900/1555
  const auto scale = compute_scale("V100", "A100");
  REQUIRE(scale);
  CHECK(*scale == Approx(0.5 * 15.7 / 156 + 0.5 * 900 / 1555));
  CHECK(*scale * *compute_scale("A100", "V100") == Approx(1));
  CHECK(*compute_scale("V100", "H100") < *scale);
  CHECK(*compute_scale("V100", "T4") > 1);
  CHECK(*compute_scale("V100", "cpu") > 3);
  CHECK(compute_scale("own", "own") == 1.0);
  CHECK_FALSE(compute_scale("V100", "own"));

  const ComputeTimes times = compute_times(small(), "A100", 10);
  CHECK(times.forward == scaled(100_us, *scale));
  CHECK(times.optimizer == scaled(30_us, *scale));
  // No class on one side means that the profile was taken as it is.
  CHECK(compute_times(small(), "", 10).forward == 100_us);
  CHECK_THROWS_WITH(compute_times(small(), "abacus", 10),
                    Catch::Contains("abacus") && Catch::Contains("H100"));
  CHECK_THROWS_AS(compute_times(small(), "V100", 0), ConfigError);
}

TEST_CASE("a workload that is neither file nor shipped is refused with the names that are") {
  CHECK_THROWS_WITH(read_workload("alexnet", configs()),
                    Catch::Contains("alexnet") && Catch::Contains("resnet-50"));
  CHECK(shipped_workloads("/nonexistent").empty());
  CHECK_THROWS_AS(read_workload("resnet-50", "/nonexistent"), ConfigError);
}

TEST_CASE("a file is read by its content") {
  const test::TemporaryDirectory folder;
  const auto csv = folder.path() / "net.txt";
  write_file_atomically(csv, "tensor,elements,ready_gap_us\nfc,10,2.5\n");
  CHECK(read_workload(csv.string(), configs()).name == "net");
  CHECK(read_workload(csv.string(), configs()).tensors[0].ready_gap == 2500_ns);
  const auto yaml = folder.path() / "net.csv";
  write_file_atomically(yaml, to_yaml(small()));
  CHECK(read_workload(yaml.string(), configs()).name == "small");
}

}  // namespace
}  // namespace rackrail::plan::workload_test
