#include "plan/workloads/formats.hpp"

#include <catch2/catch.hpp>
#include <random>

#include "base/error.hpp"

namespace rackrail::plan::workload_formats_test {
namespace {

const std::string kYaml = R"(# a comment
name: tiny
profiled_batch: 8
forward: 1.5 ms
tensors:
  - [fc.bias, 10, 0 us]
  - [fc.weight, 1000, 12 us]
)";

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const std::size_t place = text.find(from);
  REQUIRE(place != std::string::npos);
  return text.replace(place, from.size(), to);
}

std::string yaml_error(const std::string& text) {
  try {
    const Workload unused = parse_workload_yaml(text, "w.yaml");
    FAIL("accepted a workload of " << unused.tensors.size() << " tensors");
  } catch (const ConfigError& e) {
    CHECK(e.context().file == "w.yaml");
    return e.what();
  }
  return {};
}

std::string csv_error(const std::string& text) {
  try {
    const Workload unused = parse_workload_csv(text, "w.csv", "w");
    FAIL("accepted a workload of " << unused.tensors.size() << " tensors");
  } catch (const ConfigError& e) {
    CHECK(e.context().file == "w.csv");
    return e.what();
  }
  return {};
}

TEST_CASE("a short YAML workload has the defaults of the header") {
  const Workload workload = parse_workload_yaml(kYaml, "w.yaml");
  CHECK(workload.name == "tiny");
  CHECK(workload.profiled_batch == 8);
  CHECK(workload.forward == 1500_us);
  CHECK(workload.backward() == 12_us);
  CHECK(workload.fixed_share == Approx(0.1));
  CHECK(workload.base_batch == 256);
  CHECK_FALSE(workload.memory_fixed);
  REQUIRE(workload.tensors.size() == 2);
  CHECK(workload.tensors[1].name == "fc.weight");
  CHECK(workload.tensors[1].elements == 1000);
}

TEST_CASE("measured errors of codecs are read, used and written") {
  const auto with = [](const std::string& errors) {
    return replaced(kYaml, "tensors:", "codec_errors: " + errors + "\ntensors:");
  };
  const Workload workload =
      parse_workload_yaml(with("{ int8: 0.03, 'topk:density=0.1': 0.4 }"), "w.yaml");
  CHECK(workload.codec_error(parse_codec("int8")) == 0.03);
  CHECK(workload.codec_error(parse_codec("topk:density=0.1")) == 0.4);
  CHECK(workload.codec_error(parse_codec("fp16")) == usual_error(parse_codec("fp16")).error);
  CHECK(parse_workload_yaml(to_yaml(workload), "w.yaml").codec_errors == workload.codec_errors);
  using Catch::Contains;
  CHECK_THAT(yaml_error(with("0.1")), Contains("codec_errors") && Contains("a map from codecs"));
  CHECK_THAT(yaml_error(with("{ int9: 0.1 }")), Contains("line 5") && Contains("int9"));
  CHECK_THAT(yaml_error(with("{ int8: -1 }")), Contains("codec_errors int8") && Contains("'-1'"));
  CHECK_THAT(yaml_error(with("{ int8: 0.1, 'int8:block=256': 0.1 }")), Contains("a second time"));
}

TEST_CASE("a noise scale is a number, or a list along training") {
  const auto with = [](const std::string& noise) {
    return replaced(kYaml, "tensors:", "noise_scale: " + noise + "\ntensors:");
  };
  const Workload one = parse_workload_yaml(with("700"), "w.yaml");
  CHECK(one.noise_scale == 700);
  CHECK(one.noise_curve.empty());
  const Workload curve = parse_workload_yaml(with("[[10, 100], [30, 300]]"), "w.yaml");
  CHECK(curve.noise_curve == std::vector<NoiseAt>{{10, 100}, {30, 300}});
  CHECK(curve.noise_scale == 200);
  const Workload again = parse_workload_yaml(to_yaml(curve), "w.yaml");
  CHECK(again.noise_curve == curve.noise_curve);
  CHECK(again.noise_scale == curve.noise_scale);
  using Catch::Contains;
  CHECK_THAT(yaml_error(with("[[10, 100], [10, 300]]")), Contains("noise_scale progress"));
  CHECK_THAT(yaml_error(with("[[10, 0]]")), Contains("noise_scale"));
  CHECK_THAT(yaml_error(with("[]")), Contains("empty list"));
  CHECK_THAT(yaml_error(with("[5]")), Contains("[progress, noise scale]"));
  CHECK_THAT(yaml_error(with("-3")), Contains("'-3'"));
}

