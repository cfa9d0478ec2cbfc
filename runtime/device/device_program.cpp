#include "runtime/device/device_program.hpp"

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "runtime/bucket_program.hpp"

namespace rackrail::runtime {
namespace {

using plan::EncodingKind;
using plan::TransferOp;

constexpr std::size_t kAlignment = 16;

std::size_t aligned(std::size_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

std::size_t encoded_bytes(const plan::Codec& codec, plan::ElementRange range,
                          std::int64_t slice_elements) {
  const std::vector<EncodedSlice> slices = encoded_slices(codec, range, slice_elements);
  return slices.empty() ? 0 : slices.back().offset + slices.back().bytes;
}

class ProgramMaker {
 public:
  ProgramMaker(const plan::Plan& plan, BucketId bucket, Rank self, const RankGroups& groups)
      : elements_(plan.buckets[bucket.index()].elements),
        self_(self),
        groups_(groups),
        local_(plan, bucket, self),
        codes_(local_.transfers.size()) {
    program_.slice_elements = local_.slice_elements;
  }

  void append(const Stage& stage) {
    if (stage.kind == StageKind::kExchange) {
      append_exchange(stage);
    } else if (const auto& group = groups_[stage.group];
               group.size() > 1 && std::find(group.begin(), group.end(), self_) != group.end()) {
      append_collective(stage, group.size());
    }
  }

  DeviceProgram take() { return std::move(program_); }

 private:
  void append_collective(const Stage& stage, std::size_t members) {
    CollectiveOperation operation{.group = stage.group};
    for (const StagePart& part : stage.parts) {
      const plan::ElementRange range =
          local_.graph.range(part.chunk_begin, part.chunk_count, elements_);
      if (range.size() != 0) {
        operation.parts.push_back({range, part.root});
      }
    }
    if (operation.parts.empty()) {
      return;
    }
    const bool is_even = is_one_per_member(operation.parts, members);
    DeviceLane lane = DeviceLane::kSum;
    if (stage.kind == StageKind::kReduce) {
      operation.kind = is_even ? CollectiveKind::kReduceScatter : CollectiveKind::kReduce;
    } else if (stage.kind == StageKind::kBroadcast) {
      operation.kind = is_even ? CollectiveKind::kAllGather : CollectiveKind::kBroadcast;
      lane = DeviceLane::kGather;
    }
    program_.operations.push_back({lane, std::move(operation)});
  }

  /// Whether member i is the root of part i, and all parts are of one size without gaps.
  static bool is_one_per_member(std::span<const CollectiveOperation::Part> parts,
                                std::size_t members) {
    for (std::size_t i = 0; i < parts.size(); ++i) {
      if (parts[i].root != i || parts[i].range.size() != parts[0].range.size() ||
          (i > 0 && parts[i].range.begin != parts[i - 1].range.end)) {
        return false;
      }
    }
    return parts.size() == members;
  }

  void append_exchange(const Stage& stage) {
    ExchangeOperation exchange;
    std::vector<DeviceOperation> decoding;
    for (const TransferId id : stage.transfers) {
      const auto found = local_.local.find(id.value());
      if (found == local_.local.end()) {
        continue;  // of other ranks, or of no elements
      }
      if (local_.transfers[found->second].is_send) {
        append_send(found->second, exchange);
      } else {
        append_receive(found->second, exchange, decoding);
      }
    }
    if (!exchange.messages.empty()) {
      program_.operations.push_back({DeviceLane::kMessages, std::move(exchange)});
    }
    std::move(decoding.begin(), decoding.end(), std::back_inserter(program_.operations));
  }

  void append_send(std::uint32_t index, ExchangeOperation& exchange) {
    const LocalTransfer& t = local_.transfers[index];
    const plan::Codec& codec = local_.graph.codecs()[t.codec];
    if (!codec.is_lossy()) {
      exchange.messages.push_back(of_gradient(t));
      return;
    }
    const std::size_t bytes = encoded_bytes(codec, t.range, program_.slice_elements);
    if (t.encoding == EncodingKind::kOwn) {
      codes_[index] = reserve(bytes);
      program_.operations.push_back(
          {DeviceLane::kEncode,
           EncodeOperation{t.codec, t.op, t.range, t.residual, codes_[index]}});
    } else {
      codes_[index] = codes_[t.encoding_from];
    }
    exchange.messages.push_back({TransferId(t.id), t.peer, true, false, codes_[index], bytes});
  }

  void append_receive(std::uint32_t index, ExchangeOperation& exchange,
                      std::vector<DeviceOperation>& decoding) {
    const LocalTransfer& t = local_.transfers[index];
    const plan::Codec& codec = local_.graph.codecs()[t.codec];
    if (!codec.is_lossy() && t.op == TransferOp::kCopy) {
      exchange.messages.push_back(of_gradient(t));
      return;
    }
    const std::size_t bytes = encoded_bytes(codec, t.range, program_.slice_elements);
    codes_[index] = reserve(bytes);
    exchange.messages.push_back({TransferId(t.id), t.peer, false, false, codes_[index], bytes});
    append_decoding(index, bytes, decoding);
  }

  // What lower ranks sent for a mutual sum is summed before this rank's own, of which a copy waits
  // in the scratch memory, is added (LocalTransfer::added_with).
  void append_decoding(std::uint32_t index, std::size_t bytes,
                       std::vector<DeviceOperation>& decoding) {
    const LocalTransfer& t = local_.transfers[index];
    const auto decode = [&](TransferOp op, std::size_t input) {
      decoding.push_back({DeviceLane::kDecode, DecodeOperation{t.codec, op, t.range, input}});
    };
    const auto own = own_copies_.find(index);
    if (own != own_copies_.end()) {
      decode(t.op, codes_[index]);
      if (t.added_with) {
        own_copies_.emplace(*t.added_with, own->second);
      } else {
        decode(t.op, own->second);
      }
    } else if (t.added_with) {
      const std::size_t copy = reserve(bytes);
      program_.operations.push_back(
          {DeviceLane::kEncode, EncodeOperation{t.codec, t.op, t.range, {}, copy}});
      decode(TransferOp::kCopy, codes_[index]);
      own_copies_.emplace(*t.added_with, copy);
    } else {
      decode(t.op, codes_[index]);
    }
  }

  static ExchangeOperation::Message of_gradient(const LocalTransfer& t) {
    return {TransferId(t.id),
            t.peer,
            t.is_send,
            true,
            sizeof(float) * static_cast<std::size_t>(t.range.begin),
            sizeof(float) * static_cast<std::size_t>(t.range.size())};
  }

  std::size_t reserve(std::size_t bytes) {
    return std::exchange(program_.scratch_bytes, program_.scratch_bytes + aligned(bytes));
  }

  std::int64_t elements_;
  Rank self_;
  const RankGroups& groups_;
  BucketProgram local_;
  std::vector<std::size_t> codes_;  ///< by local transfer: where its codes are
  /// By local transfer that is added before this rank's own: where a copy of that is.
  std::unordered_map<std::uint32_t, std::size_t> own_copies_;
  DeviceProgram program_;
};

}  // namespace

std::vector<EncodedSlice> encoded_slices(const plan::Codec& codec, plan::ElementRange range,
                                         std::int64_t slice_elements) {
  std::vector<EncodedSlice> slices;
  std::size_t offset = 0;
  if (!codec.is_lossy() && range.size() != 0) {
    return {{range, 0, sizeof(float) * static_cast<std::size_t>(range.size())}};
  }
  for (std::int64_t k = 0; k < plan::slice_count(range, slice_elements); ++k) {
    const plan::ElementRange part = plan::slice(range, slice_elements, k);
    const auto bytes = static_cast<std::size_t>(plan::encoded_size(codec, part.size()).count());
    slices.push_back({part, offset, bytes});
    offset += aligned(bytes);
  }
  return slices;
}

DeviceProgram make_device_program(const plan::Plan& plan, BucketId bucket, Rank self,
                                  const RankGroups& groups, std::span<const Stage> stages) {
  ProgramMaker maker(plan, bucket, self, groups);
  for (const Stage& stage : stages) {
    maker.append(stage);
  }
  return maker.take();
}

}  // namespace rackrail::runtime
