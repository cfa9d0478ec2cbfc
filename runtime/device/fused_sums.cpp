#include "runtime/device/fused_sums.hpp"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

namespace rackrail::runtime {
namespace {

using plan::ElementRange;
using plan::TransferOp;

bool overlap(ElementRange a, ElementRange b) { return a.begin < b.end && b.begin < a.end; }
bool equal(ElementRange a, ElementRange b) { return a.begin == b.begin && a.end == b.end; }
bool contains(ElementRange outer, ElementRange inner) {
  return outer.begin <= inner.begin && inner.end <= outer.end;
}

ElementRange elements_of(const ExchangeOperation::Message& message) {
  const auto begin = static_cast<std::int64_t>(message.offset / sizeof(float));
  return {begin, begin + static_cast<std::int64_t>(message.bytes / sizeof(float))};
}

// Whether an operation reads or writes some of the gradient's range.
bool touches(const CollectiveOperation& operation, ElementRange range) {
  return std::any_of(operation.parts.begin(), operation.parts.end(),
                     [&](const auto& part) { return overlap(part.range, range); });
}
bool touches(const ExchangeOperation& operation, ElementRange range) {
  return std::any_of(operation.messages.begin(), operation.messages.end(), [&](const auto& m) {
    return m.is_gradient && overlap(elements_of(m), range);
  });
}
bool touches(const EncodeOperation& operation, ElementRange range) {
  return overlap(operation.range, range);
}
bool touches(const DecodeOperation& operation, ElementRange range) {
  return overlap(operation.range, range);
}
bool touches(const DeviceOperation& operation, ElementRange range) {
  return std::visit([&](const auto& what) { return touches(what, range); }, operation.what);
}

/// Whether an operation that touches the range overwrites all of it before it reads any.
bool overwrites(const DeviceOperation& operation, ElementRange range) {
  if (const auto* decode = std::get_if<DecodeOperation>(&operation.what)) {
    return decode->op == TransferOp::kCopy && contains(decode->range, range);
  }
  if (const auto* exchange = std::get_if<ExchangeOperation>(&operation.what)) {
    bool is_received = false;
    for (const ExchangeOperation::Message& m : exchange->messages) {
      if (m.is_gradient && overlap(elements_of(m), range)) {
        if (m.is_send) {
          return false;
        }
        is_received = is_received || contains(elements_of(m), range);
      }
    }
    return is_received;
  }
  return false;
}

/// Whether nobody looks at the sum that an operation encodes but by its codes.
bool is_only_encoded(const std::vector<DeviceOperation>& operations, std::size_t at) {
  const auto& encode = std::get<EncodeOperation>(operations[at].what);
  if (encode.op == TransferOp::kCopy) {
    return true;
  }
  const auto next = std::find_if(
      operations.begin() + static_cast<std::ptrdiff_t>(at) + 1, operations.end(),
      [&](const DeviceOperation& operation) { return touches(operation, encode.range); });
  return next != operations.end() && overwrites(*next, encode.range);
}

/// The decodings whose sum an operation encodes, the last ones first: what can be part of it.
std::vector<std::size_t> summands(const std::vector<DeviceOperation>& operations, std::size_t at) {
  const auto& encode = std::get<EncodeOperation>(operations[at].what);
  std::vector<std::size_t> found;
  for (std::size_t i = at; i-- > 0 && found.size() < kMostFusedPayloads;) {
    const auto* decode = std::get_if<DecodeOperation>(&operations[i].what);
    if (decode != nullptr && decode->op == TransferOp::kReduce && decode->codec == encode.codec &&
        equal(decode->range, encode.range)) {
      found.push_back(i);
    } else if (touches(operations[i], encode.range)) {
      break;
    }
  }
  return found;
}

}  // namespace

void fuse_sums(DeviceProgram& program, const std::function<bool(std::uint8_t codec)>& has_kernel) {
  std::vector<DeviceOperation>& operations = program.operations;
  std::vector<char> is_fused(operations.size(), 0);
  for (std::size_t i = 0; i < operations.size(); ++i) {
    auto* encode = std::get_if<EncodeOperation>(&operations[i].what);
    if (encode == nullptr || !has_kernel(encode->codec) || !is_only_encoded(operations, i)) {
      continue;
    }
    const std::vector<std::size_t> found = summands(operations, i);
    for (auto it = found.rbegin(); it != found.rend(); ++it) {
      encode->addends.push_back(std::get<DecodeOperation>(operations[*it].what).input);
      is_fused[*it] = 1;
    }
  }
  std::vector<DeviceOperation> rest;
  for (std::size_t i = 0; i < operations.size(); ++i) {
    if (is_fused[i] == 0) {
      rest.push_back(std::move(operations[i]));
    }
  }
  operations = std::move(rest);
}

}  // namespace rackrail::runtime
