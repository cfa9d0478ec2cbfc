#include "runtime/trainer/config.hpp"

#include <algorithm>
#include <cmath>
#include <set>
#include <sstream>

#include "base/digest.hpp"
#include "base/error.hpp"
#include "base/file.hpp"
#include "base/yaml.hpp"

namespace rackrail::trainer {
namespace {

constexpr std::uint64_t kSplitSeed = 0x7261636b7261696cULL;

std::string text_of(const YAML::Node& node) {
  return node.IsScalar()     ? node.Scalar()
         : node.IsSequence() ? "a list"
         : node.IsMap()      ? "a section"
                             : "nothing";
}

/// One mapping of the file: hands out values by key and knows which keys nobody asked for.
class Section {
 public:
  Section(const YAML::Node& node, std::string file, std::string path)
      : node_(node), file_(std::move(file)), path_(std::move(path)) {
    if (!node_.IsMap()) {
      reject(node_, path_.empty() ? "file" : path_, text_of(node_), "keys and values");
    }
    std::set<std::string> seen;
    for (const auto& entry : node_) {
      const std::string key = text_of(entry.first);
      if (!seen.insert(key).second) {
        reject(entry.first, "", "key '" + name_of(key) + "' again", "each key once");
      }
    }
  }

  bool has(const std::string& key) {
    known_.insert(key);
    return static_cast<bool>(node_[key]);
  }

  template <typename Value>
  Value required(const std::string& key, const char* expected) {
    if (!has(key)) {
      reject(node_, "", "no key '" + name_of(key) + "'", expected);
    }
    return convert<Value>(node_[key], name_of(key), expected);
  }

  template <typename Value>
  void optional(const std::string& key, Value& value, const char* expected) {
    if (has(key)) {
      value = convert<Value>(node_[key], name_of(key), expected);
    }
  }

  template <typename Value>
  void optional(const std::string& key, std::optional<Value>& value, const char* expected) {
    if (has(key)) {
      value = convert<Value>(node_[key], name_of(key), expected);
    }
  }

  Section section(const std::string& key) {
    if (!has(key)) {
      reject(node_, "", "no section '" + name_of(key) + "'", "keys and values below it");
    }
    return {node_[key], file_, name_of(key)};
  }

  /// The value must be in [least, most].
  template <typename Value>
  void check(const std::string& key, Value value, Value least, Value most, const char* expected) {
    if (has(key) && !(value >= least && value <= most)) {
      reject(node_[key], name_of(key), text_of(node_[key]), expected);
    }
  }

  [[noreturn]] void reject_value(const std::string& key, const std::string& expected) {
    reject(node_[key], name_of(key), text_of(node_[key]), expected);
  }
  [[noreturn]] void reject_section(const std::string& found, const std::string& expected) {
    reject(node_, path_, found, expected);
  }

  void reject_unknown_keys() const {
    for (const auto& entry : node_) {
      const std::string key = text_of(entry.first);
      if (!known_.contains(key)) {
        std::string all;
        for (const std::string& name : known_) {
          all += (all.empty() ? "" : ", ") + name;
        }
        reject(entry.first, "", "unknown key '" + name_of(key) + "'", "one of " + all);
      }
    }
  }

 private:
  std::string name_of(const std::string& key) const {
    return path_.empty() ? key : path_ + "." + key;
  }

  [[noreturn]] void reject(const YAML::Node& at, const std::string& field, std::string found,
                           std::string expected) const {
    std::string where = "line " + std::to_string(at.Mark().line + 1);
    where += field.empty() ? "" : ", " + field;
    throw ConfigError(ErrorContext{file_, where, std::move(found), std::move(expected)});
  }

  template <typename Value>
  Value convert(const YAML::Node& node, const std::string& field, const char* expected) const {
    try {
      return node.as<Value>();
    } catch (const YAML::Exception&) {
      reject(node, field, text_of(node), expected);
    }
  }

