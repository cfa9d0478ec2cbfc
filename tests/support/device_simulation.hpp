// Device programs of all ranks of a plan, carried out in this process: an independent judge of
// runtime/device/. What may happen next, by the rules of device_program.hpp, is chosen at random;
// collectives add in a random order, and leave nothing useful where they promise nothing.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <deque>
#include <limits>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <random>
#include <span>
#include <stdexcept>
#include <utility>
#include <vector>

#include "runtime/bucket_program.hpp"
#include "runtime/codec.hpp"
#include "runtime/device/device_program.hpp"
#include "runtime/device/fused_sums.hpp"
#include "runtime/executor.hpp"

namespace rackrail::runtime {

class DeviceSimulation {
 public:
  using Buffers = std::vector<std::vector<float>>;  ///< by bucket

  /// Keeps references.
  DeviceSimulation(const plan::Plan& plan, const RankGroups& groups, unsigned seed,
                   bool fuses = false)
      : plan_(plan), groups_(groups), random_(seed), residuals(plan.rank_count()) {
    std::vector<std::vector<Stage>> stages;
    for (const plan::TransferGraph& graph : plan.schedules) {
      stages.push_back(find_stages(graph, groups));
      auto& codecs = codecs_.emplace_back();
      for (const plan::Codec& codec : graph.codecs()) {
        codecs.push_back(make_codec(codec));
      }
    }
    for (std::size_t r = 0; r < plan.rank_count(); ++r) {
      auto& of_rank = programs.emplace_back();
      for (std::size_t b = 0; b < plan.buckets.size(); ++b) {
        of_rank.push_back(make_device_program(plan, BucketId(b), Rank(r), groups,
                                              stages[plan.buckets[b].schedule]));
        if (fuses) {
          fuse_sums(of_rank.back(), [](std::uint8_t codec) { return codec != 0; });
        }
      }
    }
  }

  /// One step in which all ranks launch all buckets at once, in place. Throws std::logic_error
  /// where nothing can go on, or ranks disagree about what they do together.
  void run(std::uint32_t step, std::vector<Buffers>& gradients) {
    step_ = step;
    ranks_.clear();
    for (std::size_t r = 0; r < plan_.rank_count(); ++r) {
      ranks_.emplace_back(programs[r], gradients[r]);
    }
    while (advance()) {
    }
    for (const RankState& rank : ranks_) {
      for (const auto& lane : rank.lanes) {
        if (!lane.empty()) {
          throw std::logic_error("device programs wait for each other");
        }
      }
    }
  }

  std::vector<std::vector<DeviceProgram>> programs;  ///< by rank and bucket

 private:
  struct Head {
    std::size_t bucket = 0;
    std::size_t operation = 0;
  };
  struct RankState {
    RankState(const std::vector<DeviceProgram>& programs, Buffers& buffers)
        : gradients(&buffers), done(programs.size(), 0) {
      for (std::size_t b = 0; b < programs.size(); ++b) {
        scratch.emplace_back(programs[b].scratch_bytes, std::byte{0xff});
        for (std::size_t i = 0; i < programs[b].operations.size(); ++i) {
          lanes[static_cast<std::size_t>(programs[b].operations[i].lane)].push_back({b, i});
        }
      }
    }
    Buffers* gradients;
    std::vector<std::vector<std::byte>> scratch;  ///< by bucket
    std::vector<std::size_t> done;                ///< operations, by bucket
    std::array<std::deque<Head>, kDeviceLanes> lanes;
    std::optional<std::size_t> open_messages;  ///< of the exchange that has begun
  };
  struct Posted {
    std::size_t rank;
    std::byte* memory;
    std::size_t bytes;
  };
  using Pair = std::pair<std::size_t, std::size_t>;  ///< source, destination

  const DeviceOperation* ready(std::size_t rank, std::size_t lane) const {
    const RankState& state = ranks_[rank];
    if (state.lanes[lane].empty()) {
      return nullptr;
    }
    const Head head = state.lanes[lane].front();
    return state.done[head.bucket] == head.operation
               ? &programs[rank][head.bucket].operations[head.operation]
               : nullptr;
  }

