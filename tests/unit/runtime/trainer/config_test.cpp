#include "runtime/trainer/config.hpp"

#include <catch2/catch.hpp>

#include "tests/support/paths.hpp"
#include "tests/unit/runtime/trainer/test_data.hpp"

namespace rackrail::trainer::config_test {
namespace {

const std::string kGood = R"(name: example
data:
  file: ../data/x.csv
  image: [8, 8, 1]
  classes: 10
  maximum: 16
model:
  kind: mlp
  hidden: [32]
optimizer:
  base_learning_rate: 0.1
  base_batch: 128
  clip_norm: 5
steps: 30
)";

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const std::size_t at = text.find(from);
  REQUIRE(at != std::string::npos);
  return text.replace(at, from.size(), to);
}

TEST_CASE("A training file is read; what it leaves out has defaults") {
  const TrainingConfig config = parse_training_config(kGood, "/configs/training/example.yaml");
  CHECK(config.name == "example");
  CHECK(config.data.file == "/configs/data/x.csv");
  CHECK(config.data.format == DataFormat{{8, 8, 1}, 10, 16});
  CHECK(config.data.max_shift == 0);
  CHECK(config.model.kind == "mlp");
  CHECK(config.model.hidden == std::vector<std::int64_t>{32});
  CHECK(config.base_learning_rate == 0.1);
  CHECK(config.base_batch == 128);
  CHECK(config.decay == Decay::kConstant);
  CHECK(config.optimizer.momentum == 0.9);
  CHECK(config.optimizer.clip_norm == 5.0);
  CHECK(config.steps == 30);
  CHECK(config.total_steps(1000, 100) == 30);
  const std::string by_epochs = replaced(kGood, "steps: 30", "epochs: 2.5");
  CHECK(parse_training_config(by_epochs, "x.yaml").total_steps(1000, 100) == 25);
}

TEST_CASE("What is wrong with a training file is said with its line") {
  struct Case {
    const char* from;
    const char* to;
    const char* where;
    const char* found;
  };
  for (const Case& c : std::vector<Case>{
           {"steps: 30", "step: 30", "line 14", "unknown key 'step'"},
           {"  classes: 10", "  klasses: 10", "line 3", "no key 'data.classes'"},
           {"  kind: mlp", "  kind: rnn", "line 8, model.kind", "rnn"},
           {"hidden: [32]", "hidden: [32, 0]", "line 9, model.hidden", "a list"},
           {"hidden: [32]", "hidden: many", "line 9, model.hidden", "many"},
           {"hidden: [32]", "hidden: [32]\n  widht: 3", "line 10", "unknown key 'model.widht'"},
           {"image: [8, 8, 1]", "image: [8, 8]", "line 4, data.image", "a list"},
           {"maximum: 16", "maximum: 0", "line 6, data.maximum", "0"},
           {"base_batch: 128", "base_batch: 12.5", "line 12, optimizer.base_batch", "12.5"},
           {"base_learning_rate: 0.1", "base_learning_rate: .nan",
            "line 11, optimizer.base_learning_rate", ".nan"},
           {"clip_norm: 5", "clip_norm: -5", "line 13, optimizer.clip_norm", "-5"},
           {"clip_norm: 5", "decay: sometimes", "line 13, optimizer.decay", "sometimes"},
           {"steps: 30", "steps: 0", "line 14, steps", "0"},
           {"steps: 30", "steps: 30\nsteps: 40", "line 15", "key 'steps' again"},
           {"steps: 30", "steps: 30\nseed: -1", "line 15, seed", "-1"},
           {"clip_norm: 5", "clip_norm: 5\n  base_batch: 1", "line 14",
            "key 'optimizer.base_batch' again"},
       }) {
    CAPTURE(c.to);
    const std::string text = replaced(kGood, c.from, c.to);
    const ErrorContext context =
        test::context_of<ConfigError>([&] { parse_training_config(text, "t.yaml"); });
    CHECK(context.file == "t.yaml");
    CHECK(context.where == c.where);
    CHECK(context.found == c.found);
    CHECK_FALSE(context.expected.empty());
  }
  const auto refused = [](const std::string& text) {
    return test::context_of<ConfigError>([&] { parse_training_config(text, "t.yaml"); });
  };
  CHECK(refused(replaced(kGood, "steps: 30", "steps: 3\nepochs: 3")).found == "steps and epochs");
  CHECK(refused(replaced(kGood, "steps: 30", "")).found == "neither steps nor epochs");
  CHECK(refused("a: [1, 2").where.starts_with("line"));
  CHECK(refused("just text").found == "just text");
  CHECK(refused("").found == "nothing");
}

TEST_CASE("Shipped trainings are found by name, readable, and their data is there") {
  const std::filesystem::path configs = rackrail::test::source_dir() / "configs";
  const std::vector<std::string> names = shipped_training_configs(configs);
  CHECK(std::ranges::count(names, "digits-mlp") == 1);
  CHECK(std::ranges::count(names, "digits-cnn") == 1);
  for (const std::string& name : names) {
    CAPTURE(name);
    const TrainingConfig config = read_training_config(name, configs);
    CHECK(config.name == name);
    CHECK(std::filesystem::exists(config.data.file));
    CHECK_NOTHROW(make_model(config.model, config.data.format.image, config.data.format.classes,
                             config.seed));
    const auto path = (configs / "training" / (name + ".yaml")).string();
    CHECK(read_training_config(path, "/nowhere").digest() == config.digest());
  }
  CHECK(test::context_of<ConfigError>([&] {
          read_training_config("digits", configs);
        }).expected.find("digits-mlp") != std::string::npos);
  CHECK_THROWS_AS(read_training_config("./missing.yaml", configs), ConfigError);
}

TEST_CASE("The digest tells trainings apart by what decides the result") {
  const TrainingConfig config = parse_training_config(kGood, "t.yaml");
  TrainingConfig other = config;
  other.evaluate_every = 7;
  other.checkpoint_every = 9;
  other.steps = 99;  // a constant learning rate does not know the end
  CHECK(other.digest() == config.digest());
  other = config;
  other.seed = 2;
  CHECK(other.digest() != config.digest());
  other = config;
  other.model.hidden = {33};
  CHECK(other.digest() != config.digest());
  other = config;
  other.decay = Decay::kCosine;
  const std::string shorter = other.digest();
  CHECK(shorter != config.digest());
  other.steps = 99;
  CHECK(other.digest() != shorter);
}

}  // namespace
}  // namespace rackrail::trainer::config_test
