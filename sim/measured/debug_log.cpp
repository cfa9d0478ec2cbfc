#include "sim/measured/debug_log.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <utility>

#include "base/text.hpp"
#include "sim/measured/debug_lines.hpp"
#include "sim/measured/formats.hpp"
#include "sim/measured/log_lines.hpp"

namespace rackrail::sim::measured {

namespace {

/// What a line says counts if it comes from the largest communicator, as far as one can tell.
class DebugReader {
 public:
  void read(const NcclLine& line) {
    ++log_.lines;
    if (!line.host.empty()) {
      log_.hosts.insert(line.host);
    }
    if (line.is_warning) {
      ++log_.understood;
      keep_warning(line.text);
      return;
    }
    ranks_ = note_communicator(line);
    const bool is_known = read_init(line.text) || read_network(line.text) ||
                          read_connection(line.text) || read_tuning(line.text) || ranks_.second;
    log_.understood += is_known ? 1 : 0;
  }

  void read_version(std::string_view text) {
    for (const std::string_view library : {"NCCL version", "RCCL version"}) {
      const std::size_t at = text.find(library);
      if (at == std::string_view::npos || !log_.version.empty()) {
        continue;
      }
      for (const std::string_view word : words_of(text.substr(at + library.size()))) {
        if (std::isdigit(static_cast<unsigned char>(word.front())) != 0) {
          log_.version = std::string(library.substr(0, 5)) + std::string(word);
          return;
        }
        if (word != ":") {
          return;
        }
      }
    }
  }

  DebugLog finish() {
    settle_ranks();
    settle_rings();
    for (const auto& [place, node] : trees_) {
      if ((node.ranks == 0 || node.ranks == log_.ranks) && place.second < log_.ranks) {
        log_.trees[place.first][place.second] = node.value;
      }
    }
    if (channels_.ranks == 0 || channels_.ranks == log_.ranks) {
      log_.channels = channels_.value;
    }
    for (auto& [key, cell] : tuning_) {
      if (cell.ranks == 0 || cell.ranks == log_.ranks) {
        log_.tuning.push_back(std::move(cell.value));
      }
    }
    for (auto& [key, chosen] : chosen_) {
      log_.chosen.push_back(std::move(chosen));
    }
    log_.patterns.assign(patterns_.begin(), patterns_.end());
    return std::move(log_);
  }

 private:
  /// A fact, and the size of the communicator it is of; 0: not known.
  template <typename T>
  struct Of {
    std::size_t ranks = 0;
    T value{};
    void set(std::size_t of, T what) {
      if (of >= ranks) {
        *this = {of, std::move(what)};
      }
    }
  };

  struct Seen {
    std::set<std::size_t> ranks;
    std::set<std::string> hosts;
    std::size_t nodes = 0;
    std::size_t made = 0;  ///< by its rank 0
  };

  /// The ranks of the communicator that the process makes now, and whether this line says so.
  std::pair<std::size_t, bool> note_communicator(const NcclLine& line) {
    const std::optional<CommunicatorLine> said = parse_communicator(line.text);
    const std::string process = line.process.empty() ? line.host : line.process;
    if (!said) {
      const auto found = current_.find(process);
      return {found == current_.end() ? 0 : found->second, false};
    }
    current_[process] = said->ranks;
    Seen& seen = seen_[said->ranks];
    seen.nodes = std::max(seen.nodes, said->nodes);
    if (said->rank) {
      seen.ranks.insert(*said->rank);
      seen.hosts.insert(line.host);
      seen.made += said->is_complete && *said->rank == 0 ? 1 : 0;
    }
    if (!said->id.empty()) {
      ids_.insert(said->id);
    }
    return {said->ranks, true};
  }

  bool read_init(std::string_view text) {
    read_version(text);
    if (auto ring = parse_ring(text)) {
      rings_[ring->first].push_back(std::move(ring->second));
      return true;
    }
    if (const auto place = parse_ring_place(text)) {
      next_[place->channel].set(ranks_.first, place->rank, place->next);
      return true;
    }
    if (const auto trees = parse_trees(text); !trees.empty()) {
      for (const TreePlace& place : trees) {
        trees_[{place.channel, place.rank}].set(ranks_.first, place.node);
      }
      return true;
    }
    if (const auto counts = parse_channels(text)) {
      channels_.set(ranks_.first, counts);
      return true;
    }
    if (text.starts_with("NVLS multicast support is")) {
      log_.has_multicast = text.find("not available") == std::string_view::npos;
      return true;
    }
    if (const auto pattern = parse_pattern(text)) {
      patterns_.insert(*pattern);
      return true;
    }
    const std::size_t set = text.find(" set by environment to ");
    if (text.starts_with("NCCL_") && set != std::string_view::npos) {
      constexpr std::size_t kLength = 23;
      std::string_view value = trimmed(text.substr(set + kLength));
      value.remove_suffix(value.ends_with('.') ? 1 : 0);
      log_.environment[std::string(text.substr(0, set))] = value;
      return true;
    }
    return text.starts_with("Connected all");
  }

  bool read_network(std::string_view text) {
    constexpr std::string_view kUsing = "Using network ";
    if (text.starts_with(kUsing)) {
      log_.networks.emplace(trimmed(text.substr(kUsing.size())));
      return true;
    }
    if (const std::vector<Nic> nics = parse_nics(text); !nics.empty()) {
      log_.nics.insert(nics.begin(), nics.end());
      return true;
    }
    for (const auto& [word, set] : {std::pair("GPU Direct RDMA Enabled for ", &log_.gdr_enabled),
                                    {"GPU Direct RDMA Disabled for ", &log_.gdr_disabled}}) {
      const std::size_t at = text.find(word);
      if (at != std::string_view::npos) {
        const std::string_view what = text.substr(at + std::string_view(word).size());
        set->emplace(trimmed(what.substr(0, what.find('('))));
        return true;
      }
    }
    return false;
  }

