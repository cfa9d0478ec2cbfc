// A model's config.json by key; complains with file and key. A null counts as absent, as it does
// for the libraries that write these files.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

namespace rackrail::plan {

class ModelConfig {
 public:
  /// Throws ConfigError when the text is no JSON object.
  ModelConfig(const std::string& file, const std::string& content);

  using Keys = std::initializer_list<const char*>;

  /// The first of these keys that is there. Throws when none is, and for what is no whole number
  /// from `least` to 2²⁴.
  std::int64_t count(Keys keys, std::int64_t least = 1) const;
  /// The same; `otherwise` where none is there.
  std::int64_t count_or(Keys keys, std::int64_t otherwise, std::int64_t least = 1) const;
  bool flag_or(Keys keys, bool otherwise) const;
  double number_or(Keys keys, double otherwise) const;
  std::string text_or(const char* key, const std::string& otherwise) const;
  bool has(const char* key) const;
  /// Members of an object or a list; none where the key is not there.
  std::optional<std::int64_t> size_of(const char* key) const;
  const nlohmann::json* find(const char* key) const;

  [[noreturn]] void fail(const std::string& key, const std::string& found,
                         const std::string& expected) const;

 private:
  const nlohmann::json* first_of(Keys keys) const;

  std::string file_;
  nlohmann::json root_;
};

}  // namespace rackrail::plan