  YAML::Node node_;
  std::string file_;
  std::string path_;
  std::set<std::string> known_;
};

constexpr double kLarge = 1e18;
constexpr std::int64_t kMany = std::int64_t{1} << 40;
/// Steps travel in messages as 32 bits.
constexpr std::int64_t kMostSteps = std::int64_t{1} << 31;
constexpr double kMostEpochs = 1e6;

DataConfig read_data(Section section, const std::filesystem::path& folder) {
  DataConfig data;
  data.file = section.required<std::string>("file", "the path of a CSV file");
  if (data.file.is_relative()) {
    data.file = (folder / data.file).lexically_normal();
  }
  const char* image = "three positive integers: height, width, channels";
  const auto shape = section.required<std::vector<std::int64_t>>("image", image);
  if (shape.size() != 3 || std::ranges::any_of(shape, [](auto n) { return n < 1 || n > 4096; })) {
    section.reject_value("image", image);
  }
  data.format.image = {shape[0], shape[1], shape[2]};
  const char* classes = "an integer from 2";
  data.format.classes = section.required<std::int64_t>("classes", classes);
  section.check<std::int64_t>("classes", data.format.classes, 2, 1 << 20, classes);
  const char* maximum = "the largest feature, a number above 0";
  data.format.maximum = section.required<double>("maximum", maximum);
  section.check("maximum", data.format.maximum, 1e-18, kLarge, maximum);
  const char* share = "a number above 0 and below 1";
  section.optional("test_share", data.test_share, share);
  section.check("test_share", data.test_share, 1e-9, 1 - 1e-9, share);
  const char* shift = "a number of pixels from 0 and below height and width";
  section.optional("max_shift", data.max_shift, shift);
  section.check<std::int64_t>("max_shift", data.max_shift, 0, std::min(shape[0], shape[1]) - 1,
                              shift);
  section.reject_unknown_keys();
  return data;
}

ModelConfig read_model(Section section) {
  ModelConfig model;
  model.kind = section.required<std::string>("kind", "mlp or cnn");
  if (model.kind != "mlp" && model.kind != "cnn") {
    section.reject_value("kind", "mlp or cnn");
  }
  const char* sizes = "a list of positive integers";
  section.optional("hidden", model.hidden, sizes);
  section.optional("channels", model.channels, sizes);
  for (const auto& [key, list] :
       {std::pair{"hidden", &model.hidden}, {"channels", &model.channels}}) {
    if (std::ranges::any_of(*list, [](auto n) { return n < 1 || n > (1 << 20); })) {
      section.reject_value(key, sizes);
    }
  }
  section.reject_unknown_keys();
  return model;
}

Decay parse_decay(Section& section) {
  std::string decay = "constant";
  section.optional("decay", decay, "constant or cosine");
  if (decay != "constant" && decay != "cosine") {
    section.reject_value("decay", "constant or cosine");
  }
  return decay == "cosine" ? Decay::kCosine : Decay::kConstant;
}

void read_optimizer(Section section, TrainingConfig& config) {
  const char* rate = "a number above 0";
  config.base_learning_rate = section.required<double>("base_learning_rate", rate);
  section.check("base_learning_rate", config.base_learning_rate, 1e-18, kLarge, rate);
  const char* batch = "the global batch of base_learning_rate, a positive integer";
  config.base_batch = section.required<std::int64_t>("base_batch", batch);
  section.check<std::int64_t>("base_batch", config.base_batch, 1, kMany, batch);
  config.decay = parse_decay(section);
  const char* steps = "a number of steps from 0";
  section.optional("warmup_steps", config.warmup_steps, steps);
  section.check<std::int64_t>("warmup_steps", config.warmup_steps, 0, kMany, steps);
  const char* momentum = "a number from 0 and below 1";
  section.optional("momentum", config.optimizer.momentum, momentum);
  section.check("momentum", config.optimizer.momentum, 0.0, 1 - 1e-9, momentum);
  const char* decay = "a number from 0";
  section.optional("weight_decay", config.optimizer.weight_decay, decay);
  section.check("weight_decay", config.optimizer.weight_decay, 0.0, kLarge, decay);
  const char* clip = "the largest global norm, a number above 0";
  section.optional("clip_norm", config.optimizer.clip_norm, clip);
  section.check("clip_norm", config.optimizer.clip_norm.value_or(1), 1e-18, kLarge, clip);
  section.reject_unknown_keys();
}

void read_run(Section& section, TrainingConfig& config) {
  const char* steps = "a positive integer";
  section.optional("steps", config.steps, steps);
  section.check<std::int64_t>("steps", config.steps.value_or(1), 1, kMostSteps, steps);
  const char* epochs = "a number above 0, at most a million";
  section.optional("epochs", config.epochs, epochs);
  section.check("epochs", config.epochs.value_or(1), 1e-9, kMostEpochs, epochs);
  const char* batch = "a positive integer";
  section.optional("local_batch", config.local_batch, batch);
  section.check<std::int64_t>("local_batch", config.local_batch, 1, kMany, batch);
  section.optional("seed", config.seed, "an integer from 0");
  const char* every = "a number of steps from 0";
  section.optional("evaluate_every", config.evaluate_every, every);
  section.check<std::int64_t>("evaluate_every", config.evaluate_every, 0, kMany, every);
  section.optional("checkpoint_every", config.checkpoint_every, every);
  section.check<std::int64_t>("checkpoint_every", config.checkpoint_every, 0, kMany, every);
}

void append(std::ostringstream& out, const char* name, const std::vector<std::int64_t>& values) {
  out << name;
  for (const std::int64_t value : values) {
    out << ' ' << value;
  }
  out << '\n';
}

}  // namespace

std::int64_t TrainingConfig::total_steps(std::int64_t training_samples,
                                         std::int64_t global_batch) const {
  if (steps) {
    return *steps;
  }
  const double samples = epochs.value_or(1) * static_cast<double>(training_samples);
  return std::max<std::int64_t>(1, std::llround(samples / static_cast<double>(global_batch)));
}

std::string TrainingConfig::digest() const {
  std::ostringstream out;
  out << std::hexfloat;
  const DataFormat& format = data.format;
  append(out, "image", {format.image.height, format.image.width, format.image.channels});
  out << "classes " << format.classes << "\nmaximum " << format.maximum << "\ntest_share "
      << data.test_share << "\nmax_shift " << data.max_shift << "\nmodel " << model.kind << '\n';
  append(out, "hidden", model.hidden);
  append(out, "channels", model.channels);
  if (decay == Decay::kCosine) {
    out << "steps " << steps.value_or(0) << "\nepochs " << epochs.value_or(0) << '\n';
  }
  out << "local_batch " << local_batch << "\nbase_learning_rate " << base_learning_rate
      << "\nbase_batch " << base_batch << "\ndecay "
      << (decay == Decay::kCosine ? "cosine" : "constant") << "\nwarmup_steps " << warmup_steps
      << "\nmomentum " << optimizer.momentum << "\nweight_decay " << optimizer.weight_decay
      << "\nclip_norm " << optimizer.clip_norm.value_or(0) << "\nseed " << seed << '\n';
  return sha256_hex(out.str());
}

TrainingConfig parse_training_config(const std::string& content,
                                     const std::filesystem::path& file) {
  Section section(load_yaml(content, file.string()), file.string(), "");
  TrainingConfig config;
  config.name = file.stem().string();
  section.optional("name", config.name, "a name");
  config.data = read_data(section.section("data"), file.parent_path());
  config.model = read_model(section.section("model"));
  read_optimizer(section.section("optimizer"), config);
  read_run(section, config);
  section.reject_unknown_keys();
  if (config.steps.has_value() == config.epochs.has_value()) {
    section.reject_section(config.steps ? "steps and epochs" : "neither steps nor epochs",
                           "one of the two");
  }
  return config;
}

TrainingConfig read_training_config(const std::string& name_or_path,
                                    const std::filesystem::path& configs) {
  const std::filesystem::path shipped = configs / "training" / (name_or_path + ".yaml");
  const bool is_name = name_or_path.find_first_of("/.") == std::string::npos;
  if (is_name && !std::filesystem::exists(shipped) && !std::filesystem::exists(name_or_path)) {
    std::string names;
    for (const std::string& name : shipped_training_configs(configs)) {
      names += ", " + name;
    }
    throw ConfigError(
        ErrorContext{name_or_path, "", "no such file or shipped training", "a YAML file" + names});
  }
  const std::filesystem::path file =
      is_name && std::filesystem::exists(shipped) ? shipped : std::filesystem::path(name_or_path);
  return parse_training_config(read_file(file), file);
}

std::vector<std::string> shipped_training_configs(const std::filesystem::path& configs) {
  std::vector<std::string> names;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(configs / "training", error)) {
    if (entry.path().extension() == ".yaml") {
      names.push_back(entry.path().stem().string());
    }
  }
  std::ranges::sort(names);
  return names;
}

DataSplit load_data(const DataConfig& config) {
  return split(read_dataset(config.file, config.format), config.test_share, kSplitSeed);
}

}  // namespace rackrail::trainer
