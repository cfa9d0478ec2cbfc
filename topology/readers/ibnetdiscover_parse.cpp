#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <unordered_map>
#include <utility>

#include "base/error.hpp"
#include "base/text.hpp"
#include "topology/readers/ibnetdiscover.hpp"

namespace rackrail::topology {
namespace {

/// Takes text from the front of a line.
class Scanner {
 public:
  explicit Scanner(std::string_view text) : rest_(text) {}

  bool skip(char c) {
    skip_blanks();
    if (!rest_.starts_with(c)) return false;
    rest_.remove_prefix(1);
    return true;
  }

  std::optional<int> number() {
    skip_blanks();
    int value = 0;
    const auto [end, error] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), value);
    if (error != std::errc() || value < 0) return std::nullopt;
    rest_.remove_prefix(static_cast<std::size_t>(end - rest_.data()));
    return value;
  }

  /// What stands between two of these, to the last of them where `is_greedy`.
  std::optional<std::string_view> quoted(bool is_greedy = false) {
    skip_blanks();
    if (!rest_.starts_with('"')) return std::nullopt;
    const std::size_t end = is_greedy ? rest_.rfind('"') : rest_.find('"', 1);
    if (end == rest_.npos || end == 0) return std::nullopt;
    const std::string_view text = rest_.substr(1, end - 1);
    rest_.remove_prefix(end + 1);
    return text;
  }

  /// A port: "[3]", "[3][ext 5]", "[3](2c5eab0300b87b50)".
  std::optional<int> port() {
    if (!skip('[')) return std::nullopt;
    const std::optional<int> value = number();
    if (!value || !skip(']')) return std::nullopt;
    skip_blanks();
    if (rest_.starts_with("[ext")) rest_.remove_prefix(after(']'));
    skip_blanks();
    if (rest_.starts_with('(')) rest_.remove_prefix(after(')'));
    return value;
  }

  void skip_to(char c) { rest_.remove_prefix(std::min(rest_.find(c), rest_.size())); }
  std::string_view word() {
    skip_blanks();
    const std::string_view word = rest_.substr(0, rest_.find_first_of(" \t"));
    rest_.remove_prefix(word.size());
    return word;
  }
  std::string_view rest() const { return rest_; }

 private:
  void skip_blanks() {
    rest_.remove_prefix(std::min(rest_.find_first_not_of(" \t"), rest_.size()));
  }
  std::size_t after(char c) const { return std::min(rest_.find(c), rest_.size() - 1) + 1; }

  std::string_view rest_;
};

