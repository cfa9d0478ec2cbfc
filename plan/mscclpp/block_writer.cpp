#include "plan/mscclpp/block_writer.hpp"

#include <algorithm>
#include <set>
#include <utility>

namespace rackrail::plan::mscclpp {

namespace {

/// An addition to be written: of summands in their order, into a part of the rank's buffer.
struct Addition {
  UnitRange range;
  std::vector<Place> summands;
};

class BlockWriter {
 public:
  BlockWriter(const Group& group, Rank rank, std::span<const std::uint32_t> hosts, Buffer buffer)
      : group_(group), rank_(rank), hosts_(hosts), buffer_(buffer) {}

  BlockDraft write() {
    greet();
    for (const Phase& phase : group_.phases(rank_)) {
      send(phase);
      receive(phase);
      add(phase);
    }
    return std::move(draft_);
  }

 private:
  const Message& message(std::size_t number) const { return group_.messages()[number]; }

  ChannelType type_to(Rank peer) const {
    return hosts_[peer.index()] == hosts_[rank_.index()] ? ChannelType::kMemory
                                                         : ChannelType::kPort;
  }

  /// Lists the peers, tells those who send that this rank has begun, and waits for the others.
  void greet() {
    std::set<Rank> senders;
    std::set<Rank> receivers;
    for (const Phase& phase : group_.phases(rank_)) {
      for (const std::size_t m : phase.sends) {
        receivers.insert(message(m).dst);
      }
      for (const std::size_t m : phase.receives) {
        senders.insert(message(m).src);
      }
    }
    std::set<Rank> peers = senders;
    peers.insert(receivers.begin(), receivers.end());
    for (const Rank peer : peers) {
      of(draft_.peers, type_to(peer)).push_back(static_cast<int>(peer.value()));
    }
    use_channels(OperationType::kSignal, senders);
    use_channels(OperationType::kWait, receivers);
  }

  int channel_to(Rank peer) const {
    const std::vector<int>& peers = of(draft_.peers, type_to(peer));
    return static_cast<int>(std::ranges::find(peers, static_cast<int>(peer.value())) -
                            peers.begin());
  }

  /// Signals or waits on the channels to these ranks.
  void use_channels(OperationType what, const std::set<Rank>& ranks) {
    for (const ChannelType type : kChannelTypes) {
      Operation* open = nullptr;
      for (const Rank rank : ranks) {
        if (type_to(rank) != type) {
          continue;
        }
        if (open == nullptr || open->channels.size() == kMostPerOperation) {
          open = &draft_.operations.emplace_back(Operation{.type = what, .channel_type = type});
        }
        open->channels.push_back(channel_to(rank));
        is_synchronized_ = is_synchronized_ && what != OperationType::kWait;
      }
    }
  }

  void synchronize() {
    if (!is_synchronized_) {
      draft_.operations.emplace_back();
      is_synchronized_ = true;
    }
  }

  void send(const Phase& phase) {
    if (phase.sends.empty()) {
      return;
    }
    synchronize();
    std::map<Rank, std::vector<std::pair<const Message*, Piece>>> over_ports;
    std::set<Rank> over_memory;
    for (const std::size_t m : phase.sends) {
      for (const Piece& piece : message(m).pieces) {
        if (type_to(message(m).dst) == ChannelType::kPort) {
          over_ports[message(m).dst].emplace_back(&message(m), piece);
        } else {
          over_memory.insert(message(m).dst);
          put(OperationType::kPut, message(m), piece);
        }
      }
    }
    for (const auto& [peer, pieces] : over_ports) {
      for (std::size_t i = 0; i + 1 < pieces.size(); ++i) {
        put(OperationType::kPut, *pieces[i].first, pieces[i].second);
      }
    }
    synchronize();
    use_channels(OperationType::kSignal, over_memory);
    for (const auto& [peer, pieces] : over_ports) {
      put(OperationType::kPutSignalAndFlush, *pieces.back().first, pieces.back().second);
    }
  }

  /// Joins the last operation, where that is such a one and has room.
  void put(OperationType what, const Message& message, const Piece& piece) {
    const ChannelType type = type_to(message.dst);
    const Operation* last = draft_.operations.empty() ? nullptr : &draft_.operations.back();
    if (last == nullptr || last->type != what || last->channel_type != type ||
        last->targets.size() == kMostPerOperation) {
      draft_.operations.push_back({.type = what, .channel_type = type});
    }
    Operation& operation = draft_.operations.back();
    const Buffer target = message.is_sum ? Buffer::kScratch : buffer_;
    operation.channels.push_back(channel_to(message.dst));
    operation.sources.push_back(own(piece.range));
    operation.targets.push_back({.buffer = target,
                                 .remote = remote(message.dst, target),
                                 .index = message.is_sum ? piece.slot : piece.range.begin,
                                 .count = piece.range.count});
    is_synchronized_ = false;
  }

  Place own(const UnitRange& range) const {
    return {.buffer = buffer_, .index = range.begin, .count = range.count};
  }

