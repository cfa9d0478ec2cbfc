#include "runtime/device/fused_sums.hpp"

#include <catch2/catch.hpp>

namespace rackrail::runtime::fused_sums_test {
namespace {

using plan::TransferOp;

constexpr std::uint8_t kInt8 = 1;
constexpr plan::ElementRange kRange{0, 100};

DeviceOperation add(std::size_t input, plan::ElementRange range = kRange,
                    std::uint8_t codec = kInt8) {
  return {DeviceLane::kDecode, DecodeOperation{codec, TransferOp::kReduce, range, input}};
}
DeviceOperation store(plan::ElementRange range = kRange) {
  return {DeviceLane::kDecode, DecodeOperation{kInt8, TransferOp::kCopy, range, 0}};
}
DeviceOperation encode(TransferOp op) {
  return {DeviceLane::kEncode, EncodeOperation{kInt8, op, kRange, {}, 9'000}};
}
DeviceOperation message(bool is_send, plan::ElementRange range) {
  ExchangeOperation exchange;
  exchange.messages.push_back({TransferId(0), Rank(1), is_send, true,
                               sizeof(float) * static_cast<std::size_t>(range.begin),
                               sizeof(float) * static_cast<std::size_t>(range.size())});
  return {DeviceLane::kMessages, exchange};
}

/// What each encoding adds, of the program after fusing; and how many operations are left.
std::pair<std::vector<std::vector<std::size_t>>, std::size_t> fused(
    std::vector<DeviceOperation> operations) {
  DeviceProgram program;
  program.operations = std::move(operations);
  fuse_sums(program, [](std::uint8_t codec) { return codec == kInt8; });
  std::vector<std::vector<std::size_t>> addends;
  for (const DeviceOperation& operation : program.operations) {
    if (const auto* each = std::get_if<EncodeOperation>(&operation.what)) {
      addends.push_back(each->addends);
    }
  }
  return {addends, program.operations.size()};
}

using Addends = std::vector<std::vector<std::size_t>>;

TEST_CASE("fused sums: payloads that are added and encoded again, in their order") {
  CHECK(fused({add(16), add(32), add(48), encode(TransferOp::kCopy)}) ==
        std::pair(Addends{{16, 32, 48}}, std::size_t{1}));
  // What is elsewhere in the gradient stays where it is.
  CHECK(fused({add(16), add(64, {100, 200}), message(true, {100, 200}), add(32),
               encode(TransferOp::kCopy)}) == std::pair(Addends{{16, 32}}, std::size_t{3}));
}

TEST_CASE("fused sums: only what comes after whatever else touches the range") {
  const DeviceOperation other =
      GENERATE(message(true, kRange), message(false, {99, 120}), store(), encode(TransferOp::kCopy),
               add(64, {50, 150}), add(64, kRange, 2));
  CHECK(fused({add(16), other, add(32), encode(TransferOp::kCopy)}).first.back() ==
        std::vector<std::size_t>{32});
}

TEST_CASE("fused sums: of a reduction only where the sum is overwritten unread") {
  const auto after = [](std::vector<DeviceOperation> rest) {
    rest.insert(rest.begin(), {add(16), encode(TransferOp::kReduce)});
    return !fused(std::move(rest)).first.front().empty();
  };
  CHECK(after({store()}));
  CHECK(after({message(true, {100, 200}), message(false, kRange)}));
  CHECK(after({store({0, 200})}));
  CHECK_FALSE(after({}));
  CHECK_FALSE(after({store({0, 99})}));
  CHECK_FALSE(after({message(true, {0, 1}), store()}));
  CHECK_FALSE(after({add(32), store()}));
  CHECK_FALSE(after({encode(TransferOp::kCopy), store()}));
}

TEST_CASE("fused sums: as many payloads as a kernel takes, and codecs that have one") {
  std::vector<DeviceOperation> many;
  for (std::size_t i = 0; i < kMostFusedPayloads + 3; ++i) {
    many.push_back(add(16 * i));
  }
  many.push_back(encode(TransferOp::kCopy));
  const auto [addends, left] = fused(many);
  REQUIRE(addends.front().size() == kMostFusedPayloads);
  CHECK(addends.front().front() == 16 * 3);
  CHECK(left == 4);
  DeviceProgram program;
  program.operations = {add(16), encode(TransferOp::kCopy)};
  fuse_sums(program, [](std::uint8_t) { return false; });
  CHECK(program.operations.size() == 2);
}

}  // namespace
}  // namespace rackrail::runtime::fused_sums_test
