#include "sim/measured/log_lines.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cmath>
#include <set>

#include "base/text.hpp"

namespace rackrail::sim::measured {

namespace {

constexpr std::size_t kLongestTag = 160;

bool is_digit(char c) { return c >= '0' && c <= '9'; }

/// Without escape sequences of terminals; other control characters become blanks.
std::string without_escapes(std::string_view line) {
  std::string result;
  result.reserve(line.size());
  for (std::size_t i = 0; i < line.size(); ++i) {
    if (line[i] == '\x1b' && i + 1 < line.size() && line[i + 1] == '[') {
      i += 2;
      while (i < line.size() && !(line[i] >= '@' && line[i] <= '~')) {
        ++i;
      }
      continue;
    }
    const auto c = static_cast<unsigned char>(line[i]);
    result += c < 0x20 || c == 0x7f ? ' ' : line[i];
  }
  return result;
}

/// "2024-05-01", "2024-05-01T10:00:00.123Z", "10:00:00,123".
bool is_time_stamp(std::string_view word) {
  const auto fits = [&](std::string_view form) {
    return word.size() >= form.size() &&
           std::equal(form.begin(), form.end(), word.begin(), [](char wanted, char c) {
             return wanted == '0' ? is_digit(c) : wanted == c;
           });
  };
  return fits("0000-00-00") || fits("0000/00/00") || fits("00:00:00");
}

/// How long the tag is that the text begins with; 0: none.
std::size_t tag_length(std::string_view text) {
  const std::size_t blank = std::min(text.find(' '), text.size());
  const std::string_view word = text.substr(0, blank);
  if (text.front() == '[') {
    std::size_t end = text.substr(0, kLongestTag).find(']');
    if (end == std::string_view::npos) {
      return 0;
    }
    ++end;
    for (const std::string_view stream : {"<stdout>", "<stderr>"}) {
      end += text.substr(end).starts_with(stream) ? stream.size() : 0;
    }
    return end + (text.substr(end).starts_with(":") ? 1 : 0);
  }
  if (text.front() == '(') {
    const std::string_view begin = text.substr(0, kLongestTag);
    const std::size_t end = begin.find(')');
    const bool is_tag =
        end != std::string_view::npos && (begin.find("pid=") < end || begin.find("rank=") < end);
    return is_tag ? end + 1 : 0;
  }
  if (word == ">" || word == "stdout" || word == "stderr" || is_time_stamp(word)) {
    // The runtime of containers says whether a line is whole: "stdout F ".
    const std::string_view rest = text.substr(blank);
    return blank + (word.starts_with("std") && (rest.starts_with(" F ") || rest.starts_with(" P "))
                        ? 2
                        : 0);
  }
  if (word.size() > 1 && word.size() < kLongestTag && word.ends_with(':') && word.front() != '#') {
    return blank;
  }
  const std::size_t bar = text.find_first_not_of(' ', blank);
  return bar != std::string_view::npos && text.substr(bar).starts_with("| ") ? bar + 1 : 0;
}

struct Marker {
  std::size_t begin = 0;  ///< of the host's name
  std::size_t end = 0;    ///< of the word INFO or WARN
  std::string_view host;
  std::string_view process;  ///< host, pid and tid
  bool is_warning = false;
};

/// The word that ends before `end`, blanks skipped.
std::string_view word_before(std::string_view text, std::size_t end) {
  const std::size_t last = end == 0 ? std::string_view::npos : text.find_last_not_of(' ', end - 1);
  if (last == std::string_view::npos) {
    return {};
  }
  const std::size_t blank = text.find_last_of(' ', last);
  const std::size_t begin = blank == std::string_view::npos ? 0 : blank + 1;
  return text.substr(begin, last + 1 - begin);
}

/// "host:123:456" → "host"; empty for anything else.
std::string_view host_of(std::string_view word) {
  for (int number = 0; number < 2; ++number) {
    const std::size_t colon = word.rfind(':');
    if (colon == std::string_view::npos || !is_digits(word.substr(colon + 1))) {
      return {};
    }
    word = word.substr(0, colon);
  }
  return word;
}

/// How much of `word` belongs to the row before it: "-1node7" → 2. Hosts that are known decide.
std::size_t glued(std::string_view word, const std::set<std::string, std::less<>>& hosts) {
  if (hosts.contains(word)) {
    return 0;
  }
  for (std::size_t begin = 1; begin < word.size(); ++begin) {
    if (hosts.contains(word.substr(begin))) {
      return begin;
    }
  }
  std::size_t end = word.starts_with('-') ? 1 : 0;
  while (end < word.size() && (is_digit(word[end]) || word[end] == '.')) {
    ++end;
  }
  return end < word.size() && std::isalpha(static_cast<unsigned char>(word[end])) != 0 &&
                 is_number(word.substr(0, end))
             ? end
             : 0;
}

/// The next mark of NCCL from `from` on. Its host may have the end of a row before it.
std::optional<Marker> find_marker(std::string_view text, std::size_t from) {
  for (std::size_t at = text.find("NCCL ", from); at != std::string_view::npos;
       at = text.find("NCCL ", at + 1)) {
    const std::string_view kind = text.substr(at + 5, 4);
    if (kind != "INFO" && kind != "WARN") {
      continue;
    }
    Marker marker{.begin = at, .end = at + 9, .is_warning = kind == "WARN"};
    std::string_view word = word_before(text.substr(from), at - from);
    const auto begin_of = [&](std::string_view part) {
      return static_cast<std::size_t>(part.data() - text.data());
    };
    if (!word.empty() && word.front() != '[' && word.find(':') != std::string_view::npos) {
      marker.begin = begin_of(word);  // a warning's file and line
      word = word_before(text.substr(from), marker.begin - from);
    }
    if (word.starts_with('[') && word.ends_with(']')) {
      marker.begin = begin_of(word);
      const std::string_view process = word_before(text.substr(from), marker.begin - from);
      marker.host = host_of(process);
      if (!marker.host.empty()) {
        // A tag without a blank after it: "[1,0]<stdout>:host".
        const std::size_t end = marker.host.find_last_of("]>");
        std::size_t tag = end == std::string_view::npos ? 0 : end + 1;
        tag += tag > 0 && marker.host.substr(tag).starts_with(':') ? 1 : 0;
        marker.host.remove_prefix(tag);
        marker.begin = begin_of(process) + tag;
        marker.process = process.substr(tag);
      }
    }
    return marker;
  }
  return std::nullopt;
}

/// Without a tag at the end, as "0[1,0]<stdout>:" has.
std::string_view without_last_tag(std::string_view text) {
  text = trimmed(text);
  const std::size_t begin = text.rfind('[');
  if (begin == std::string_view::npos || begin == 0 || text.size() - begin > kLongestTag) {
    return text;
  }
  return begin + tag_length(text.substr(begin)) == text.size() ? trimmed(text.substr(0, begin))
                                                               : text;
}

/// Whether a row begins in it: two numbers and a type of elements.
bool begins_row(std::string_view text) {
  const std::vector<std::string_view> words = words_of(text);
  for (std::size_t i = 2; i < words.size(); ++i) {
    if (is_element_type(words[i]) && is_digits(words[i - 1]) && is_digits(words[i - 2])) {
      return true;
    }
  }
  return false;
}

/// Whether a row may go on in it: nothing but numbers.
bool continues_row(std::string_view text) {
  const std::vector<std::string_view> words = words_of(text);
  return !words.empty() && std::ranges::all_of(words, [](std::string_view word) {
    return is_number(word) || word == "N/A" || word == "none" || word == "sum";
  });
}

class Separator {
 public:
  explicit Separator(std::set<std::string, std::less<>> hosts) : hosts_(std::move(hosts)) {}