  bool read_connection(std::string_view text) {
    const std::optional<std::string> transport = parse_transport(text);
    // Each connection is told by both of its ends where it goes over a network.
    if (transport && text.find("[receive]") == std::string_view::npos) {
      ++log_.connections[*transport];
    }
    return transport.has_value();
  }

  bool read_tuning(std::string_view text) {
    if (const std::optional<Chosen> chosen = parse_chosen(text)) {
      const auto [found, is_new] = chosen_.try_emplace(
          {chosen->operation, chosen->bytes, chosen->algorithm, chosen->protocol}, *chosen);
      found->second.times += is_new ? 0 : 1;
      return true;
    }
    const std::vector<TuningCell> cells = table_.read(text);
    for (const TuningCell& cell : cells) {
      tuning_[{cell.operation, cell.algorithm, cell.protocol}].set(ranks_.first, cell);
    }
    return !cells.empty();
  }

  void keep_warning(const std::string& text) {
    if (log_.warnings.size() < DebugLog::kMostWarnings &&
        std::ranges::find(log_.warnings, text) == log_.warnings.end()) {
      log_.warnings.push_back(text);
    }
  }

  void settle_ranks() {
    std::size_t made = 0;
    for (const auto& [ranks, seen] : seen_) {
      made += seen.made;
    }
    log_.communicators = std::max(ids_.size(), made);
    if (seen_.empty()) {
      for (const auto& [channel, rings] : rings_) {
        for (const Ring& ring : rings) {
          log_.ranks = std::max(log_.ranks, ring.ranks.size());
        }
      }
      return;
    }
    const auto& [ranks, largest] = *seen_.rbegin();
    log_.ranks = ranks;
    log_.communicators = std::max<std::size_t>(log_.communicators, 1);
    log_.ranks_that_wrote = largest.ranks;
    const bool is_whole = largest.ranks.size() == ranks && !largest.hosts.contains("");
    log_.nodes = largest.nodes > 0 ? largest.nodes : is_whole ? largest.hosts.size() : 0;
  }

  void settle_rings() {
    for (auto& [channel, rings] : rings_) {
      for (Ring& ring : rings) {
        ring.is_whole = ring.ranks.size() == log_.ranks;
        if (ring.is_whole || (ring.ranks.size() == kRanksPrinted && log_.ranks > kRanksPrinted)) {
          log_.rings.try_emplace(channel, std::move(ring));
        }
      }
    }
    for (const auto& [channel, places] : next_) {
      const auto found = log_.rings.find(channel);
      if (places.next.size() == log_.ranks &&
          (found == log_.rings.end() || !found->second.is_whole)) {
        if (std::optional<Ring> ring = places.ring()) {
          log_.rings[channel] = std::move(*ring);
        }
      }
    }
  }

  /// Each rank's next one in a ring.
  struct RingPlaces {
    std::size_t ranks = 0;
    std::map<std::size_t, std::size_t> next;
    void set(std::size_t of, std::size_t rank, std::size_t to) {
      if (of > ranks) {
        *this = {of, {}};
      }
      if (of == ranks) {
        next[rank] = to;
      }
    }
    /// None where they are no one ring.
    std::optional<Ring> ring() const {
      Ring ring;
      for (std::size_t rank = 0; ring.ranks.size() < next.size();) {
        ring.ranks.push_back(rank);
        const auto found = next.find(rank);
        if (found == next.end() || (found->second == 0) != (ring.ranks.size() == next.size())) {
          return std::nullopt;
        }
        rank = found->second;
      }
      return ring;
    }
  };

  DebugLog log_;
  std::map<std::string, std::size_t> current_;  ///< ranks of the communicator a process makes
  std::map<std::size_t, Seen> seen_;            ///< by number of ranks
  std::set<std::string> ids_;
  std::pair<std::size_t, bool> ranks_;  ///< of this line
  std::map<std::size_t, std::vector<Ring>> rings_;
  std::map<std::size_t, RingPlaces> next_;
  std::map<std::pair<std::size_t, std::size_t>, Of<TreeNode>> trees_;
  Of<std::optional<ChannelCounts>> channels_;
  std::set<Pattern> patterns_;
  TuningTable table_;
  std::map<std::tuple<Operation, std::string, std::string>, Of<TuningCell>> tuning_;
  std::map<std::tuple<Operation, std::int64_t, std::string, std::string>, Chosen> chosen_;
};

}  // namespace

std::size_t DebugLog::connections_with_gdr() const {
  std::size_t count = 0;
  for (const auto& [transport, times] : connections) {
    count += transport.ends_with("/GDRDMA") ? times : 0;
  }
  return count;
}

std::size_t DebugLog::connections_without_gdr() const {
  std::size_t count = 0;
  for (const auto& [transport, times] : connections) {
    count += transport.starts_with("NET/") && !transport.ends_with("/GDRDMA") ? times : 0;
  }
  return count;
}

bool is_debug_log(std::string_view content) {
  return content.find("NCCL INFO ") != std::string_view::npos ||
         content.find(" NCCL WARN ") != std::string_view::npos;
}

DebugLog read_debug_log(std::string_view content) {
  const SeparatedLog lines = separate(content);
  DebugReader reader;
  for (const ProgramLine& line : lines.program) {
    if (line.text.find("CCL version") != std::string::npos) {
      reader.read_version(line.text);
    }
  }
  for (const NcclLine& line : lines.nccl) {
    reader.read(line);
  }
  return reader.finish();
}

}  // namespace rackrail::sim::measured