TEST_CASE("a workload reads back from its own text, with names of any kind") {
  Workload workload = parse_workload_yaml(kYaml, "w.yaml");
  workload.source = "a: \"quoted\" #source\nin two lines";
  workload.device_class = "V100";
  workload.optimizer = Duration(1'234'567);
  workload.backward_tail = 3_ns;
  workload.fixed_share = 1.0 / 3;
  workload.noise_scale = 1234.5;
  workload.memory_fixed = Bytes(123);
  workload.memory_per_sample = 7_MiB;
  workload.base_learning_rate = 5e-5;
  workload.tensors.push_back({.name = "null", .elements = 1, .ready_gap = 1_ps});
  workload.tensors.push_back({.name = "- [x, 'y']: {z}", .elements = 1, .ready_gap = 2_s});
  workload.tensors.push_back({.name = "µ-größe", .elements = 1, .ready_gap = {}});
  const std::string text = to_yaml(workload);
  const Workload again = parse_workload_yaml(text, "w.yaml");
  CHECK(to_yaml(again) == text);
  CHECK(again.digest() == workload.digest());
  CHECK(again.source == workload.source);
  CHECK(again.optimizer == workload.optimizer);
  CHECK(again.backward() == workload.backward());
  CHECK(again.fixed_share == workload.fixed_share);
  CHECK(again.noise_scale == workload.noise_scale);
  CHECK(again.memory_fixed == workload.memory_fixed);
  CHECK(again.memory_per_sample == workload.memory_per_sample);
  CHECK(again.base_learning_rate == workload.base_learning_rate);
  CHECK(again.has_learning_rate);
  workload = parse_workload_yaml(kYaml, "w.yaml");  // which has none
  CHECK_FALSE(parse_workload_yaml(to_yaml(workload), "w.yaml").has_learning_rate);
}

TEST_CASE("a wrong YAML workload is refused with file, line, found and expected") {
  const auto line = [](const char* number) { return Catch::Contains(number); };
  CHECK_THAT(yaml_error(replaced(kYaml, "1.5 ms", "1.5")),
             line("line 4") && Catch::Contains("1.5") && Catch::Contains("unit"));
  CHECK_THAT(yaml_error(replaced(kYaml, "12 us", "12")), line("line 7") && line("tensors[1]"));
  CHECK_THAT(yaml_error(replaced(kYaml, "forward:", "froward:")),
             line("line 4") && Catch::Contains("unknown key 'froward'"));
  CHECK_THAT(yaml_error(replaced(kYaml, "profiled_batch: 8", "profiled_batch: 0")), line("line 3"));
  CHECK_THAT(yaml_error(replaced(kYaml, "profiled_batch: 8", "profiled_batch: 8.5")),
             line("'8.5'"));
  CHECK_THAT(yaml_error(replaced(kYaml, "profiled_batch: 8", "name: other")), line("second time"));
  CHECK_THAT(yaml_error(replaced(kYaml, "forward: 1.5 ms\n", "")), line("no 'forward'"));
  CHECK_THAT(yaml_error(replaced(kYaml, ", 1000,", ",")), line("2 items"));
  CHECK_THAT(yaml_error(replaced(kYaml, "1000", "-1000")), line("'-1000'"));
  CHECK_THAT(yaml_error(replaced(kYaml, "1000", "1e3")), line("'1e3'"));
  CHECK_THAT(yaml_error(replaced(kYaml, "1.5 ms", "90 min")), line("at most"));
  CHECK_THAT(yaml_error("name: x\nprofiled_batch: 1\nforward: 1 s\n"), line("no 'tensors'"));
  CHECK_THAT(yaml_error("name: x\ntensors: []\n"), line("line 2"));
  CHECK_THAT(yaml_error("name: [x\n"), line("YAML"));
  CHECK_THAT(yaml_error(""), line("found nothing"));
  CHECK_THAT(yaml_error("just text"), line("no map"));
  CHECK_THAT(yaml_error("? [a, b]\n: c\n"), line("the name of a field"));
  CHECK_THAT(yaml_error(kYaml + "fixed_share: 1.5\n"), line("0 to 1"));
  CHECK_THAT(yaml_error(kYaml + "fixed_share: nan\n"), line("'nan'"));
  CHECK_THAT(yaml_error(kYaml + "base_learning_rate: 0\n"), line("above 0"));
  CHECK_THAT(yaml_error(kYaml + "memory_fixed: 5\n"), line("unit"));
  CHECK_THAT(yaml_error(kYaml + "source: [a]\n"), line("a list"));
}

