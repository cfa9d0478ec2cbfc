#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <set>

#include "base/error.hpp"
#include "base/text.hpp"
#include "topology/readers/console_text.hpp"
#include "topology/readers/nccl_rates.hpp"
#include "topology/readers/topo_matrix.hpp"

namespace rackrail::topology {
namespace {

constexpr std::size_t kMostTopoDevices = 256;
constexpr std::string_view kCells = "NV#, PIX, PXB, PHB, NODE, SYS, X or N/A";
constexpr std::array<std::string_view, 5> kHeadings{"CPU", "NUMA", "Affinity", "GPU", "ID"};
constexpr std::array<std::string_view, 7> kPeerAccess{"OK", "NS", "CNS", "GNS", "TNS", "DR", "U"};

struct TopoRelationName {
  std::string_view text;
  TopoRelation relation;
};
/// SOC is what drivers before 2017 called SYS.
constexpr std::array kRelations{
    TopoRelationName{"NODE", TopoRelation::kNode},   TopoRelationName{"PIX", TopoRelation::kPix},
    TopoRelationName{"PXB", TopoRelation::kPxb},     TopoRelationName{"PHB", TopoRelation::kPhb},
    TopoRelationName{"SYS", TopoRelation::kSys},     TopoRelationName{"SOC", TopoRelation::kSys},
    TopoRelationName{"N/A", TopoRelation::kUnknown}, TopoRelationName{"X", TopoRelation::kSelf}};

bool is_decimal_digit(char c) { return c >= '0' && c <= '9'; }

std::size_t digits_from(std::string_view text, std::size_t at) {
  std::size_t end = at;
  while (end < text.size() && is_decimal_digit(text[end])) ++end;
  return end - at;
}

/// Length of the "GPU12" or "NIC3" that begins here; 0: none does.
std::size_t topo_label_length(std::string_view text) {
  if (!text.starts_with("GPU") && !text.starts_with("NIC")) return 0;
  const std::size_t digits = digits_from(text, 3);
  return digits == 0 || digits > 4 ? 0 : 3 + digits;
}

bool is_topo_label(std::string_view text) {
  return !text.empty() && topo_label_length(text) == text.size();
}

/// As "mlx5_0", "bnxt_re0", "rdmap79s0".
bool is_adapter_name(std::string_view text) {
  const auto is_letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); };
  return text.size() <= 64 && is_letter(text.front()) &&
         std::any_of(text.begin(), text.end(), is_decimal_digit) &&
         std::all_of(text.begin(), text.end(), [&](char c) {
           return is_letter(c) || is_decimal_digit(c) || c == '_' || c == '-' || c == '.';
         });
}

/// As "0-31,64-95", "0", "N/A".
bool is_affinity(std::string_view text) {
  return text == "N/A" || (std::any_of(text.begin(), text.end(), is_decimal_digit) &&
                           text.find_first_not_of("0123456789abcdefx,-") == std::string_view::npos);
}

/// Takes the cell that the text begins with; none: it begins with none.
std::optional<TopoCell> take_cell(std::string_view& text) {
  if (text.starts_with("NV")) {
    std::size_t digits = std::min<std::size_t>(digits_from(text, 2), 2);
    int links = 0;
    std::from_chars(text.data() + 2, text.data() + 2 + digits, links);
    if (links > kMostNvlinks) {  // runs together with a CPU affinity
      digits = 1;
      links /= 10;
    }
    if (links == 0) return std::nullopt;
    text.remove_prefix(2 + digits);
    return TopoCell{TopoRelation::kNvlink, links};
  }
  for (const TopoRelationName& name : kRelations) {
    if (!text.starts_with(name.text)) continue;
    text.remove_prefix(name.text.size());
    return TopoCell{name.relation, 0};
  }
  return std::nullopt;
}

bool begins_with_cell(std::string_view text) { return take_cell(text).has_value(); }

struct TopoHeader {
  std::vector<std::string> labels;
  bool has_numa = false;     ///< "NUMA Affinity"
  bool has_numa_id = false;  ///< "GPU NUMA ID"
  bool has_cpus = false;     ///< "CPU Affinity"
  std::size_t rows = 0;      ///< word at which they begin
};

struct TopoRow {
  std::string label;
  std::vector<TopoCell> cells;
  std::vector<std::string> affinity;
  std::size_t line = 0;
};

class MatrixText {
 public:
  MatrixText(const std::string& file, std::string_view content)
      : file_(file), text_(plain_console_text(content)), words_(console_words(text_)) {}

