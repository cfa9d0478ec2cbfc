#include "runtime/nccl/device_messages.hpp"

namespace rackrail::runtime {

void NcclMessages::prepare(BucketId /*bucket*/, const DeviceProgram& /*program*/) {}

void NcclMessages::enqueue(BucketId /*bucket*/, const ExchangeOperation& exchange,
                           std::span<std::byte> gradient, std::span<std::byte> scratch,
                           cudaStream_t stream) {
  const NcclFunctions& nccl = world_.functions();
  NcclGroup group(world_);
  for (const ExchangeOperation::Message& message : exchange.messages) {
    std::byte* const memory =
        (message.is_gradient ? gradient : scratch).subspan(message.offset, message.bytes).data();
    const auto peer = static_cast<int>(message.peer.value());
    if (message.is_send) {
      group.add(nccl.send(memory, message.bytes, NcclType::kUint8, peer, world_.handle(), stream),
                "ncclSend");
    } else {
      group.add(nccl.recv(memory, message.bytes, NcclType::kUint8, peer, world_.handle(), stream),
                "ncclRecv");
    }
  }
  group.end();
}

}  // namespace rackrail::runtime