  /// The number of a peer's buffer in the block's list.
  int remote(Rank peer, Buffer buffer) {
    const RemoteBuffer wanted{static_cast<int>(peer.value()), buffer, type_to(peer)};
    std::vector<RemoteBuffer>& buffers = of(draft_.buffers, wanted.access);
    const auto found = std::ranges::find(buffers, wanted);
    const auto number = static_cast<int>(found - buffers.begin());
    if (found == buffers.end()) {
      buffers.push_back(wanted);
    }
    return number;
  }

  void receive(const Phase& phase) {
    std::map<Rank, std::uint32_t> missing;  // signals
    for (const std::size_t m : phase.receives) {
      const std::uint32_t seen = seen_[message(m).src];
      std::uint32_t& more = missing[message(m).src];
      more = std::max(more, message(m).signal - std::min(message(m).signal, seen));
    }
    for (std::uint32_t round = 0;; ++round) {
      std::set<Rank> awaited;
      for (const auto& [peer, more] : missing) {
        if (more > round) {
          awaited.insert(peer);
          ++seen_[peer];
        }
      }
      if (awaited.empty()) {
        return;
      }
      use_channels(OperationType::kWait, awaited);
    }
  }

  void add(const Phase& phase) {
    std::vector<Addition> additions;
    std::set<std::uint32_t> sums;
    for (const std::size_t m : phase.receives) {
      if (!message(m).is_sum) {
        continue;
      }
      if (!message(m).sum) {
        for (const Piece& piece : message(m).pieces) {
          addition(additions, piece.range, false).summands.push_back(arrived(piece));
        }
      } else if (sums.insert(*message(m).sum).second) {
        add_mutual_sum(additions, phase, *message(m).sum);
      }
    }
    write(additions);
  }

  /// The addition into a range that waits to be written. Those that touch it otherwise are written
  /// first.
  Addition& addition(std::vector<Addition>& additions, const UnitRange& range, bool is_new) {
    for (Addition& other : additions) {
      const bool is_same =
          other.range.begin == range.begin && other.range.count == range.count && !is_new;
      if (is_same) {
        return other;
      }
      if (other.range.begin < range.begin + range.count &&
          range.begin < other.range.begin + other.range.count) {
        write(additions);
        break;
      }
    }
    Addition& added = additions.emplace_back(Addition{.range = range, .summands = {}});
    if (!is_new) {
      added.summands.push_back(own(range));
    }
    return added;
  }

  /// What the members had before, in the order of ranks.
  void add_mutual_sum(std::vector<Addition>& additions, const Phase& phase, std::uint32_t sum) {
    std::vector<const Message*> members;
    for (const std::size_t m : phase.receives) {
      if (message(m).sum == sum) {
        members.push_back(&message(m));
      }
    }
    const auto after =
        std::ranges::find_if(members, [&](const Message* member) { return member->src > rank_; });
    for (std::size_t p = 0; p < members.front()->pieces.size(); ++p) {
      const UnitRange range = members.front()->pieces[p].range;
      std::vector<Place>& summands = addition(additions, range, true).summands;
      for (auto member = members.begin(); member != members.end(); ++member) {
        if (member == after) {
          summands.push_back(own(range));
        }
        summands.push_back(arrived((*member)->pieces[p]));
      }
      if (after == members.end()) {
        summands.push_back(own(range));
      }
    }
  }

  static Place arrived(const Piece& piece) {
    return {.buffer = Buffer::kScratch, .index = piece.slot, .count = piece.range.count};
  }

  void write(std::vector<Addition>& additions) {
    // Sums of more summands than an operation takes grow where the first of them is.
    for (bool is_left = !additions.empty(); is_left;) {
      is_left = false;
      synchronize();
      for (Addition& addition : additions) {
        std::vector<Place>& summands = addition.summands;
        if (summands.empty()) {
          continue;
        }
        const std::size_t now = std::min(summands.size(), kMostInputs);
        const bool is_last = now == summands.size();
        const Place sum = summands.front();
        Operation operation{.type = OperationType::kReduce};
        const auto end = summands.begin() + static_cast<std::ptrdiff_t>(now);
        operation.sources.assign(summands.begin(), end);
        operation.targets.push_back(is_last ? own(addition.range) : sum);
        draft_.operations.push_back(std::move(operation));
        summands.erase(summands.begin(), end);
        if (!is_last) {
          summands.insert(summands.begin(), sum);
          is_left = true;
        }
      }
      is_synchronized_ = false;
    }
    additions.clear();
  }

  const Group& group_;
  Rank rank_;
  std::span<const std::uint32_t> hosts_;
  Buffer buffer_;
  BlockDraft draft_;
  std::map<Rank, std::uint32_t> seen_;  ///< signals of data
  bool is_synchronized_ = true;
};

}  // namespace

BlockDraft write_block(const Group& group, Rank rank, std::span<const std::uint32_t> hosts,
                       Buffer buffer) {
  return BlockWriter(group, rank, hosts, buffer).write();
}

}  // namespace rackrail::plan::mscclpp