  /// From the word on, one that a matrix begins at.
  std::optional<std::size_t> find(std::size_t from) const {
    for (std::size_t i = from; i < words_.size();) {
      std::size_t end = i + 1;
      if (topo_label_length(words_[i].text) > 0) {
        const std::optional<TopoHeader> header = header_at(i, end);
        if (header && is_row(header->rows, *header)) return i;
      }
      // What ended this heading ends those that begin within it.
      i = std::max(i + 1, end);
    }
    return std::nullopt;
  }

  TopoMatrix parse() const {
    std::optional<ConfigError> first_error;
    for (std::optional<std::size_t> at = find(0); at; at = find(*at + 1)) {
      try {
        std::size_t end = 0;
        TopoMatrix matrix = matrix_at(*at, end);
        if (find(end)) matrix.notes.emplace_back("the text has several matrices: the first counts");
        return matrix;
      } catch (const ConfigError& e) {
        if (!first_error) first_error = e;
      }
    }
    if (first_error) throw ConfigError(*first_error);
    fail(1, "no matrix", "the output of 'nvidia-smi topo -m', with its heading and its rows");
  }

 private:
  [[noreturn]] void fail(std::size_t line, const std::string& found,
                         const std::string& expected) const {
    throw ConfigError(ErrorContext{file_, fmt::format("line {}", line), found, expected});
  }

  /// The words of a heading may run together ("GPU0GPU1", "AffinityNUMA"). False: it is none.
  static bool split_heading(std::string_view word, std::vector<std::string_view>& pieces) {
    while (!word.empty()) {
      std::size_t length = topo_label_length(word);
      for (const std::string_view known : kHeadings) {
        if (length == 0 && word.starts_with(known)) length = known.size();
      }
      if (length == 0) return false;
      pieces.push_back(word.substr(0, length));
      word.remove_prefix(length);
    }
    return true;
  }

  /// `end` becomes the word at which it ends, or cannot go on.
  std::optional<TopoHeader> header_at(std::size_t from, std::size_t& end) const {
    TopoHeader header;
    std::set<std::string, std::less<>> seen;
    bool is_ended = false;
    for (std::size_t i = from; i < words_.size() && header.labels.size() <= kMostTopoDevices; ++i) {
      const std::string_view word = words_[i].text;
      end = i;
      if (i > from && is_row_label(word, seen)) {
        header.rows = i;
        return header;
      }
      std::vector<std::string_view> pieces;
      if (!split_heading(word, pieces)) {
        if (is_ended || !is_adapter_name(word)) return std::nullopt;
        pieces.assign(1, word);
      }
      for (const std::string_view piece : pieces) {
        header.has_cpus |= piece == "CPU";
        header.has_numa_id |= piece == "ID";
        // "GPU NUMA ID" has the word, too.
        header.has_numa |= piece == "NUMA" && !(i > from && words_[i - 1].text.ends_with("GPU"));
        if (std::find(kHeadings.begin(), kHeadings.end(), piece) != kHeadings.end()) {
          is_ended = true;
        } else if (!is_ended && seen.insert(std::string(piece)).second) {
          header.labels.emplace_back(piece);
        } else {
          return std::nullopt;
        }
      }
    }
    return std::nullopt;
  }

  /// Whether rows begin here: with a label that was a column, also where a cell follows at once.
  static bool is_row_label(std::string_view word,
                           const std::set<std::string, std::less<>>& columns) {
    if (columns.contains(word)) return true;
    const std::size_t length = topo_label_length(word);
    return length > 0 && columns.contains(word.substr(0, length)) &&
           begins_with_cell(word.substr(length));
  }

  /// Length of the label of the row that this word begins; 0: it begins none.
  std::size_t row_label(std::size_t at, const TopoHeader& header) const {
    if (at >= words_.size()) return 0;
    const std::string_view word = words_[at].text;
    const bool has_cell = at + 1 < words_.size() && begins_with_cell(words_[at + 1].text);
    const bool is_column =
        std::find(header.labels.begin(), header.labels.end(), word) != header.labels.end();
    // A heading that was cut lacks columns; their rows are there.
    if ((is_column || is_topo_label(word) || (words_[at].is_first && is_adapter_name(word))) &&
        has_cell && !begins_with_cell(word)) {
      return word.size();
    }
    const std::size_t length = topo_label_length(word);
    return length > 0 && length < word.size() && begins_with_cell(word.substr(length)) ? length : 0;
  }

  bool is_row(std::size_t at, const TopoHeader& header) const { return row_label(at, header) > 0; }

