// Messages of peers: what a rank with work under way does with them. The input is messages one
// after another, each a header as UCX's transport has it and as many bytes as that says.
#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "runtime/slice_engine.hpp"
#include "runtime/ucx/wire.hpp"
#include "tests/fuzz/plans.hpp"

namespace rackrail::fuzz {
namespace {

constexpr std::uint64_t kSession = 0x5e55;
constexpr std::size_t kRanks = 3;
constexpr std::int64_t kElements = 24;  // of a bucket: two slices
constexpr std::int64_t kSlice = 16;
constexpr std::uint32_t kSteps = 2;

const plan::Plan& job() {
  static constexpr plan::Codec kCodec{.kind = plan::CodecKind::kTopK, .density = 0.25};
  static const plan::Plan plan = [] {
    plan::Plan made = plan_of(star(kRanks, kCodec), kCodec, {kElements, kElements});
    for (plan::Bucket& bucket : made.buckets) {
      bucket.slice_elements = kSlice;
    }
    made.compression_warmup_steps = 1;
    return made;
  }();
  return plan;
}

/// Sends at once, and receives what the input has.
class InputTransport final : public runtime::Transport {
 public:
  std::string_view name() const override { return "input"; }
  std::vector<std::byte> address() const override { return {}; }
  void set_key(std::uint64_t /*key*/) override {}
  void connect(Rank /*self*/, std::span<const std::vector<std::byte>> /*all*/) override {}
  void set_handlers(runtime::ReceiveHandler on_receive,
                    runtime::PeerErrorHandler on_peer_error) override {
    on_receive_ = std::move(on_receive);
    on_peer_error_ = std::move(on_peer_error);
  }
  void send(Rank /*destination*/, const runtime::SliceHeader& header,
            std::span<const std::byte> payload, runtime::SendCompletion done) override {
    require(header.bytes == payload.size(), "a header that does not fit what is sent");
    done();
  }
  std::size_t progress() override { return 0; }
  void sleep(Duration /*at_most*/) override {}
  void wake() override {}
  void close(Duration /*deadline*/) noexcept override {}

  /// Takes a message off the input; false where there is none.
  bool receive(std::span<const std::byte>& input, Rank self) {
    if (input.size() < sizeof(runtime::WireHeader)) {
      return false;
    }
    const auto header =
        runtime::read_header(input.first(sizeof(runtime::WireHeader)), kSession, kRanks, self);
    input = input.subspan(sizeof(runtime::WireHeader));
    if (header) {
      const std::size_t length = std::min<std::size_t>(header->slice.bytes, input.size());
      on_receive_(Rank(header->source), header->slice, input.first(length));
      input = input.subspan(length);
    }
    return true;
  }

 private:
  runtime::ReceiveHandler on_receive_;
  runtime::PeerErrorHandler on_peer_error_;
};

/// One rank's steps, with what the others send.
void run(std::span<const std::byte> input, Rank self) {
  InputTransport transport;
  runtime::ExecutionLedger ledger(self, false);
  runtime::SliceEngine engine(job(), self, transport, {}, ledger);
  std::vector<std::vector<float>> gradients(2);
  try {
    bool has_input = true;
    for (std::uint32_t step = 0; step < kSteps && has_input; ++step) {
      std::size_t open = 0;
      engine.begin_step(step);
      for (std::size_t bucket = 0; bucket < gradients.size(); ++bucket) {
        // The second bucket comes later, so that messages may come before it.
        has_input = bucket == 0 || transport.receive(input, self);
        gradients[bucket].assign(kElements, 1.0F);
        engine.start(BucketId(bucket), gradients[bucket]);
        engine.drain();
        ++open;
      }
      open -= engine.take_finished().size();
      while (open > 0 && has_input) {
        has_input = transport.receive(input, self);
        engine.drain();
        open -= engine.take_finished().size();
      }
    }
  } catch (const RuntimeFailure&) {  // no peer with this plan would send that
  }
  engine.halt();
}

std::string message(std::uint32_t source, runtime::SliceHeader slice, std::size_t payload) {
  runtime::WireHeader header{
      .session = kSession, .source = source, .connection = 0, .slice = slice};
  header.slice.plan = std::stoull(plan::digest(job()).substr(0, 16), nullptr, 16);
  header.slice.bytes = static_cast<std::uint32_t>(payload);
  std::string bytes(sizeof header, '\0');
  std::memcpy(bytes.data(), &header, sizeof header);
  return bytes + std::string(payload, '\x01');
}

}  // namespace

/// All that a rank is sent in two steps: plain in the first, encoded in the second.
std::vector<std::string> seeds() {
  std::string to_root;
  std::string to_leaf;
  for (std::uint32_t step = 0; step < kSteps; ++step) {
    for (std::uint32_t bucket = 0; bucket < 2; ++bucket) {
      for (std::uint32_t slice = 0; slice < 2; ++slice) {
        const std::int64_t elements = slice == 0 ? kSlice : kElements - kSlice;
        const plan::Codec& codec = job().schedules[0].codecs()[step == 0 ? 0 : 1];
        const auto payload = static_cast<std::size_t>(plan::encoded_size(codec, elements).count());
        for (std::uint32_t transfer = 0; transfer < 2; ++transfer) {
          to_root += message(transfer + 1,
                             {.step = step, .bucket = bucket, .transfer = transfer, .slice = slice},
                             payload);
        }
        to_leaf +=
            message(0, {.step = step, .bucket = bucket, .transfer = 2, .slice = slice}, payload);
      }
    }
  }
  return {to_root, to_leaf};
}

}  // namespace rackrail::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace rackrail;
  const auto input = fuzz::bytes_of(fuzz::text_of(data, size));
  fuzz::run(input, Rank(std::size_t{0}));
  fuzz::run(input, Rank(std::size_t{1}));
  return 0;
}
