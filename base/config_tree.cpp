#include "base/config_tree.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <set>

#include "base/error.hpp"
#include "base/parse_units.hpp"
#include "base/yaml.hpp"

namespace rackrail {
namespace {

// Anchors make a few lines stand for billions of values; a cluster file never needs this many.
constexpr std::size_t kMostValues = 1'000'000;
/// Of their texts and places: a value that stands for many may have a long name.
constexpr std::size_t kMostBytes = std::size_t{64} << 20U;
constexpr int kDeepest = 32;
constexpr Bandwidth kFastest(1'000'000'000'000'000);

}  // namespace

class ConfigTreeBuilder {
 public:
  explicit ConfigTreeBuilder(const std::string& file)
      : file_(std::make_shared<const std::string>(file)) {}

  ConfigValue root(const std::string& content) {
    try {
      ConfigValue value = build(load_yaml(content, *file_), "", 0);
      value.file_owner_ = file_;
      return value;
    } catch (const YAML::Exception& e) {
      throw ConfigError(ErrorContext{
          *file_, e.mark.is_null() ? "" : fmt::format("line {}", e.mark.line + 1), e.msg, "YAML"});
    }
  }

 private:
  ConfigValue build(const YAML::Node& node, const std::string& path, int depth) {
    ConfigValue value;
    value.file_ = file_.get();
    value.path_ = path;
    value.line_ = node.Mark().is_null() ? 0 : node.Mark().line + 1;
    if (++values_ > kMostValues) {
      value.fail(fmt::format("more than {} values", kMostValues), "a smaller file");
    }
    bytes_ += path.size() + (node.IsScalar() ? node.Scalar().size() : 0);
    if (bytes_ > kMostBytes) {
      value.fail(fmt::format("values of more than {} MiB", kMostBytes >> 20U), "a smaller file");
    }
    if (depth > kDeepest) {
      value.fail(fmt::format("more than {} levels", kDeepest), "fewer levels");
    }
    if (node.IsScalar()) {
      value.kind_ = ConfigValue::Kind::kText;
      value.text_ = node.Scalar();
    } else if (node.IsSequence()) {
      value.kind_ = ConfigValue::Kind::kList;
      for (const YAML::Node& element : node) {
        value.elements_.push_back(
            build(element, fmt::format("{}[{}]", path, value.elements_.size()), depth + 1));
      }
    } else if (node.IsMap()) {
      value.kind_ = ConfigValue::Kind::kMap;
      std::set<std::string> seen;
      for (const auto& member : node) {
        if (!member.first.IsScalar()) {
          value.fail("a key that is no plain text", "plain keys");
        }
        const std::string key = member.first.Scalar();
        const std::string place = path.empty() ? key : fmt::format("{}.{}", path, key);
        ConfigValue child = build(member.second, place, depth + 1);
        if (!seen.insert(key).second) {
          child.fail(fmt::format("a second '{}'", key), "each key once");
        }
        value.members_.emplace_back(key, std::move(child));
      }
    }
    return value;
  }

