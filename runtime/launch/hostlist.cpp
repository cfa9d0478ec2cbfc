#include "runtime/launch/hostlist.hpp"

#include <charconv>
#include <cstdint>

#include "base/error.hpp"

namespace rackrail::runtime {
namespace {

[[noreturn]] void reject(std::string_view text, const std::string& where) {
  throw ConfigError(ErrorContext{.file = "<environment>",
                                 .where = where,
                                 .found = "'" + std::string(text) + "'",
                                 .expected = "a list of hosts such as node[01-04,7],login"});
}

struct Range {
  std::uint64_t first = 0;
  std::uint64_t last = 0;
  std::size_t width = 0;  ///< digits of the first number, whose padding all of them have
};

class Hostlist {
 public:
  Hostlist(std::string_view text, const std::string& where, std::size_t limit)
      : text_(text), where_(where), limit_(limit) {}

  std::vector<std::string> expand() {
    std::size_t begin = 0;
    int depth = 0;
    for (std::size_t i = 0; i <= text_.size(); ++i) {
      const char c = i < text_.size() ? text_[i] : ',';
      depth += c == '[' ? 1 : (c == ']' ? -1 : 0);
      if (depth < 0 || depth > 1 || (i == text_.size() && depth != 0)) {
        reject(text_, where_);
      }
      if (c == ',' && depth == 0) {
        if (i == begin) {
          reject(text_, where_);
        }
        expand_name("", text_.substr(begin, i - begin));
        begin = i + 1;
      }
    }
    return std::move(hosts_);
  }

 private:
  void expand_name(const std::string& prefix, std::string_view rest) {
    if (hosts_.size() >= limit_) {
      return;
    }
    const std::size_t open = rest.find('[');
    if (open == std::string_view::npos) {
      hosts_.push_back(prefix + std::string(rest));
      return;
    }
    const std::size_t close = rest.find(']', open);
    for (const Range& range : ranges(rest.substr(open + 1, close - open - 1))) {
      for (std::uint64_t n = range.first; n <= range.last && hosts_.size() < limit_; ++n) {
        std::string number = std::to_string(n);
        if (number.size() < range.width) {
          number.insert(0, range.width - number.size(), '0');
        }
        expand_name(prefix + std::string(rest.substr(0, open)) + number, rest.substr(close + 1));
      }
    }
  }

  std::vector<Range> ranges(std::string_view list) const {
    std::vector<Range> result;
    while (true) {
      const std::size_t comma = list.find(',');
      const std::string_view item = list.substr(0, comma);
      const std::size_t dash = item.find('-');
      Range range;
      range.first = number(item.substr(0, dash));
      range.last = dash == std::string_view::npos ? range.first : number(item.substr(dash + 1));
      range.width = item.substr(0, dash).size();
      if (range.last < range.first) {
        reject(text_, where_);
      }
      result.push_back(range);
      if (comma == std::string_view::npos) {
        return result;
      }
      list.remove_prefix(comma + 1);
    }
  }

  std::uint64_t number(std::string_view digits) const {
    // Up to nine digits, so that counting past the last one cannot overflow.
    std::uint64_t value = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    if (digits.empty() || digits.size() > 9 || error != std::errc{} ||
        end != digits.data() + digits.size()) {
      reject(text_, where_);
    }
    return value;
  }

  std::string_view text_;
  const std::string& where_;
  std::size_t limit_;
  std::vector<std::string> hosts_;
};

}  // namespace

std::vector<std::string> expand_hostlist(std::string_view text, const std::string& where,
                                         std::size_t limit) {
  return Hostlist(text, where, limit).expand();
}

}  // namespace rackrail::runtime
