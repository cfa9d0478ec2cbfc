// topology.conf: lines of `Key=Value` with keys in any case, comments from # on, and a \ at the end
// of a line that goes on.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>

#include "base/error.hpp"
#include "base/text.hpp"
#include "topology/readers/hostlist.hpp"
#include "topology/readers/slurm.hpp"

namespace rackrail::topology {
namespace {

using ConfFields = std::map<std::string, std::string, LessInAnyCase>;

class ConfParser {
 public:
  explicit ConfParser(std::string file) : file_(std::move(file)) {}

  SlurmTopology parse(std::string_view content) {
    std::string line;
    std::size_t begins = 1;
    for (std::size_t number = 1; !content.empty(); ++number) {
      const std::size_t end = content.find('\n');
      std::string_view piece = trimmed(without_comment(content.substr(0, end)));
      content.remove_prefix(end == content.npos ? content.size() : end + 1);
      if (line.empty()) begins = number;
      const bool goes_on = piece.ends_with('\\');
      if (goes_on) piece.remove_suffix(1);
      line += piece;
      if (goes_on && !content.empty()) continue;
      where_ = fmt::format("line {}", begins);
      if (!trimmed(line).empty()) read_line(line);
      line.clear();
    }
    if (has_link_speed_) {
      topology_.notes.emplace_back(
          "LinkSpeed is not used: Slurm gives it no unit; see --tier-bandwidth");
    }
    return std::move(topology_);
  }

 private:
  [[noreturn]] void fail(const std::string& found, const std::string& expected) const {
    throw ConfigError(ErrorContext{file_, where_, found, expected});
  }

  static std::string_view without_comment(std::string_view line) {
    for (std::size_t i = line.find('#'); i != line.npos; i = line.find('#', i + 1)) {
      if (i == 0 || line[i - 1] != '\\') return line.substr(0, i);
    }
    return line;
  }

  ConfFields fields_of(std::string_view line) const {
    ConfFields fields;
    while (!(line = trimmed(line)).empty()) {
      const std::size_t equals = line.find('=');
      const std::string_view key = trimmed(line.substr(0, equals));
      if (equals == line.npos || key.find_first_of(" \t") != key.npos) {
        fail(fmt::format("'{}'", line), "'Key=Value' after 'Key=Value'");
      }
      line = trimmed(line.substr(equals + 1));
      const bool is_quoted = line.starts_with('"');
      const std::size_t end = is_quoted ? line.find('"', 1) : end_of_value(line);
      if (is_quoted && end == line.npos) fail(fmt::format("'{}'", line), "a closing '\"'");
      const std::string_view value =
          is_quoted ? line.substr(1, end - 1) : trimmed(line.substr(0, end));
      line.remove_prefix(std::min(line.size(), is_quoted ? end + 1 : end));
      if (!fields.emplace(key, value).second) fail(fmt::format("'{}' twice", key), "each key once");
    }
    return fields;
  }

  /// A blank ends a value, but not after a comma or in brackets, where people put them too.
  static std::size_t end_of_value(std::string_view text) {
    bool is_inside = false;
    char before = ',';
    for (std::size_t i = 0; i < text.size(); ++i) {
      const char c = text[i];
      const bool is_blank = c == ' ' || c == '\t';
      if (is_blank && !is_inside && before != ',' && !trimmed(text.substr(i)).starts_with(',')) {
        return i;
      }
      if (c == '[' || c == ']') is_inside = c == '[';
      if (!is_blank) before = c;
    }
    return text.size();
  }

  void read_line(std::string_view line) {
    if (is_same_in_any_case(line.substr(0, 8), "include ")) {
      fail("'Include'", "the included lines in the file itself");
    }
    const ConfFields fields = fields_of(line);
    if (fields.contains("SwitchName")) {
      read_switches(fields);
    } else if (fields.contains("BlockName")) {
      allow_only(fields, {"BlockName", "Nodes"});
      const std::vector<std::string> hosts = names(fields, "Nodes");
      for (std::string& name : names_of_lists(fields, "BlockName", hosts.size())) {
        topology_.blocks.push_back({std::move(name), hosts, where_});
      }
    } else if (fields.contains("BlockSizes")) {
      allow_only(fields, {"BlockSizes"});
    } else if (fields.contains("RingName")) {
      fail("'RingName'", "switches or blocks: a ring is an order of hosts and no network");
    } else {
      fail(fmt::format("'{}'", fields.begin()->first), "SwitchName, BlockName or BlockSizes");
    }
  }

  void read_switches(const ConfFields& fields) {
    allow_only(fields, {"SwitchName", "Switches", "Nodes", "LinkSpeed"});
    has_link_speed_ = has_link_speed_ || fields.contains("LinkSpeed");
    const std::vector<std::string> below = names(fields, "Switches");
    const std::vector<std::string> hosts = names(fields, "Nodes");
    for (std::string& name : names_of_lists(fields, "SwitchName", below.size() + hosts.size())) {
      topology_.switches.push_back({std::move(name), below, hosts, where_});
    }
  }

  /// Names that have a list of so many others each. Throws ConfigError where these are too many
  /// together.
  std::vector<std::string> names_of_lists(const ConfFields& fields, std::string_view key,
                                          std::size_t others) {
    std::vector<std::string> all = names(fields, key);
    listed_ += all.size() * others;
    if (listed_ > kMostListed) {
      fail(fmt::format("{} names of {} others each", all.size(), others),
           fmt::format("at most {} names in the lists of all lines", kMostListed));
    }
    return all;
  }

  void allow_only(const ConfFields& fields, std::initializer_list<std::string_view> keys) const {
    for (const auto& [key, value] : fields) {
      const bool is_known = std::ranges::any_of(
          keys, [&key = key](std::string_view one) { return is_same_in_any_case(one, key); });
      if (!is_known) fail(fmt::format("'{}'", key), fmt::format("{}", fmt::join(keys, ", ")));
    }
  }

  std::vector<std::string> names(const ConfFields& fields, std::string_view key) const {
    const auto field = fields.find(key);
    if (field == fields.end()) return {};
    try {
      return expand_hostlist(field->second, kMostNetworkNames);
    } catch (const ConfigError& e) {
      throw ConfigError(ErrorContext{file_, fmt::format("{}, {}", where_, key), e.context().found,
                                     e.context().expected});
    }
  }

  std::string file_;
  std::string where_;
  static constexpr std::size_t kMostListed = 4 * kMostNetworkNames;
  bool has_link_speed_ = false;
  std::size_t listed_ = 0;
  SlurmTopology topology_;
};

}  // namespace

SlurmTopology parse_slurm_conf(const std::string& file, std::string_view content) {
  return ConfParser(file).parse(content);
}

}  // namespace rackrail::topology