  std::shared_ptr<const std::string> file_;
  std::size_t values_ = 0;
  std::size_t bytes_ = 0;
};

ConfigValue ConfigValue::parse(const std::string& file, const std::string& content) {
  return ConfigTreeBuilder(file).root(content);
}

std::string ConfigValue::where() const {
  const std::string line = line_ > 0 ? fmt::format("line {}", line_) : std::string();
  return path_.empty() ? line : line.empty() ? path_ : line + ", " + path_;
}

void ConfigValue::fail(const std::string& found, const std::string& expected) const {
  throw ConfigError(ErrorContext{*file_, where(), found, expected});
}

void ConfigValue::fail(const std::string& expected) const {
  fail(kind_ == Kind::kNothing ? "nothing"
       : kind_ == Kind::kList  ? "a list"
       : kind_ == Kind::kMap   ? "a map"
                               : fmt::format("'{}'", text_),
       expected);
}

const std::vector<std::pair<std::string, ConfigValue>>& ConfigValue::members() const {
  if (kind_ != Kind::kMap) fail("a map (key: value)");
  return members_;
}

const std::vector<ConfigValue>& ConfigValue::elements() const {
  if (kind_ != Kind::kList) fail("a list");
  return elements_;
}

const ConfigValue* ConfigValue::find(std::string_view key) const {
  const auto found = std::find_if(members().begin(), members().end(),
                                  [key](const auto& member) { return member.first == key; });
  return found == members_.end() ? nullptr : &found->second;
}

const ConfigValue& ConfigValue::require(std::string_view key) const {
  const ConfigValue* value = find(key);
  if (value == nullptr) fail(fmt::format("no '{}'", key), fmt::format("'{}'", key));
  return *value;
}

void ConfigValue::allow_only(std::initializer_list<std::string_view> keys) const {
  for (const auto& [key, value] : members()) {
    if (std::find(keys.begin(), keys.end(), key) == keys.end()) {
      value.fail(fmt::format("unknown key '{}'", key),
                 fmt::format("one of {}", fmt::join(keys, ", ")));
    }
  }
}

const std::string& ConfigValue::text() const {
  if (kind_ != Kind::kText) fail("a text");
  return text_;
}

const std::string& ConfigValue::name() const {
  if (text().empty()) fail("a name");
  return text_;
}

bool ConfigValue::flag() const {
  if (kind_ != Kind::kText || (text_ != "true" && text_ != "false")) fail("true or false");
  return text_ == "true";
}

std::int64_t ConfigValue::count(std::int64_t least, std::int64_t most) const {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text_.data(), text_.data() + text_.size(), value);
  if (kind_ != Kind::kText || error != std::errc{} || end != text_.data() + text_.size() ||
      value < least || value > most) {
    fail(fmt::format("a whole number from {} to {}", least, most));
  }
  return value;
}

double ConfigValue::ratio(double least, double most) const {
  double value = 0;
  const auto [end, error] = std::from_chars(text_.data(), text_.data() + text_.size(), value);
  if (kind_ != Kind::kText || error != std::errc{} || end != text_.data() + text_.size() ||
      !(value >= least && value <= most)) {
    fail(fmt::format("a number from {} to {}", least, most));
  }
  return value;
}

double ConfigValue::share() const {
  double value = 0;
  const auto [end, error] = std::from_chars(text_.data(), text_.data() + text_.size(), value);
  std::string_view rest(end, static_cast<std::size_t>(text_.data() + text_.size() - end));
  while (!rest.empty() && rest.front() == ' ') rest.remove_prefix(1);
  if (rest == "%") value /= 100;
  if (kind_ != Kind::kText || error != std::errc{} || !(rest.empty() || rest == "%") ||
      !(value >= 0 && value <= 1)) {
    fail("a share such as '35 %' or 0.35");
  }
  return std::abs(value);  // of "-0"
}

namespace {

/// Runs one of the unit parsers and gives its complaint the place of the value; `range` is what a
/// value may be that has a unit.
template <typename Parse>
auto parsed(const ConfigValue& value, const char* expected, const std::string& range, Parse parse) {
  if (value.kind() != ConfigValue::Kind::kText) value.fail(expected);
  try {
    return parse(value.text());
  } catch (const QuantityRangeError&) {
    value.fail(range);
  } catch (const ConfigError& e) {
    value.fail(e.context().found, e.context().expected);
  }
}

}  // namespace

Bytes ConfigValue::bytes() const {
  constexpr const char* kRange = "a size above 0 and up to 9200000 TB";
  const Bytes value =
      parsed(*this, "a size with a unit", kRange, [](auto& t) { return parse_bytes(t); });
  if (value <= Bytes(0)) fail(kRange);
  return value;
}

Bandwidth ConfigValue::bandwidth() const {
  constexpr const char* kRange = "a rate above 0 and up to 1000 TB/s";
  const Bandwidth value =
      parsed(*this, "a rate with a unit", kRange, [](auto& t) { return parse_bandwidth(t); });
  if (value <= Bandwidth(0) || value > kFastest) fail(kRange);
  return value;
}

Duration ConfigValue::duration(Duration most) const {
  const std::string range = "a time from 0 to " + to_string(most);
  const Duration value =
      parsed(*this, "a time with a unit", range, [](auto& t) { return parse_duration(t); });
  if (value > most) fail(range);
  return value;
}

}  // namespace rackrail