  /// Does one of the things that may happen next; false where there is none.
  bool advance() {
    std::vector<std::pair<std::size_t, std::size_t>> order;  // rank and lane
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      for (std::size_t lane = 0; lane < kDeviceLanes; ++lane) {
        order.emplace_back(r, lane);
      }
    }
    std::shuffle(order.begin(), order.end(), random_);
    for (const auto& [rank, lane] : order) {
      if (const DeviceOperation* operation = ready(rank, lane);
          operation != nullptr && attempt(rank, lane, *operation)) {
        return true;
      }
    }
    return match_messages();
  }

  bool attempt(std::size_t rank, std::size_t lane, const DeviceOperation& operation) {
    if (const auto* collective = std::get_if<CollectiveOperation>(&operation.what)) {
      return attempt(lane, *collective);
    }
    if (const auto* exchange = std::get_if<ExchangeOperation>(&operation.what)) {
      return begin(rank, lane, *exchange);
    }
    if (const auto* encode = std::get_if<EncodeOperation>(&operation.what)) {
      carry_out(rank, lane, *encode);
    } else {
      carry_out(rank, lane, std::get<DecodeOperation>(operation.what));
    }
    end(rank, lane);
    return true;
  }

  void end(std::size_t rank, std::size_t lane) {
    ++ranks_[rank].done[ranks_[rank].lanes[lane].front().bucket];
    ranks_[rank].lanes[lane].pop_front();
  }

  const plan::TransferGraph& graph_of(std::size_t bucket) const {
    return plan_.schedules[plan_.buckets[bucket].schedule];
  }
  const Codec& codec_of(std::size_t bucket, std::uint8_t codec) const {
    return *codecs_[plan_.buckets[bucket].schedule][codec];
  }
  static std::span<float> part(std::vector<float>& values, plan::ElementRange range) {
    return std::span(values).subspan(static_cast<std::size_t>(range.begin),
                                     static_cast<std::size_t>(range.size()));
  }

  void carry_out(std::size_t rank, std::size_t lane, const EncodeOperation& encode) {
    RankState& state = ranks_[rank];
    const std::size_t bucket = state.lanes[lane].front().bucket;
    const Codec& codec = codec_of(bucket, encode.codec);
    const std::uint64_t stream =
        rounding_stream(plan_, step_, BucketId(bucket), encode.op, Rank(rank));
    std::vector<float> none;
    std::vector<float>& residual =
        encode.residual.empty() ? none : residuals[rank][encode.residual];
    residual.resize(encode.residual.empty() ? 0 : static_cast<std::size_t>(encode.range.size()));
    for (const EncodedSlice& slice :
         encoded_slices(codec.descriptor(), encode.range, plan_.buckets[bucket].slice_elements)) {
      const std::span<float> values = part((*state.gradients)[bucket], slice.range);
      const std::span<std::byte> bytes(&state.scratch[bucket][encode.output + slice.offset],
                                       slice.bytes);
      const auto behind = static_cast<std::size_t>(slice.range.begin - encode.range.begin);
      for (const std::size_t addend : encode.addends) {
        codec.decode_add(
            std::span<const std::byte>(&state.scratch[bucket][addend + slice.offset], slice.bytes),
            values);
      }
      codec.encode(values,
                   residual.empty() ? std::span<float>()
                                    : std::span(residual).subspan(behind, values.size()),
                   {stream, slice.range.begin}, bytes);
      if (encode.op == plan::TransferOp::kCopy) {
        codec.decode(bytes, values);
      } else if (!encode.addends.empty()) {
        std::fill(values.begin(), values.end(), std::numeric_limits<float>::quiet_NaN());
      }
    }
  }

  void carry_out(std::size_t rank, std::size_t lane, const DecodeOperation& decode) {
    RankState& state = ranks_[rank];
    const std::size_t bucket = state.lanes[lane].front().bucket;
    const Codec& codec = codec_of(bucket, decode.codec);
    for (const EncodedSlice& slice :
         encoded_slices(codec.descriptor(), decode.range, plan_.buckets[bucket].slice_elements)) {
      const std::span<const std::byte> bytes(&state.scratch[bucket][decode.input + slice.offset],
                                             slice.bytes);
      const std::span<float> values = part((*state.gradients)[bucket], slice.range);
      if (decode.op == plan::TransferOp::kReduce) {
        codec.decode_add(bytes, values);
      } else {
        codec.decode(bytes, values);
      }
    }
  }