TEST_CASE("layers in forward order become gradients in backward order") {
  const Workload workload = parse_workload_csv(
      "# exported\n"
      "name,parameters,bytes_per_parameter,forward_us,backward_us\n"
      "pad,0,4,0.5,0.25\n"
      "conv,100,4,1,10\n"
      "relu,0,4,2,20\r\n"
      "half, 7, 2, 3, 30\n"
      "loss,0,4,4,40\n",
      "w.csv", "w");
  REQUIRE(workload.tensors.size() == 2);
  CHECK(workload.tensors[0].name == "half");
  CHECK(workload.tensors[0].elements == 4);  // 14 bytes
  CHECK(workload.tensors[0].ready_gap == 70_us);
  CHECK(workload.tensors[1].name == "conv");
  CHECK(workload.tensors[1].elements == 100);
  CHECK(workload.tensors[1].ready_gap == 30_us);
  CHECK(workload.backward_tail == 250_ns);
  CHECK(workload.forward == 10'500_ns);
  CHECK(workload.profiled_batch == 1);
  CHECK(workload.device_class.empty());
  REQUIRE(workload.notes.size() == 2);
  CHECK_THAT(workload.notes.front(), Catch::StartsWith("w.csv: 14 B of gradients are not of 4"));
}

TEST_CASE("layers of FP32 are read with the note that a table says no batch alone") {
  const Workload workload = parse_workload_csv(
      "name,parameters,bytes_per_parameter,forward_us,backward_us\nconv,100,4,1,10\npad,0,2,1,1\n",
      "w.csv", "w");
  REQUIRE(workload.notes.size() == 1);
  CHECK_THAT(workload.notes[0], Catch::Contains("neither a batch nor a device"));
}

TEST_CASE("a workload's device class has the name of the table") {
  CHECK(parse_workload_yaml(kYaml + "device_class: v100\n", "w.yaml").device_class == "V100");
  CHECK(parse_workload_yaml(kYaml + "device_class: mine\n", "w.yaml").device_class == "mine");
}

TEST_CASE("a profile in gradient order keeps it; forward is half of backward") {
  const std::string text = "\xEF\xBB\xBFtensor,elements,ready_gap_us\nb,2,10\na,3,30\n";
  REQUIRE(looks_like_workload_csv(text));
  const Workload workload = parse_workload_csv(text, "w.csv", "w");
  CHECK(workload.tensors[0].name == "b");
  CHECK(workload.tensors[1].ready_gap == 30_us);
  CHECK(workload.forward == 20_us);
}

TEST_CASE("a wrong CSV workload is refused with file, line, found and expected") {
  const std::string profile = "tensor,elements,ready_gap_us\n";
  CHECK_THAT(csv_error(profile), Catch::Contains("no tensor"));
  CHECK_THAT(csv_error(profile + "a,1,2\nb,2\n"),
             Catch::Contains("line 3") && Catch::Contains("2 cells"));
  CHECK_THAT(csv_error(profile + "a,x,2\n"), Catch::Contains("line 2") && Catch::Contains("'x'"));
  CHECK_THAT(csv_error(profile + "a,0,2\n"), Catch::Contains("'0'"));
  CHECK_THAT(csv_error(profile + ",1,2\n"), Catch::Contains("empty name"));
  CHECK_THAT(csv_error(profile + "a,1,-2\n"), Catch::Contains("'-2'"));
  CHECK_THAT(csv_error(profile + "a,1,nan\n"), Catch::Contains("'nan'"));
  CHECK_THAT(csv_error(profile + "a,1,1e30\n"), Catch::Contains("'1e30'"));
  const std::string layers = "name,parameters,bytes_per_parameter,forward_us,backward_us\n";
  CHECK_THAT(csv_error(layers + "a,1,0,1,1\n"), Catch::Contains("bytes per parameter '0'"));
  CHECK_THAT(csv_error(layers + "a,0,4,1,1\n"), Catch::Contains("no layer with parameters"));
  CHECK_THAT(csv_error("name,parameters\na,1\n"), Catch::Contains("header 'name,parameters'"));
  CHECK(looks_like_workload_csv("name,parameters\n"));  // what is wrong with it is said of a table
  CHECK_FALSE(looks_like_workload_csv("{name: a, tensors: []}\n"));
  CHECK_FALSE(looks_like_workload_csv(kYaml));
  CHECK_FALSE(looks_like_workload_csv(""));
}

TEST_CASE("damaged workloads are refused or read, never crash") {
  const std::uint64_t seed = 5;
  INFO("seed " << seed);
  std::mt19937_64 random(seed);
  const std::string csv = "tensor,elements,ready_gap_us\nb,2,10\na,3,30\n";
  int refused = 0;
  for (int round = 0; round < 600; ++round) {
    const bool is_yaml = round % 2 == 0;
    std::string text = is_yaml ? kYaml : csv;
    for (std::uint64_t flips = random() % 4; flips > 0; --flips) {
      text[random() % text.size()] = static_cast<char>(random());
    }
    text.resize(text.size() - random() % 8);
    try {
      const Workload workload =
          is_yaml ? parse_workload_yaml(text, "f") : parse_workload_csv(text, "f", "f");
      CHECK(workload.elements() > 0);
      CHECK(workload.backward() >= Duration());
    } catch (const ConfigError&) {
      ++refused;
    }
  }
  CHECK(refused > 100);
}

}  // namespace
}  // namespace rackrail::plan::workload_formats_test
