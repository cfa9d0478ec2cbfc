#include "plan/workloads/model_config.hpp"

#include <fmt/format.h>

#include "base/error.hpp"

namespace rackrail::plan {
namespace {

constexpr std::int64_t kLargestCount = std::int64_t{1} << 24U;

std::string shown(const nlohmann::json& value) {
  constexpr std::size_t kShown = 60;
  return value.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace).substr(0, kShown);
}

std::string joined(ModelConfig::Keys keys) { return fmt::format("{}", fmt::join(keys, " or ")); }

}  // namespace

ModelConfig::ModelConfig(const std::string& file, const std::string& content) : file_(file) {
  try {
    root_ = nlohmann::json::parse(content);
  } catch (const nlohmann::json::parse_error& error) {
    throw ConfigError(
        ErrorContext{file, fmt::format("byte {}", error.byte), "broken JSON", "a JSON object"});
  }
  if (!root_.is_object()) {
    throw ConfigError(ErrorContext{file, "", "no JSON object", "the config.json of a model"});
  }
}

const nlohmann::json* ModelConfig::find(const char* key) const {
  const auto found = root_.find(key);
  return found == root_.end() || found->is_null() ? nullptr : &*found;
}

const nlohmann::json* ModelConfig::first_of(Keys keys) const {
  for (const char* key : keys) {
    if (const nlohmann::json* value = find(key)) {
      return value;
    }
  }
  return nullptr;
}

bool ModelConfig::has(const char* key) const { return find(key) != nullptr; }

void ModelConfig::fail(const std::string& key, const std::string& found,
                       const std::string& expected) const {
  throw ConfigError(ErrorContext{file_, key, found, expected});
}

std::int64_t ModelConfig::count(Keys keys, std::int64_t least) const {
  const nlohmann::json* value = first_of(keys);
  const std::string expected = fmt::format("a whole number from {} to {}", least, kLargestCount);
  if (value == nullptr) {
    fail(joined(keys), "nothing", expected);
  }
  if (!value->is_number_integer() || *value < least || *value > kLargestCount) {
    fail(joined(keys), shown(*value), expected);
  }
  return value->get<std::int64_t>();
}

std::int64_t ModelConfig::count_or(Keys keys, std::int64_t otherwise, std::int64_t least) const {
  return first_of(keys) == nullptr ? otherwise : count(keys, least);
}

bool ModelConfig::flag_or(Keys keys, bool otherwise) const {
  const nlohmann::json* value = first_of(keys);
  if (value != nullptr && !value->is_boolean()) {
    fail(joined(keys), shown(*value), "true or false");
  }
  return value == nullptr ? otherwise : value->get<bool>();
}

double ModelConfig::number_or(Keys keys, double otherwise) const {
  const nlohmann::json* value = first_of(keys);
  if (value != nullptr && !value->is_number()) {
    fail(joined(keys), shown(*value), "a number");
  }
  return value == nullptr ? otherwise : value->get<double>();
}

std::string ModelConfig::text_or(const char* key, const std::string& otherwise) const {
  const nlohmann::json* value = find(key);
  if (value != nullptr && !value->is_string()) {
    fail(key, shown(*value), "a text");
  }
  return value == nullptr ? otherwise : value->get<std::string>();
}

std::optional<std::int64_t> ModelConfig::size_of(const char* key) const {
  const nlohmann::json* value = find(key);
  if (value == nullptr) {
    return std::nullopt;
  }
  if (!value->is_object() && !value->is_array()) {
    fail(key, shown(*value), "a map or a list");
  }
  return static_cast<std::int64_t>(value->size());
}

}  // namespace rackrail::plan
