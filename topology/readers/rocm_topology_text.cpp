#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <map>
#include <set>

#include "base/error.hpp"
#include "base/text.hpp"
#include "topology/readers/console_text.hpp"
#include "topology/readers/nccl_rates.hpp"
#include "topology/readers/rocm_topology.hpp"

namespace rackrail::topology {
namespace {

constexpr std::size_t kMostRocmGpus = 256;

enum class RocmTable : std::uint8_t { kNone, kOther, kWeight, kHops, kLinkType, kBandwidth };

struct RocmTitle {
  std::string_view text;  ///< in small letters
  RocmTable table;
};
/// Of rocm-smi, then of amd-smi; the first that a line has.
constexpr std::array kTitles{RocmTitle{"weight between two gpus", RocmTable::kWeight},
                             RocmTitle{"hops between two gpus", RocmTable::kHops},
                             RocmTitle{"link type between two gpus", RocmTable::kLinkType},
                             RocmTitle{"between two gpus", RocmTable::kOther},
                             RocmTitle{"weight table", RocmTable::kWeight},
                             RocmTitle{"hops table", RocmTable::kHops},
                             RocmTitle{"link type table", RocmTable::kLinkType},
                             RocmTitle{"numa bw table", RocmTable::kBandwidth},
                             RocmTitle{" table", RocmTable::kOther},
                             RocmTitle{"====", RocmTable::kOther}};

std::string in_small_letters(std::string_view text) {
  std::string small(text);
  std::ranges::transform(small, small.begin(), [](char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  });
  return small;
}

RocmTable title_of(std::string_view line) {
  const std::string small = in_small_letters(line);
  for (const RocmTitle& title : kTitles) {
    if (small.find(title.text) != std::string::npos) return title.table;
  }
  return RocmTable::kNone;
}

/// "GPU3", or a bus id.
bool is_gpu_label(std::string_view word) {
  if (word.starts_with("GPU")) {
    return word.size() > 3 && word.size() < 8 &&
           word.find_first_not_of("0123456789", 3) == std::string_view::npos;
  }
  return word.size() >= 7 && word.size() <= 16 && std::ranges::count(word, ':') >= 1 &&
         word.find('.') != std::string_view::npos &&
         word.find_first_not_of("0123456789abcdefABCDEF:.") == std::string_view::npos;
}

std::optional<std::int64_t> whole_number(std::string_view text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

class RocmText {
 public:
  RocmText(const std::string& file, std::string_view content)
      : file_(file), text_(plain_console_text(content)) {}

  bool has_link_types() const {
    bool is_found = false;
    for_each_line([&](std::size_t, std::string_view line) {
      is_found = is_found || title_of(line) == RocmTable::kLinkType;
    });
    return is_found;
  }

  RocmTopology parse() {
    for_each_line([this](std::size_t number, std::string_view line) { read_line(number, line); });
    if (result_.gpus.empty() || !seen_.contains(RocmTable::kLinkType)) {
      fail(1, "no table of link types", "the whole output of 'rocm-smi --showtopo'");
    }
    require_rows();
    require_symmetric();
    if (models_.size() == 1) result_.gpu_model = *models_.begin();
    return std::move(result_);
  }

 private:
  [[noreturn]] void fail(std::size_t line, const std::string& found,
                         const std::string& expected) const {
    throw ConfigError(ErrorContext{file_, fmt::format("line {}", line), found, expected});
  }

  template <typename Use>
  void for_each_line(const Use& use) const {
    std::size_t number = 1;
    for (std::size_t at = 0; at <= text_.size(); ++number) {
      const std::size_t end = std::min(text_.find('\n', at), text_.size());
      use(number, std::string_view(text_).substr(at, end - at));
      at = end + 1;
    }
  }

  void read_line(std::size_t number, std::string_view line) {
    if (const RocmTable title = title_of(line); title != RocmTable::kNone) {
      table_ = title;
      columns_.clear();
      return;
    }
    const std::vector<ConsoleWord> words = console_words(line);
    if (words.empty()) return;
    if (read_numa(line)) return;
    if (line.find("AMD") != line.npos || line.find("Instinct") != line.npos) {
      if (const std::optional<GpuModel> model = gpu_model_named(line)) models_.insert(model->name);
    }
    const bool is_label = is_gpu_label(words.front().text);
    if (table_ == RocmTable::kNone || table_ == RocmTable::kOther || !is_label) return;
    const bool is_heading =
        std::ranges::all_of(words, [](const ConsoleWord& word) { return is_gpu_label(word.text); });
    if (columns_.empty() && is_heading) {
      read_heading(number, words);
    } else if (!columns_.empty()) {
      read_row(number, words);
    }
  }

  void read_heading(std::size_t number, const std::vector<ConsoleWord>& words) {
    if (words.size() > kMostRocmGpus) {
      fail(number, fmt::format("{} GPUs", words.size()), fmt::format("at most {}", kMostRocmGpus));
    }
    std::vector<std::string> gpus;
    for (const ConsoleWord& word : words) gpus.emplace_back(word.text);
    std::vector<std::string> sorted = gpus;
    std::ranges::sort(sorted);
    if (std::ranges::adjacent_find(sorted) != sorted.end()) {
      fail(number, "a GPU twice", "each once");
    }
    if (result_.gpus.empty()) {
      result_.gpus = gpus;
      result_.numa.resize(gpus.size());
      result_.pairs.resize(gpus.size() * gpus.size());
    } else if (result_.gpus != gpus) {
      fail(number, "other GPUs than in the table before", "the tables of one machine");
    }
    columns_ = std::move(gpus);
  }

  void read_row(std::size_t number, const std::vector<ConsoleWord>& words) {
    const auto gpu = std::ranges::find(columns_, words.front().text);
    if (gpu == columns_.end()) {
      fail(number, fmt::format("row '{}'", words.front().text), "a GPU of the heading");
    }
    if (words.size() != columns_.size() + 1) {
      fail(number,
           fmt::format("{} in row {}", counted(static_cast<std::int64_t>(words.size()) - 1, "cell"),
                       *gpu),
           fmt::format("{}, one per column", columns_.size()));
    }
    const auto row = static_cast<std::size_t>(gpu - columns_.begin());
    if (!seen_[table_].insert(row).second) {
      fail(number, fmt::format("row {} twice", *gpu), "the tables of one machine");
    }
    for (std::size_t i = 0; i < columns_.size(); ++i) {
      if (i != row) read_cell(number, words[i + 1].text, row, i);
    }
  }

  void read_cell(std::size_t number, std::string_view text, std::size_t row, std::size_t column) {
    RocmPair& pair = result_.pairs[row * columns_.size() + column];
    if (table_ == RocmTable::kLinkType) {
      pair.is_xgmi = text == "XGMI";
      if (!pair.is_xgmi && text != "PCIE" && text != "N/A" && text != "XXXX" && text != "UNKNOWN") {
        fail(number,
             fmt::format("'{}' in row {}, column {}", text, columns_[row], columns_[column]),
             "XGMI, PCIE or N/A");
      }
    } else if (table_ == RocmTable::kWeight) {
      pair.weight = whole_number(text);
    } else if (table_ == RocmTable::kHops) {
      pair.hops = whole_number(text);
    } else if (const std::size_t dash = text.find('-'); dash != std::string_view::npos) {
      // The least and the most, in MB/s.
      const std::optional<std::int64_t> most = whole_number(text.substr(dash + 1));
      if (most && *most > 0 && *most < 100'000'000) pair.bandwidth = Bandwidth(*most * 1'000'000);
    }
  }

  /// "GPU[3] : (Topology) Numa Node: 1".
  bool read_numa(std::string_view line) {
    const std::string small = in_small_letters(line);
    constexpr std::string_view kKey = "numa node:";
    const std::size_t key = small.find(kKey);
    const std::size_t gpu = small.find("gpu");
    if (key == std::string::npos || gpu > key) return false;
    const std::size_t digit = small.find_first_of("0123456789", gpu);
    if (digit >= key) return false;
    const std::string name =
        "GPU" + small.substr(digit, small.find_first_not_of("0123456789", digit) - digit);
    const auto found = std::ranges::find(result_.gpus, name);
    const std::string_view node = trimmed(std::string_view(small).substr(key + kKey.size()));
    const std::optional<std::int64_t> value = whole_number(node);
    if (found != result_.gpus.end() && value && *value >= 0) {
      result_.numa[static_cast<std::size_t>(found - result_.gpus.begin())] = node;
    }
    return true;
  }

  void require_rows() {
    const std::set<std::size_t>& rows = seen_[RocmTable::kLinkType];
    for (std::size_t i = 0; i < result_.gpus.size(); ++i) {
      if (rows.contains(i)) continue;
      fail(1, "no link types of " + result_.gpus[i], "a row for each GPU of the heading");
    }
  }

  void require_symmetric() const {
    for (std::size_t i = 0; i < result_.gpus.size(); ++i) {
      for (std::size_t j = 0; j < i; ++j) {
        if (result_.at(i, j).is_xgmi == result_.at(j, i).is_xgmi) continue;
        const auto name = [&](std::size_t a, std::size_t b) {
          return fmt::format("{} in row {}, column {}", result_.at(a, b).is_xgmi ? "XGMI" : "PCIE",
                             result_.gpus[a], result_.gpus[b]);
        };
        throw ConfigError(ErrorContext{file_, "table of link types",
                                       fmt::format("{}, but {}", name(i, j), name(j, i)),
                                       "the same in both"});
      }
    }
  }

  const std::string& file_;
  const std::string text_;
  RocmTopology result_;
  RocmTable table_ = RocmTable::kNone;
  std::vector<std::string> columns_;                 // of the table that is read
  std::map<RocmTable, std::set<std::size_t>> seen_;  // rows by table
  std::set<std::string_view> models_;
};

}  // namespace

bool has_rocm_topology(std::string_view content) {
  const std::string file;
  return RocmText(file, content).has_link_types();
}

RocmTopology parse_rocm_topology(const std::string& file, std::string_view content) {
  return RocmText(file, content).parse();
}

}  // namespace rackrail::topology