  /// Reads the row at the word and moves on behind it.
  TopoRow row_at(std::size_t& at, const TopoHeader& header) const {
    const std::size_t columns = header.labels.size();
    const std::size_t length = row_label(at, header);
    TopoRow row;
    row.line = words_[at].line;
    row.label = words_[at].text.substr(0, length);
    std::string_view rest = words_[at].text.substr(length);
    for (;;) {
      while (!rest.empty() && row.cells.size() < columns) {
        const std::optional<TopoCell> cell = take_cell(rest);
        if (!cell) fail_at_cell(words_[at].line, row, rest);
        row.cells.push_back(*cell);
      }
      ++at;
      if (!rest.empty() || row.cells.size() == columns || at == words_.size() ||
          is_row(at, header) || !begins_with_cell(words_[at].text)) {
        break;
      }
      rest = words_[at].text;
    }
    if (!rest.empty()) row.affinity.emplace_back(rest);
    // Columns that the heading lacks.
    while (at < words_.size() && begins_with_cell(words_[at].text) && !is_row(at, header) &&
           words_[at].text != "N/A") {
      ++at;
    }
    read_affinity(at, header, row);
    check_length(at, header, row);
    return row;
  }

  void read_affinity(std::size_t& at, const TopoHeader& header, TopoRow& row) const {
    for (; at < words_.size() && is_affinity(words_[at].text) && !is_row(at, header); ++at) {
      if (!row.affinity.empty() && row.affinity.back().ends_with(',')) {
        row.affinity.back() += words_[at].text;
      } else {
        row.affinity.emplace_back(words_[at].text);
      }
    }
  }

  /// A paste may lack the last columns; a row that lacks one in between may not be read.
  void check_length(std::size_t at, const TopoHeader& header, const TopoRow& row) const {
    if (row.cells.size() == header.labels.size()) return;
    if (at < words_.size() && !words_[at].is_first && !is_row(at, header)) {
      fail_at_cell(words_[at].line, row, words_[at].text);
    }
    if (!row.affinity.empty()) {
      fail(row.line,
           fmt::format("{} in row {}", counted(static_cast<std::int64_t>(row.cells.size()), "cell"),
                       row.label),
           fmt::format("{}, one per column", header.labels.size()));
    }
  }

  [[noreturn]] void fail_at_cell(std::size_t line, const TopoRow& row,
                                 std::string_view found) const {
    if (std::find(kPeerAccess.begin(), kPeerAccess.end(), found) != kPeerAccess.end()) {
      fail(line, "the matrix of 'nvidia-smi topo -p2p', which tells who may access whose memory",
           "that of 'nvidia-smi topo -m', which tells what joins the devices");
    }
    fail(line, fmt::format("'{}' in row {}", found, row.label), fmt::format("{}", kCells));
  }

  TopoMatrix matrix_at(std::size_t begin, std::size_t& end) const {
    const std::optional<TopoHeader> header = header_at(begin, end);
    if (!header) fail(words_[begin].line, "no heading", "GPU0, GPU1 and so on");
    std::vector<TopoRow> rows;
    end = header->rows;
    while (is_row(end, *header) && rows.size() <= kMostTopoDevices)
      rows.push_back(row_at(end, *header));
    TopoMatrix matrix = assembled(*header, rows);
    require_diagonal(matrix);
    make_symmetric(matrix);
    read_legend(matrix);
    const std::size_t last = end < words_.size() && end > 0 ? words_[end - 1].line : kNoLine;
    matrix.gpu_model = model_outside(words_[begin].line, last);
    return matrix;
  }

  TopoMatrix assembled(const TopoHeader& header, const std::vector<TopoRow>& rows) const {
    TopoMatrix matrix;
    const auto index_of = [&](const std::string& label) {
      const auto found = std::find_if(matrix.devices.begin(), matrix.devices.end(),
                                      [&](const TopoDevice& d) { return d.label == label; });
      if (found == matrix.devices.end()) matrix.devices.push_back({.label = label});
      return static_cast<std::size_t>(
          std::find_if(matrix.devices.begin(), matrix.devices.end(),
                       [&](const TopoDevice& d) { return d.label == label; }) -
          matrix.devices.begin());
    };
    for (const std::string& label : header.labels) index_of(label);
    for (const TopoRow& row : rows) {
      TopoDevice& device = matrix.devices[index_of(row.label)];
      if (device.line != 0) fail(row.line, fmt::format("row {} twice", row.label), "each once");
      device.line = row.line;
      device.numa = numa_of(row, header);
    }
    for (TopoDevice& device : matrix.devices) {
      device.is_gpu = device.label.starts_with("GPU") && is_topo_label(device.label);
      if (!is_topo_label(device.label)) device.name = device.label;
    }
    matrix.cells.resize(matrix.devices.size() * matrix.devices.size());
    for (const TopoRow& row : rows) {
      const std::size_t i = index_of(row.label);
      for (std::size_t j = 0; j < row.cells.size(); ++j) matrix.at(i, j) = row.cells[j];
    }
    return matrix;
  }

