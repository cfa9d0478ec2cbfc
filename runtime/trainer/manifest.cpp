#include "runtime/trainer/manifest.hpp"

#include <charconv>
#include <nlohmann/json.hpp>
#include <set>

#include "base/error.hpp"

namespace rackrail::trainer {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::int64_t kFormatVersion = 1;

/// Calls visit(key, member) for every part of the information, in the order of the file.
template <typename Info, typename Visit>
void for_each_field(Info& info, const Visit& visit) {
  visit("step", info.step);
  visit("position", info.position);
  visit("epoch", info.epoch);
  visit("skipped_steps", info.skipped_steps);
  visit("seed", info.seed);
  visit("world_size", info.world_size);
  visit("plan_digest", info.plan_digest);
  visit("model_digest", info.model_digest);
  visit("training_digest", info.training_digest);
}

constexpr const char* kOptimizerKey = "optimizer";
constexpr const char* kOptimizerStateKey = "optimizer_state";
constexpr const char* kErrorFeedbackKey = "error_feedback";

/// The same of an optimiser.
template <typename Info, typename Visit>
void for_each_setting(Info& info, const Visit& visit) {
  visit("kind", info.kind);
  visit("momentum", info.momentum);
  visit("weight_decay", info.weight_decay);
  visit("clip_norm", info.clip_norm);
  visit("base_learning_rate", info.base_learning_rate);
  visit("base_batch", info.base_batch);
  visit("warmup_steps", info.warmup_steps);
  visit("decay", info.decay);
}

Json json_of(const std::optional<double>& value) { return value ? Json(*value) : Json(nullptr); }
template <typename Value>
Json json_of(const Value& value) {
  return value;
}

Json to_object(const OptimizerInfo& info) {
  Json object;
  for_each_setting(info, [&](const char* key, const auto& value) { object[key] = json_of(value); });
  return object;
}

std::string text_of(const std::string& text) { return text; }
template <typename Integer>
std::string text_of(Integer value) {
  return std::to_string(value);
}

bool parse_text(const std::string& text, std::string& value) {
  value = text;
  return true;
}
template <typename Integer>
bool parse_text(const std::string& text, Integer& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc{} && end == text.data() + text.size() && value >= 0;
}

Json to_object(const StoredState& state) {
  return {{"file", state.file}, {"arrays", state.arrays}, {"elements", state.elements}};
}

/// The members of one JSON object, each checked for its type.
class Reader {
 public:
  Reader(const Json& object, std::string file, std::string place)
      : object_(object), file_(std::move(file)), place_(std::move(place)) {
    if (!object_.is_object()) {
      reject("", object_.type_name(), "an object");
    }
  }

  void read(const std::string& key, std::string& value) {
    if (!member(key).is_string()) {
      reject(key, member(key).dump(), "a string");
    }
    value = member(key).get<std::string>();
  }
  template <typename Integer>
  void read(const std::string& key, Integer& value) {
    if (!member(key).is_number_unsigned()) {
      reject(key, member(key).dump(), "an integer from 0");
    }
    value = member(key).get<Integer>();
  }
  void read(const std::string& key, double& value) {
    if (!member(key).is_number()) {
      reject(key, member(key).dump(), "a number");
    }
    value = member(key).get<double>();
  }
  void read(const std::string& key, std::optional<double>& value) {
    value.reset();
    if (!member(key).is_null()) {
      read(key, value.emplace());
    }
  }

  const Json& member(const std::string& key) const {
    if (!object_.contains(key)) {
      reject(key, "nothing", "a value");
    }
    return object_[key];
  }

  [[noreturn]] void reject(const std::string& key, std::string found, std::string expected) const {
    throw ConfigError(ErrorContext{file_, place_ + key, std::move(found), std::move(expected)});
  }

 private:
  const Json& object_;
  std::string file_;
  std::string place_;
};

OptimizerInfo read_optimizer_info(const Json& object, const std::string& file,
                                  const std::string& place) {
  OptimizerInfo info;
  Reader reader(object, file, place);
  for_each_setting(info, [&](const char* key, auto& value) { reader.read(key, value); });
  return info;
}

/// A list; of an older version, where there is none, an empty one.
const Json& list_or_empty(const Json& json, const char* key, const std::string& file) {
  static const Json kEmpty = Json::array();
  const Json& list = json.contains(key) ? json[key] : kEmpty;
  if (!list.is_array()) {
    throw ConfigError(ErrorContext{file, key, list.type_name(), "a list"});
  }
  return list;
}

StoredState read_state(const Json& object, const std::string& file, const std::string& place) {
  StoredState state;
  Reader fields(object, file, place);
  fields.read("file", state.file);
  fields.read("arrays", state.arrays);
  fields.read("elements", state.elements);
  return state;
}

std::vector<StoredState> read_error_feedback(const Json& json, const std::string& file) {
  std::vector<StoredState> states;
  for (const Json& entry : list_or_empty(json, kErrorFeedbackKey, file)) {
    states.push_back(read_state(
        entry, file, std::string(kErrorFeedbackKey) + "[" + std::to_string(states.size()) + "]."));
  }
  return states;
}

/// Names are used as paths within the folder, so they must not lead out of it.
bool is_plain_name(const std::string& name) {
  return !name.empty() && name.find('/') == std::string::npos && name.front() != '.';
}

}  // namespace