  void add(std::size_t number, std::string_view line) {
    std::optional<Marker> marker = find_marker(line, 0);
    if (!marker) {
      add_end(number, without_tags(line));
      return;
    }
    cut(*marker);
    add_piece(number, without_last_tag(without_tags(line.substr(0, marker->begin))));
    while (marker) {
      std::optional<Marker> next = find_marker(line, marker->end);
      if (next) {
        cut(*next);
      }
      const std::size_t end = next ? next->begin : line.size();
      result_.nccl.push_back({number, std::string(marker->host), std::string(marker->process),
                              std::string(trimmed(line.substr(marker->end, end - marker->end))),
                              marker->is_warning});
      marker = next;
    }
  }

  SeparatedLog finish() {
    flush();
    return std::move(result_);
  }

 private:
  /// Leaves the end of a row that the host's name is glued to.
  void cut(Marker& marker) const {
    const std::size_t length = glued(marker.host, hosts_);
    marker.begin += length;
    marker.host.remove_prefix(length);
    marker.process.remove_prefix(length);
  }

  /// What stands before NCCL's text.
  void add_piece(std::size_t number, std::string_view text) {
    if (text.empty()) {
      return;
    }
    if (begins_row(text)) {
      flush();
      pending_ = {number, std::string(text)};
    } else if (!pending_.text.empty() && continues_row(text)) {
      pending_.text += " " + std::string(text);
    } else {
      result_.program.push_back({number, std::string(text)});
    }
  }

