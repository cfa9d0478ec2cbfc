#include "runtime/trainer/dataset.hpp"

#include <catch2/catch.hpp>
#include <map>

#include "tests/support/paths.hpp"
#include "tests/unit/runtime/trainer/test_data.hpp"

namespace rackrail::trainer::dataset_test {
namespace {

const DataFormat kFormat{{1, 2, 1}, 3, 16};

Dataset read(const std::string& text) {
  const rackrail::test::TemporaryDirectory folder;
  test::write_text(folder.path() / "data.csv", text);
  return read_dataset(folder.path() / "data.csv", kFormat);
}

ErrorContext refusal(const std::string& text) {
  return test::context_of<ConfigError>([&] { read(text); });
}

TEST_CASE("A data file is read and normalised") {
  const Dataset dataset = read("0,16,2\n 8 , 4 ,0\r\n1.6,0,1");
  REQUIRE(dataset.size() == 3);
  const std::vector<float> features{0, 1, 0.5, 0.25, 0.1F, 0};
  const std::vector<std::int32_t> labels{2, 0, 1};
  CHECK(std::ranges::equal(dataset.all().features, features));
  CHECK(std::ranges::equal(dataset.all().labels, labels));
  CHECK(dataset.view(1, 1).labels[0] == 0);
  CHECK(dataset.view(1, 1).features[0] == 0.5F);
  CHECK(read("0,16,2\n\n").size() == 1);
}

TEST_CASE("What is wrong with a data file is said with file and line") {
  struct Case {
    const char* text;
    const char* where;
    const char* found;
  };
  for (const Case& c : std::vector<Case>{
           {"0,16,2\n0,16\n", "line 2", "2 values"},
           {"0,16,2,4\n", "line 1", "4 values"},
           {"0,16,2\n0,x,2\n", "line 2", "'x' in column 2"},
           {"0,,2\n", "line 1", "'' in column 2"},
           {"0,17,2\n", "line 1", "'17' in column 2"},
           {"-1,0,2\n", "line 1", "'-1' in column 1"},
           {"nan,0,2\n", "line 1", "'nan' in column 1"},
           {"0,1,3\n", "line 1", "class '3'"},
           {"0,1,1.5\n", "line 1", "class '1.5'"},
           {"0,1,1\n\n0,1,1\n", "line 2", "an empty line"},
           {"", "", "no samples"},
       }) {
    CAPTURE(c.text);
    const ErrorContext context = refusal(c.text);
    CHECK(context.where == c.where);
    CHECK(context.found == c.found);
    CHECK(context.file.ends_with("data.csv"));
    CHECK_FALSE(context.expected.empty());
  }
  CHECK_THROWS_AS(read_dataset("/nonexistent/data.csv", kFormat), ConfigError);
}

TEST_CASE("A split keeps every sample once and depends on its seed alone") {
  const Dataset all = test::make_dataset({2, 2, 1}, 3, 50, 1);
  const auto sorted = [](const std::vector<const Dataset*>& parts) {
    std::multimap<std::vector<float>, std::int32_t> samples;
    for (const Dataset* part : parts) {
      for (std::int64_t i = 0; i < part->size(); ++i) {
        const BatchView view = part->view(i, 1);
        samples.emplace(std::vector(view.features.begin(), view.features.end()), view.labels[0]);
      }
    }
    return samples;
  };
  const DataSplit parts = split(all, 0.25, 3);
  CHECK(parts.test.size() == 12);
  CHECK(parts.train.size() == 38);
  CHECK(sorted({&parts.train, &parts.test}) == sorted({&all}));
  CHECK(split(all, 0.25, 3).test.digest() == parts.test.digest());
  CHECK(split(all, 0.25, 4).test.digest() != parts.test.digest());
  CHECK_THROWS_AS(split(all, 0.001, 3), ConfigError);
}

TEST_CASE("The shipped digits are complete") {
  const Dataset digits =
      read_dataset(rackrail::test::source_dir() / "configs/data/digits.csv", {{8, 8, 1}, 10, 16});
  CHECK(digits.size() == 1797);
  // Counts per class as published with the data set.
  std::map<std::int32_t, int> count;
  for (const std::int32_t label : digits.all().labels) {
    ++count[label];
  }
  CHECK(count == std::map<std::int32_t, int>{{0, 178},
                                             {1, 182},
                                             {2, 177},
                                             {3, 183},
                                             {4, 181},
                                             {5, 182},
                                             {6, 181},
                                             {7, 179},
                                             {8, 174},
                                             {9, 180}});
}

}  // namespace
}  // namespace rackrail::trainer::dataset_test