bool is_speed(std::string_view word) {
  const std::size_t x = word.find('x');
  return x != word.npos && x > 0 && x + 2 < word.size() &&
         std::ranges::all_of(word.substr(0, x),
                             [](char c) { return (c >= '0' && c <= '9') || c == '?'; }) &&
         std::ranges::all_of(word.substr(x + 1), [](char c) {
           return (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '?';
         });
}

class FabricParser {
 public:
  explicit FabricParser(std::string file) : file_(std::move(file)) {}

  IbFabric parse(std::string_view content) {
    for (line_ = 1; !content.empty(); ++line_) {
      const std::size_t end = content.find('\n');
      const std::string_view line = trimmed(content.substr(0, end));
      content.remove_prefix(end == content.npos ? content.size() : end + 1);
      if (!line.empty() && line.front() != '#') read_line(line);
    }
    return std::move(fabric_);
  }

 private:
  [[noreturn]] void fail(std::string_view found, const std::string& expected) const {
    throw ConfigError(
        ErrorContext{file_, fmt::format("line {}", line_), fmt::format("'{}'", found), expected});
  }

  void read_line(std::string_view line) {
    if (line.front() == '[') {
      read_port(line);
      return;
    }
    constexpr std::array<std::pair<std::string_view, IbDevice::Kind>, 6> kBlocks{
        {{"Switch", IbDevice::Kind::kSwitch},
         {"Ca", IbDevice::Kind::kAdapter},
         {"Hca", IbDevice::Kind::kAdapter},
         {"Rt", IbDevice::Kind::kRouter},
         {"SW", IbDevice::Kind::kSwitch},
         {"CA", IbDevice::Kind::kAdapter}}};
    const std::string_view word = Scanner(line).word();
    for (const auto& [name, kind] : kBlocks) {
      if (word != name) continue;
      read_block(line, kind);
      return;
    }
    const std::string_view key = word.substr(0, word.find('='));
    constexpr std::array<std::string_view, 6> kIds{"vendid",     "devid",  "sysimgguid",
                                                   "switchguid", "caguid", "rtguid"};
    const bool is_id = key.size() < word.size() && std::ranges::count(kIds, key) > 0;
    if (is_id || word == "Chassis" || word == "Non-Chassis" || word == "Hostname:") return;
    fail(line, "a line of ibnetdiscover: an id, Switch, Ca, Rt, or [port]");
  }

  void read_block(std::string_view line, IbDevice::Kind kind) {
    Scanner scanner(line);
    scanner.word();
    const bool has_ports = scanner.number().has_value();
    const std::optional<std::string_view> id = scanner.quoted();
    if (!has_ports || !id || id->empty()) {
      fail(line, "'Switch 65 \"S-guid\" # \"name\"': the list of ibnetdiscover without options");
    }
    block_ = device(*id, kind);
    IbDevice& one = fabric_.devices[*block_];
    if (one.line != 0) {
      fail(*id, fmt::format("each device once: it has a block at line {}", one.line));
    }
    one.line = line_;
    one.kind = kind;
    scanner.skip_to('"');
    const std::size_t end = scanner.rest().rfind('"');
    if (end != std::string_view::npos && end > 0) {
      one.description = scanner.rest().substr(1, end - 1);
    }
  }

  void read_port(std::string_view line) {
    if (!block_) fail(line, "'Switch' or 'Ca' before its ports");
    Scanner scanner(line);
    IbPortLine port;
    port.from = *block_;
    port.line = line_;
    const std::optional<int> from_port = scanner.port();
    const std::optional<std::string_view> id = scanner.quoted();
    const std::optional<int> to_port = scanner.port();
    if (!from_port || !id || id->empty() || !to_port) {
      fail(line, "'[port] \"S-guid\"[port] # \"name\" lid N 4xNDR'");
    }
    port.from_port = *from_port;
    port.to_port = *to_port;
    port.to = device(*id, kind_of(*id));
    scanner.skip_to('"');
    if (const std::optional<std::string_view> name = scanner.quoted(true)) {
      IbDevice& other = fabric_.devices[port.to];
      if (other.description.empty()) other.description = *name;
    }
    while (!scanner.rest().empty()) {
      const std::string_view word = scanner.word();
      if (is_speed(word)) port.speed = word;
    }
    port.rate = ib_rate(port.speed);
    fabric_.ports.push_back(std::move(port));
  }

  static IbDevice::Kind kind_of(std::string_view id) {
    if (id.starts_with("H-")) return IbDevice::Kind::kAdapter;
    return id.starts_with("R-") ? IbDevice::Kind::kRouter : IbDevice::Kind::kSwitch;
  }

  std::size_t device(std::string_view id, IbDevice::Kind kind) {
    const auto [place, is_new] = places_.emplace(id, fabric_.devices.size());
    if (is_new) fabric_.devices.push_back({kind, std::string(id), "", 0});
    return place->second;
  }

  std::string file_;
  std::size_t line_ = 0;
  std::optional<std::size_t> block_;
  std::unordered_map<std::string, std::size_t> places_;
  IbFabric fabric_;
};

}  // namespace

std::optional<Bandwidth> ib_rate(std::string_view speed) {
  // Bytes of data per second and lane.
  static const std::map<std::string_view, std::int64_t> kLanes{
      {"SDR", 250'000'000},     {"DDR", 500'000'000},    {"QDR", 1'000'000'000},
      {"FDR10", 1'250'000'000}, {"FDR", 1'704'545'455},  {"EDR", 3'125'000'000},
      {"HDR", 6'250'000'000},   {"NDR", 12'500'000'000}, {"XDR", 25'000'000'000}};
  const std::size_t x = speed.find('x');
  if (x == speed.npos) return std::nullopt;
  int width = 0;
  const auto [end, error] = std::from_chars(speed.data(), speed.data() + x, width);
  const auto lane = kLanes.find(speed.substr(x + 1));
  if (error != std::errc() || end != speed.data() + x || width < 1 || width > 12 ||
      lane == kLanes.end()) {
    return std::nullopt;
  }
  return Bandwidth(lane->second) * width;
}

IbFabric parse_ibnetdiscover(const std::string& file, std::string_view content) {
  return FabricParser(file).parse(content);
}

}  // namespace rackrail::topology
