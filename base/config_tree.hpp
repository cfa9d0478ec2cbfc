// A YAML file as a tree of values that know where they stand, so that every complaint has a file, a
// line and a field. Keeps yaml-cpp out of the headers.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/units.hpp"

namespace rackrail {

/// A value of a configuration file: nothing, a text, a list or a map.
class ConfigValue {
 public:
  enum class Kind : std::uint8_t { kNothing, kText, kList, kMap };

  /// Parses the first document of `content`. Throws ConfigError for broken YAML, keys that are not
  /// plain texts, keys given twice, and files that expand to more than a million values.
  static ConfigValue parse(const std::string& file, const std::string& content);

  Kind kind() const { return kind_; }
  bool is_map() const { return kind_ == Kind::kMap; }
  bool is_list() const { return kind_ == Kind::kList; }
  const std::string& file() const { return *file_; }
  /// "line 12, racks.hosts".
  std::string where() const;

  /// Throws ConfigError with this value's file and place.
  [[noreturn]] void fail(const std::string& found, const std::string& expected) const;
  /// The same, with this value itself as what was found.
  [[noreturn]] void fail(const std::string& expected) const;

  /// Member of a map; null when it is not there. Throws when this is not a map.
  const ConfigValue* find(std::string_view key) const;
  /// Throws when the key is not there.
  const ConfigValue& require(std::string_view key) const;
  /// Throws for the first key that is not one of these, naming them.
  void allow_only(std::initializer_list<std::string_view> keys) const;
  /// Members of a map in the order of the file. Throws when this is not a map.
  const std::vector<std::pair<std::string, ConfigValue>>& members() const;
  /// Elements of a list. Throws when this is not a list.
  const std::vector<ConfigValue>& elements() const;

  // Scalars. Each throws with what was found and what was expected.
  const std::string& text() const;
  const std::string& name() const;  ///< a text that is not empty
  bool flag() const;                ///< true or false
  std::int64_t count(std::int64_t least, std::int64_t most) const;
  double ratio(double least, double most) const;  ///< a bare number
  double share() const;                           ///< "35 %" or 0.35
  Bytes bytes() const;                            ///< above 0
  Bandwidth bandwidth() const;                    ///< above 0, at most 1 PB/s
  /// At least 0, and at most `most` (an hour by default).
  Duration duration(Duration most = Duration(3'600'000'000'000'000)) const;

 private:
  friend class ConfigTreeBuilder;
  ConfigValue() = default;

  const std::string* file_ = nullptr;
  std::shared_ptr<const std::string> file_owner_;  // of the root only
  std::string path_;
  int line_ = 0;
  Kind kind_ = Kind::kNothing;
  std::string text_;
  std::vector<ConfigValue> elements_;
  std::vector<std::pair<std::string, ConfigValue>> members_;
};

}  // namespace rackrail