  /// A line that ends here.
  void add_end(std::size_t number, std::string_view text) {
    if (!pending_.text.empty() && continues_row(text)) {
      pending_.text += " " + std::string(text);
      flush();
      return;
    }
    if (text.empty() || text.front() == '#' || begins_row(text)) {
      flush();
    }
    if (!text.empty()) {
      result_.program.push_back({number, std::string(text)});
    }
  }

  void flush() {
    if (!pending_.text.empty()) {
      result_.program.push_back(std::move(pending_));
      pending_ = {};
    }
  }

  std::set<std::string, std::less<>> hosts_;
  SeparatedLog result_;
  ProgramLine pending_;  ///< a row that may go on
};

template <typename Take>
void each_line(std::string_view content, const Take& take) {
  for (std::size_t number = 1; !content.empty(); ++number) {
    const std::size_t end = content.find('\n');
    take(number, without_escapes(content.substr(0, end)));
    content.remove_prefix(end == std::string_view::npos ? content.size() : end + 1);
  }
}

}  // namespace

std::vector<std::string_view> words_of(std::string_view text) {
  std::vector<std::string_view> words;
  std::size_t at = text.find_first_not_of(" \t");
  while (at != std::string_view::npos) {
    const std::size_t end = std::min(text.find_first_of(" \t", at), text.size());
    words.push_back(text.substr(at, end - at));
    at = text.find_first_not_of(" \t", end);
  }
  return words;
}

bool is_digits(std::string_view word) {
  return !word.empty() && std::ranges::all_of(word, is_digit);
}

bool is_number(std::string_view word) { return real_number(word).has_value(); }

std::optional<std::size_t> whole_number(std::string_view word, std::size_t most) {
  word = trimmed(word);
  std::size_t value = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  return !word.empty() && error == std::errc() && end == word.data() + word.size() && value <= most
             ? std::optional(value)
             : std::nullopt;
}

std::optional<double> real_number(std::string_view word) {
  word = trimmed(word);
  double value = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  return !word.empty() && error == std::errc() && end == word.data() + word.size() &&
                 std::isfinite(value)
             ? std::optional(value)
             : std::nullopt;
}

bool is_element_type(std::string_view word) {
  constexpr std::array<std::string_view, 6> kTypes = {"half", "float",    "double",
                                                      "char", "bfloat16", "int"};
  if (std::ranges::find(kTypes, word) != kTypes.end()) {
    return true;
  }
  for (const std::string_view family : {"int", "uint", "float", "fp", "bf", "f8", "hip_bfloat"}) {
    if (word.starts_with(family) && word.size() > family.size() &&
        (is_digit(word[family.size()]) || word[family.size()] == '_' ||
         word[family.size()] == 'e')) {
      return true;
    }
  }
  return false;
}

std::string_view without_tags(std::string_view text) {
  constexpr int kMostTags = 8;
  text = trimmed(text);
  for (int i = 0; i < kMostTags && !text.empty(); ++i) {
    const std::size_t length = tag_length(text);
    if (length == 0) {
      break;
    }
    text = trimmed(text.substr(length));
  }
  return text;
}

SeparatedLog separate(std::string_view content) {
  std::set<std::string, std::less<>> hosts;  // of lines that begin with one
  each_line(content, [&](std::size_t, const std::string& line) {
    const std::optional<Marker> marker = find_marker(line, 0);
    if (marker && !marker->host.empty() && without_tags(line.substr(0, marker->begin)).empty()) {
      hosts.emplace(marker->host);
    }
  });
  Separator separator(std::move(hosts));
  each_line(content,
            [&](std::size_t number, const std::string& line) { separator.add(number, line); });
  return separator.finish();
}

}  // namespace rackrail::sim::measured
