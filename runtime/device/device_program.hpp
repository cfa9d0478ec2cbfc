// One rank's part of a bucket's stages as a list of operations on device memory: data, like a plan.
//
// The interpreter needs no knowledge of plans: runtime/nccl/ enqueues the operations on CUDA
// streams, tests run them on a processor in any order that streams allow. Operations are listed in
// the order in which they follow each other. Each belongs to a stream (DeviceLane). A stream
// carries out the operations of all buckets in the order of their launch. So an operation begins
// when the one before it in its program and the one before it in its stream have ended.
//
// Streams. While a bucket crosses the slow tier, the next one is summed inside the groups. So sums
// and gathers, encoding and decoding have streams of their own; otherwise the end of one bucket
// would delay the beginning of the next. All operations on one communicator of a collective library
// are in one stream. All ranks must launch buckets in the same order.
//
// Memory. A program works on the bucket's gradient, in place, and on scratch memory of its own that
// holds what was encoded and what arrived; nothing of it is used twice, so that encodings may be
// sent again in later stages. Slices are encoded one by one as everywhere (rule 6 of
// plan/transfer_graph.hpp), each from an address that is a multiple of 16; a transfer is one
// message.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "plan/plan.hpp"
#include "runtime/device/stages.hpp"

namespace rackrail::runtime {

enum class DeviceLane : std::uint8_t { kSum, kGather, kEncode, kDecode, kMessages };
inline constexpr std::size_t kDeviceLanes = 5;

enum class CollectiveKind : std::uint8_t {
  kAllReduce,
  kReduce,         ///< of each part to its root
  kReduceScatter,  ///< parts of one size, one after the other, to members 0, 1, …
  kBroadcast,      ///< of each part from its root
  kAllGather,      ///< parts of one size, one after the other, from members 0, 1, …
};

/// On the communicator of the rank's group.
struct CollectiveOperation {
  struct Part {
    plan::ElementRange range;
    std::uint32_t root = 0;  ///< position in the group
  };
  CollectiveKind kind = CollectiveKind::kAllReduce;
  std::uint32_t group = 0;
  std::vector<Part> parts;  ///< none empty
};

/// Writes the codes of a range, and of copies also what they decode to into the gradient. With
/// addends (fused_sums.hpp), it is their sum with the range that is encoded, and of reductions the
/// range is unspecified then.
struct EncodeOperation {
  std::uint8_t codec = 0;  ///< index into the graph's codecs
  plan::TransferOp op = plan::TransferOp::kCopy;
  plan::ElementRange range;
  std::string residual;    ///< name of its error-feedback state; empty: none
  std::size_t output = 0;  ///< in the scratch memory
  /// Codes of the same range and codec in the scratch memory, in the order in which they are added.
  std::vector<std::size_t> addends{};
};

/// Stores or adds what codes in the scratch memory decode to.
struct DecodeOperation {
  std::uint8_t codec = 0;
  plan::TransferOp op = plan::TransferOp::kCopy;
  plan::ElementRange range;
  std::size_t input = 0;
};

/// Messages that go at the same time. Those between two ranks leave, and arrive, in their order
/// here.
struct ExchangeOperation {
  struct Message {
    TransferId transfer;
    Rank peer;
    bool is_send = false;
    bool is_gradient = false;  ///< to or from the gradient itself, else the scratch memory
    std::size_t offset = 0;    ///< in bytes
    std::size_t bytes = 0;
  };
  std::vector<Message> messages;
};

struct DeviceOperation {
  DeviceLane lane = DeviceLane::kMessages;
  std::variant<CollectiveOperation, EncodeOperation, DecodeOperation, ExchangeOperation> what;
};

struct DeviceProgram {
  std::vector<DeviceOperation> operations;
  std::int64_t slice_elements = 0;
  std::size_t scratch_bytes = 0;
};

/// A slice of a range and where in its encoded form the slice's codes are.
struct EncodedSlice {
  plan::ElementRange range;
  std::size_t offset = 0;  ///< from the first slice's
  std::size_t bytes = 0;
};
/// All slices of a range; of FP32, which is sent as it is, one that is the range.
std::vector<EncodedSlice> encoded_slices(const plan::Codec& codec, plan::ElementRange range,
                                         std::int64_t slice_elements);

/// `stages` are those of the bucket's schedule.
DeviceProgram make_device_program(const plan::Plan& plan, BucketId bucket, Rank self,
                                  const RankGroups& groups, std::span<const Stage> stages);

}  // namespace rackrail::runtime
