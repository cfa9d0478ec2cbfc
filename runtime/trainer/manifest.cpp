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

/// Names are used as paths within the folder, so they must not lead out of it.
bool is_plain_name(const std::string& name) {
  return !name.empty() && name.find('/') == std::string::npos && name.front() != '.';
}

}  // namespace

std::string to_json(const CheckpointManifest& manifest) {
  Json json;
  json["format_version"] = kFormatVersion;
  for_each_field(manifest.info, [&](const char* key, const auto& value) { json[key] = value; });
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
  return info;
}

}  // namespace rackrail::trainer