std::string to_json(const CheckpointManifest& manifest) {
  Json json;
  json["format_version"] = kFormatVersion;
  for_each_field(manifest.info, [&](const char* key, const auto& value) { json[key] = value; });
  if (!manifest.info.optimizer.kind.empty()) {
    json[kOptimizerKey] = to_object(manifest.info.optimizer);
  }
  if (manifest.optimizer_state) {
    json[kOptimizerStateKey] = to_object(*manifest.optimizer_state);
  }
  json[kErrorFeedbackKey] = Json::array();
  for (const StoredState& state : manifest.error_feedback) {
    json[kErrorFeedbackKey].push_back(to_object(state));
  }
  json["files"] = Json::array();
  for (const CheckpointFile& file : manifest.files) {
    json["files"].push_back({{"name", file.name}, {"bytes", file.bytes}, {"sha256", file.sha256}});
  }
  return json.dump(2) + "\n";
}

CheckpointManifest parse_manifest(const std::string& content, const std::string& file) {
  const Json json = Json::parse(content, nullptr, false);
  if (json.is_discarded()) {
    throw ConfigError(ErrorContext{file, "", std::to_string(content.size()) + " bytes of text",
                                   "a complete JSON object"});
  }
  Reader reader(json, file, "");
  std::int64_t version = 0;
  reader.read("format_version", version);
  if (version != kFormatVersion) {
    reader.reject("format_version", std::to_string(version), std::to_string(kFormatVersion));
  }
  CheckpointManifest manifest;
  for_each_field(manifest.info, [&](const char* key, auto& value) { reader.read(key, value); });
  if (json.contains(kOptimizerKey)) {
    manifest.info.optimizer = read_optimizer_info(json[kOptimizerKey], file, "optimizer.");
  }
  if (json.contains(kOptimizerStateKey)) {
    manifest.optimizer_state = read_state(json[kOptimizerStateKey], file, "optimizer_state.");
  }
  manifest.error_feedback = read_error_feedback(json, file);
  const Json& files = reader.member("files");
  if (!files.is_array()) {
    reader.reject("files", files.type_name(), "a list");
  }
  std::set<std::string> names;
  for (const Json& entry : files) {
    CheckpointFile part;
    Reader fields(entry, file, "files[" + std::to_string(names.size()) + "].");
    fields.read("name", part.name);
    fields.read("bytes", part.bytes);
    fields.read("sha256", part.sha256);
    if (!is_plain_name(part.name) || !names.insert(part.name).second) {
      fields.reject("name", "'" + part.name + "'", "the name of another file in this folder");
    }
    manifest.files.push_back(std::move(part));
  }
  return manifest;
}

Metadata to_metadata(const CheckpointInfo& info) {
  Metadata metadata{{"format", "rackrail checkpoint"}};
  for_each_field(info, [&](const char* key, const auto& value) { metadata[key] = text_of(value); });
  if (!info.optimizer.kind.empty()) {
    metadata[kOptimizerKey] = to_object(info.optimizer).dump();
  }
  return metadata;
}

CheckpointInfo parse_metadata(const Metadata& metadata, const std::string& file) {
  CheckpointInfo info;
  for_each_field(info, [&](const char* key, auto& value) {
    const auto entry = metadata.find(key);
    if (entry == metadata.end() || !parse_text(entry->second, value)) {
      throw ConfigError(
          ErrorContext{file, std::string("__metadata__.") + key,
                       entry == metadata.end() ? "nothing" : "'" + entry->second + "'",
                       "what a checkpoint of rackrail says about itself"});
    }
  });
  if (const auto entry = metadata.find(kOptimizerKey); entry != metadata.end()) {
    info.optimizer = read_optimizer_info(Json::parse(entry->second, nullptr, false), file,
                                         "__metadata__.optimizer.");
  }
  return info;
}

std::optional<OptimizerDifference> optimizer_difference(const OptimizerInfo& found,
                                                        const OptimizerInfo& expected) {
  const Json is = to_object(found);
  const Json wanted = to_object(expected);
  for (const auto& [key, value] : is.items()) {
    if (value != wanted[key]) {
      return OptimizerDifference{std::string(kOptimizerKey) + "." + key, value.dump(),
                                 wanted[key].dump()};
    }
  }
  return std::nullopt;
}

}  // namespace rackrail::trainer
