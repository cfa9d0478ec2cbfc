#include "sim/measured/debug_lines.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "base/text.hpp"
#include "sim/measured/formats.hpp"
#include "sim/measured/log_lines.hpp"

namespace rackrail::sim::measured {

namespace {

constexpr std::size_t kMostChannels = 1024;

std::optional<std::size_t> rank_number(std::string_view word) {
  return whole_number(word, static_cast<std::size_t>(kMostRanks) - 1);
}

/// The number after a word; "nranks 16" and "nRanks:16".
std::optional<std::size_t> number_after(const std::vector<std::string_view>& words,
                                        std::initializer_list<std::string_view> names,
                                        std::size_t most) {
  for (std::size_t i = 0; i + 1 < words.size(); ++i) {
    if (std::ranges::find(names, words[i]) != names.end()) {
      return whole_number(words[i + 1], most);
    }
  }
  return std::nullopt;
}

/// Words, with colons and commas taken for blanks.
std::vector<std::string_view> plain_words(std::string& text) {
  std::ranges::replace_if(
      text, [](char c) { return c == ':' || c == ','; }, ' ');
  return words_of(text);
}

/// "00/24" → 0, "07" → 7.
std::optional<std::size_t> channel_number(std::string_view word) {
  return whole_number(word.substr(0, word.find('/')), kMostChannels);
}

std::vector<std::string_view> parts_of(std::string_view text, std::string_view between) {
  std::vector<std::string_view> parts;
  while (true) {
    const std::size_t end = text.find(between);
    parts.push_back(text.substr(0, end));
    if (end == std::string_view::npos) {
      return parts;
    }
    text.remove_prefix(end + between.size());
  }
}

/// "1/-1/-1->0->-1", or "-1->0->1/-1/-1".
std::optional<TreePlace> parse_tree(std::size_t channel, std::string_view word) {
  std::vector<std::string_view> parts = parts_of(word.substr(0, word.find('|')), "->");
  if (parts.size() != 3) {
    return std::nullopt;
  }
  if (parts[0].find('/') == std::string_view::npos) {
    std::swap(parts[0], parts[2]);
  }
  const std::optional<std::size_t> rank = rank_number(parts[1]);
  if (!rank) {
    return std::nullopt;
  }
  TreePlace place{channel, *rank, {}};
  place.node.parent = rank_number(parts[2]);
  for (const std::string_view child : parts_of(parts[0], "/")) {
    if (const std::optional<std::size_t> number = rank_number(child)) {
      place.node.children.push_back(*number);
    }
  }
  return place;
}

constexpr std::array<std::string_view, 7> kAlgorithms = {
    "tree", "ring", "collnet-direct", "collnet-chain", "nvls", "nvls-tree", "pat"};
constexpr std::array<std::string_view, 3> kProtocols = {"ll", "ll128", "simple"};

template <std::size_t n>
std::string name_in(const std::array<std::string_view, n>& names, std::string_view word) {
  if (const std::optional<std::size_t> number = whole_number(word, n - 1)) {
    return std::string(names[*number]);
  }
  const std::string wanted = plain(word);
  for (const std::string_view name : names) {
    if (plain(name) == wanted) {
      return std::string(name);
    }
  }
  return wanted;
}

/// "{0..15}" → 16.
std::optional<std::size_t> channels_in(std::string_view text) {
  const std::size_t begin = text.rfind('{');
  const std::size_t dots = text.find("..", begin == std::string_view::npos ? 0 : begin);
  const std::size_t end = text.find('}', dots == std::string_view::npos ? 0 : dots);
  if (begin == std::string_view::npos || dots == std::string_view::npos ||
      end == std::string_view::npos) {
    return std::nullopt;
  }
  const auto low = whole_number(text.substr(begin + 1, dots - begin - 1), kMostChannels);
  const auto high = whole_number(text.substr(dots + 2, end - dots - 2), kMostChannels);
  return low && high && *high >= *low ? std::optional(*high - *low + 1) : std::nullopt;
}

}  // namespace

std::string algorithm_name(std::string_view word) { return name_in(kAlgorithms, word); }
std::string protocol_name(std::string_view word) { return name_in(kProtocols, word); }

std::optional<CommunicatorLine> parse_communicator(std::string_view text) {
  if (text.find("anks") == std::string_view::npos) {
    return std::nullopt;
  }
  std::string copy(text);
  const std::vector<std::string_view> words = plain_words(copy);
  if (std::ranges::find(words, "comm") == words.end()) {
    return std::nullopt;
  }
  const auto most = static_cast<std::size_t>(kMostRanks);
  CommunicatorLine line;
  line.ranks = number_after(words, {"nranks", "nRanks"}, most).value_or(0);
  line.rank = number_after(words, {"rank"}, most);
  line.nodes = number_after(words, {"nNodes"}, most).value_or(0);
  line.is_complete = text.find("Init COMPLETE") != std::string_view::npos;
  const auto id = std::ranges::find(words, "commId");
  if (id != words.end() && id + 1 != words.end()) {
    line.id = *(id + 1);
  }
  return line.ranks > 0 ? std::optional(line) : std::nullopt;
}

std::optional<std::pair<std::size_t, Ring>> parse_ring(std::string_view text) {
  const std::vector<std::string_view> words = words_of(text);
  if (words.size() < 4 || (words[0] != "Channel" && words[0] != "Ring") || words[2] != ":") {
    return std::nullopt;
  }
  const std::optional<std::size_t> channel = channel_number(words[1]);
  Ring ring;
  std::size_t i = 3;
  for (; i < words.size(); ++i) {
    const std::optional<std::size_t> rank = rank_number(words[i]);
    if (!rank) {
      break;
    }
    ring.ranks.push_back(*rank);
  }
  // RCCL goes on with "comm 0x… nRanks 02".
  const bool ends_well = i == words.size() || words[i] == "comm";
  return channel && ends_well && !ring.ranks.empty()
             ? std::optional(std::pair(*channel, std::move(ring)))
             : std::nullopt;
}

std::optional<RingPlace> parse_ring_place(std::string_view text) {
  const std::vector<std::string_view> words = words_of(text);
  if (words.size() < 8 || words[0] != "Ring" || words[2] != ":" || words[4] != "->" ||
      words[6] != "->") {
    return std::nullopt;
  }
  const std::optional<std::size_t> channel = channel_number(words[1]);
  const std::optional<std::size_t> rank = rank_number(words[5]);
  const std::optional<std::size_t> next = rank_number(words[7]);
  return channel && rank && next ? std::optional(RingPlace{*channel, *rank, *next}) : std::nullopt;
}

std::vector<TreePlace> parse_trees(std::string_view text) {
  std::vector<TreePlace> places;
  const std::vector<std::string_view> words = words_of(text);
  if (words.empty() || words[0] != "Trees") {
    return places;
  }
  for (std::size_t i = 1; i + 1 < words.size(); i += 2) {
    const std::string_view head = words[i];
    if (!head.starts_with('[') || !head.ends_with(']')) {
      break;
    }
    const auto channel = whole_number(head.substr(1, head.size() - 2), kMostChannels);
    std::optional<TreePlace> place =
        channel ? parse_tree(*channel, words[i + 1]) : std::optional<TreePlace>();
    if (place) {
      places.push_back(std::move(*place));
    }
  }
  return places;
}

std::optional<ChannelCounts> parse_channels(std::string_view text) {
  if (text.find("coll channels") == std::string_view::npos) {
    return std::nullopt;
  }
  std::string copy(text);
  const std::vector<std::string_view> words = plain_words(copy);
  // The number stands before the kind, or with RCCL behind "channels".
  const bool is_behind = text.find("coll channels:") != std::string_view::npos;
  ChannelCounts counts;
  bool has_any = false;
  for (std::size_t i = 0; i + 1 < words.size(); ++i) {
    if (words[i + 1] != "channels" || (i + 2 < words.size() && words[i + 2] == "per")) {
      continue;
    }
    const std::size_t at = is_behind ? i + 2 : i - 1;
    const std::optional<std::size_t> number =
        at < words.size() ? whole_number(words[at], kMostChannels) : std::nullopt;
    if (words[i] == "coll" && number) {
      counts.collective = *number;
      has_any = true;
    } else if (words[i] == "collnet") {
      counts.collnet = number;
    } else if (words[i] == "nvls") {
      counts.nvls = number;
    } else if (words[i] == "p2p") {
      counts.peer_to_peer = number;
    }
  }
  return has_any ? std::optional(counts) : std::nullopt;
}

std::optional<Pattern> parse_pattern(std::string_view text) {
  constexpr std::array<std::string_view, 7> kPatterns = {
      "unknown", "balanced tree", "split tree", "tree", "ring", "nvls", "collnet"};
  std::string copy(text);
  const std::vector<std::string_view> words = plain_words(copy);
  if (words.size() < 8 || words[0] != "Pattern") {
    return std::nullopt;
  }
  Pattern pattern;
  const auto kind = whole_number(words[1], kPatterns.size() - 1);
  pattern.name = kind ? std::string(kPatterns[*kind]) : std::string(words[1]);
  pattern.channels = number_after(words, {"nChannels"}, kMostChannels).value_or(0);
  for (std::size_t i = 0; i + 1 < words.size(); ++i) {
    if (words[i] == "bw" || words[i] == "speed") {
      const std::vector<std::string_view> rates = parts_of(words[i + 1], "/");
      pattern.intra_GBps = real_number(rates.front()).value_or(0);
      pattern.inter_GBps = real_number(rates.back()).value_or(0);
    } else if (words[i] == "type") {
      pattern.paths = words[i + 1];
    }
  }
  return pattern.channels > 0 ? std::optional(pattern) : std::nullopt;
}

std::vector<Nic> parse_nics(std::string_view text) {
  std::vector<Nic> nics;
  if (!text.starts_with("NET/")) {
    return nics;
  }
  constexpr std::string_view kProvider = "elected ";
  const std::size_t provider = text.find(kProvider);
  if (text.starts_with("NET/OFI") && provider != std::string_view::npos) {
    const std::vector<std::string_view> words = words_of(text.substr(provider));
    if (words.size() > 3 && words[2] == "is") {
      const std::string_view name = words[3].substr(0, words[3].find(','));
      nics.push_back({std::string(name), "libfabric"});
    }
    return nics;
  }
  const std::string_view plugin = text.substr(4, text.find_first_of(" :", 4) - 4);
  const std::size_t begin = text.find("Using");
  const std::string_view list = begin == std::string_view::npos
                                    ? std::string_view()
                                    : text.substr(begin, text.find(';', begin) - begin);
  for (const std::string_view word : words_of(list)) {
    const std::size_t close = word.find(']');
    const std::size_t colon = word.find(':');
    if (word.front() != '[' || close == std::string_view::npos || colon == std::string_view::npos ||
        colon <= close + 1 || !is_digits(word.substr(1, close - 1))) {
      continue;
    }
    const std::size_t slash = word.find('/', colon);
    const bool has_kind = slash != std::string_view::npos && plugin != "Socket";
    nics.push_back({std::string(word.substr(close + 1, colon - close - 1)),
                    std::string(has_kind ? word.substr(slash + 1) : plugin)});
  }
  return nics;
}

std::optional<std::string> parse_transport(std::string_view text) {
  constexpr std::string_view kVia = " via ";
  const std::size_t at = text.find(kVia);
  const bool is_connection = text.starts_with("Channel ") || text.starts_with("Ring ") ||
                             text.starts_with("CollNet ") || text.starts_with("Tree ");
  if (at == std::string_view::npos || !is_connection) {
    return std::nullopt;
  }
  std::string_view transport = text.substr(at + kVia.size());
  transport = trimmed(transport.substr(0, transport.find(" comm ")));
  if (transport.starts_with("direct shared memory")) {
    return "SHM";
  }
  const std::vector<std::string_view> parts = parts_of(transport, "/");
  std::string name(parts[0]);
  if (parts.size() > 1 && name != "SHM") {
    name += "/" + std::string(parts[1]);
  }
  return transport.find("/GDRDMA") != std::string_view::npos ? name + "/GDRDMA" : name;
}

std::optional<Chosen> parse_chosen(std::string_view text) {
  constexpr std::string_view kArrow = " Bytes -> Algo ";
  const std::size_t at = text.find(kArrow);
  if (at == std::string_view::npos) {
    return std::nullopt;
  }
  const std::vector<std::string_view> before = words_of(text.substr(0, at));
  const std::vector<std::string_view> after = words_of(text.substr(at + kArrow.size()));
  if (before.empty() || after.size() < 3 || after[1] != "proto") {
    return std::nullopt;
  }
  const auto bytes = whole_number(before.back(), static_cast<std::size_t>(kMostBytes));
  if (!bytes) {
    return std::nullopt;
  }
  Chosen chosen;
  chosen.bytes = static_cast<std::int64_t>(*bytes);
  if (before.size() > 1) {
    chosen.operation = parse_operation(before[before.size() - 2]);
  }
  chosen.algorithm = algorithm_name(after[0]);
  chosen.protocol = protocol_name(after[2]);
  if (after.size() > 4 && after[3] == "time") {
    chosen.estimate_us = real_number(after[4]);
  }
  chosen.channels = channels_in(text.substr(at));
  return chosen;
}

std::vector<TuningCell> TuningTable::read(std::string_view text) {
  std::vector<TuningCell> cells;
  if (text.find('|') == std::string_view::npos) {
    return cells;
  }
  std::vector<std::string_view> parts = parts_of(text, "|");
  const std::string_view head = trimmed(parts.front());
  parts.erase(parts.begin());
  if (!parts.empty() && trimmed(parts.back()).empty()) {
    parts.pop_back();
  }
  if (head == "Latency/AlgBw") {
    columns_.clear();
    for (const std::string_view part : parts) {
      const std::size_t slash = part.find('/');
      columns_.push_back(
          {algorithm_name(trimmed(part.substr(0, slash))),
           protocol_name(trimmed(part.substr(std::min(slash, part.size() - 1) + 1)))});
    }
  } else if (head == "Algorithm") {
    algorithms_.clear();
    for (const std::string_view part : parts) {
      algorithms_.push_back(algorithm_name(trimmed(part)));
    }
  } else if (head == "Protocol" && !algorithms_.empty()) {
    columns_.clear();
    for (std::size_t i = 0; i < parts.size() && i / kProtocols.size() < algorithms_.size(); ++i) {
      columns_.push_back({algorithms_[i / kProtocols.size()], protocol_name(trimmed(parts[i]))});
    }
  } else if (parse_operation(head) != Operation::kUnknown) {
    for (std::size_t i = 0; i < std::min(parts.size(), columns_.size()); ++i) {
      const std::size_t slash = parts[i].find('/');
      const auto latency = real_number(parts[i].substr(0, slash));
      const auto bandwidth =
          slash == std::string_view::npos ? std::nullopt : real_number(parts[i].substr(slash + 1));
      if (latency && bandwidth) {
        cells.push_back({parse_operation(head), columns_[i].algorithm, columns_[i].protocol,
                         *latency, *bandwidth});
      }
    }
  }
  return cells;
}

}  // namespace rackrail::sim::measured