  /// The NUMA node, or else the cores, which also tell sockets apart.
  static std::string numa_of(const TopoRow& row, const TopoHeader& header) {
    std::vector<std::string> columns = row.affinity;
    if (header.has_numa_id && columns.size() > 1) columns.pop_back();
    if (columns.empty()) return "";
    const bool has_numa = header.has_numa || !header.has_cpus;
    if (has_numa && columns.size() < 2) return "";
    const std::string& text = has_numa ? columns[1] : columns[0];
    return text == "N/A" ? "" : text;
  }

  static std::string place(const TopoMatrix& matrix, std::size_t row, std::size_t column) {
    return fmt::format("row {}, column {}", matrix.devices[row].label,
                       matrix.devices[column].label);
  }

  void require_diagonal(const TopoMatrix& matrix) const {
    for (std::size_t i = 0; i < matrix.devices.size(); ++i) {
      for (std::size_t j = 0; j < matrix.devices.size(); ++j) {
        const TopoCell& cell = matrix.at(i, j);
        const bool is_self = cell.relation == TopoRelation::kSelf;
        if (cell.relation == TopoRelation::kUnknown || is_self == (i == j)) continue;
        fail(matrix.devices[i].line,
             fmt::format("'{}' in {}", to_string(cell), place(matrix, i, j)),
             i == j ? "'X': is a cell of the row missing?"
                    : "'X' only where row and column are the same device");
      }
    }
  }

  void make_symmetric(TopoMatrix& matrix) const {
    for (std::size_t i = 0; i < matrix.devices.size(); ++i) {
      for (std::size_t j = 0; j < matrix.devices.size(); ++j) {
        TopoCell& cell = matrix.at(i, j);
        const TopoCell& back = matrix.at(j, i);
        if (cell.relation == TopoRelation::kUnknown) {
          cell = back;
        } else if (back.relation != TopoRelation::kUnknown && back != cell) {
          fail(matrix.devices[i].line,
               fmt::format("'{}' in {}, but '{}' in {}", to_string(cell), place(matrix, i, j),
                           to_string(back), place(matrix, j, i)),
               "the same in both");
        }
      }
    }
    for (const TopoDevice& device : matrix.devices) {
      const bool is_missing = device.is_gpu && device.line == 0;
      if (is_missing) fail(1, "no row for " + device.label, "a row for each GPU of the heading");
    }
  }

  void read_legend(TopoMatrix& matrix) const {
    for (std::size_t i = 0; i < words_.size(); ++i) {
      const std::string_view word = words_[i].text;
      const std::size_t length = topo_label_length(word);
      if (length == 0 || length == word.size() || word[length] != ':') continue;
      std::string_view name = word.substr(length + 1);
      if (name.empty() && i + 1 < words_.size() && !words_[i + 1].is_first) {
        name = words_[i + 1].text;
      }
      for (TopoDevice& device : matrix.devices) {
        if (!device.is_gpu && device.label == word.substr(0, length)) device.name = name;
      }
    }
  }

  /// The one GPU model that the text names before line `first` and after line `last`.
  std::string model_outside(std::size_t first, std::size_t last) const {
    std::set<std::string_view> models;
    std::size_t number = 1;
    for (std::size_t at = 0; at <= text_.size(); ++number) {
      const std::size_t end = std::min(text_.find('\n', at), text_.size());
      const std::string_view line = std::string_view(text_).substr(at, end - at);
      at = end + 1;
      const bool is_outside = number < first || number > last;
      if (!is_outside || (line.find("NVIDIA") == line.npos && line.find("Tesla") == line.npos)) {
        continue;
      }
      if (const std::optional<GpuModel> model = gpu_model_named(line)) models.insert(model->name);
    }
    return models.size() == 1 ? std::string(*models.begin()) : std::string();
  }

  static constexpr std::size_t kNoLine = SIZE_MAX;

  const std::string& file_;
  const std::string text_;
  const std::vector<ConsoleWord> words_;
};

}  // namespace

std::string to_string(const TopoCell& cell) {
  if (cell.relation == TopoRelation::kNvlink) return fmt::format("NV{}", cell.links);
  for (const TopoRelationName& name : kRelations) {
    if (name.relation == cell.relation) return std::string(name.text);
  }
  return "N/A";
}

bool has_topo_matrix(std::string_view content) {
  if (content.find("GPU") == std::string_view::npos) return false;
  const std::string file;
  return MatrixText(file, content).find(0).has_value();
}

TopoMatrix parse_topo_matrix(const std::string& file, std::string_view content) {
  return MatrixText(file, content).parse();
}

}  // namespace rackrail::topology