  bool attempt(std::size_t lane, const CollectiveOperation& collective) {
    const auto& group = groups_[collective.group];
    std::size_t bucket = 0;
    for (const Rank member : group) {
      const DeviceOperation* operation = ready(member.index(), lane);
      if (operation == nullptr) {
        return false;
      }
      bucket = ranks_[member.index()].lanes[lane].front().bucket;
      const auto* other = std::get_if<CollectiveOperation>(&operation->what);
      if (other == nullptr || other->kind != collective.kind || other->group != collective.group ||
          other->parts.size() != collective.parts.size() ||
          bucket != ranks_[group.front().index()].lanes[lane].front().bucket) {
        throw std::logic_error("members of a group do different things");
      }
    }
    for (const CollectiveOperation::Part& each : collective.parts) {
      carry_out(collective.kind, group, each, bucket);
    }
    for (const Rank member : group) {
      end(member.index(), lane);
    }
    return true;
  }

  void carry_out(CollectiveKind kind, const std::vector<Rank>& group,
                 const CollectiveOperation::Part& each, std::size_t bucket) {
    const auto values = [&](std::size_t member) {
      return part((*ranks_[group[member].index()].gradients)[bucket], each.range);
    };
    std::vector<float> result(values(each.root).begin(), values(each.root).end());
    const bool is_gather = kind == CollectiveKind::kBroadcast || kind == CollectiveKind::kAllGather;
    if (!is_gather) {
      std::vector<std::size_t> order(group.size());
      std::iota(order.begin(), order.end(), std::size_t{0});
      std::shuffle(order.begin(), order.end(), random_);
      result.assign(result.size(), 0.0F);
      for (const std::size_t member : order) {
        for (std::size_t i = 0; i < result.size(); ++i) {
          result[i] += values(member)[i];
        }
      }
    }
    const bool only_root =
        kind == CollectiveKind::kReduce || kind == CollectiveKind::kReduceScatter;
    for (std::size_t member = 0; member < group.size(); ++member) {
      for (std::size_t i = 0; i < result.size(); ++i) {
        values(member)[i] =
            !only_root || member == each.root ? result[i] : std::numeric_limits<float>::quiet_NaN();
      }
    }
  }

  bool begin(std::size_t rank, std::size_t lane, const ExchangeOperation& exchange) {
    RankState& state = ranks_[rank];
    if (state.open_messages) {
      return false;
    }
    state.open_messages = exchange.messages.size();
    const std::size_t bucket = state.lanes[lane].front().bucket;
    for (const ExchangeOperation::Message& m : exchange.messages) {
      auto* memory = m.is_gradient ? reinterpret_cast<std::byte*>((*state.gradients)[bucket].data())
                                   : state.scratch[bucket].data();
      auto& posted = m.is_send ? sends_[{rank, m.peer.index()}] : receives_[{m.peer.index(), rank}];
      posted.push_back({rank, memory + m.offset, m.bytes});
    }
    return true;
  }

  bool match_messages() {
    std::vector<Pair> pairs;
    for (const auto& [pair, posted] : sends_) {
      if (!posted.empty() && !receives_[pair].empty()) {
        pairs.push_back(pair);
      }
    }
    if (pairs.empty()) {
      return false;
    }
    const Pair pair = pairs[random_() % pairs.size()];
    const Posted from = sends_[pair].front();
    const Posted to = receives_[pair].front();
    sends_[pair].pop_front();
    receives_[pair].pop_front();
    if (from.bytes != to.bytes) {
      throw std::logic_error("two ranks disagree about a message");
    }
    std::memcpy(to.memory, from.memory, from.bytes);
    for (const std::size_t rank : {from.rank, to.rank}) {
      if (--*ranks_[rank].open_messages == 0) {
        ranks_[rank].open_messages.reset();
        end(rank, static_cast<std::size_t>(DeviceLane::kMessages));
      }
    }
    return true;
  }

  const plan::Plan& plan_;
  const RankGroups& groups_;
  std::mt19937 random_;
  std::vector<std::vector<std::unique_ptr<Codec>>> codecs_;  ///< by schedule
  std::uint32_t step_ = 0;
  std::vector<RankState> ranks_;
  std::map<Pair, std::deque<Posted>> sends_;
  std::map<Pair, std::deque<Posted>> receives_;

 public:
  std::vector<Residuals> residuals;  ///< by rank
};

}  // namespace rackrail::runtime
