// Which bucket's slices the executor posts first where several compete. One thread drives the slice
// engines of all ranks, so what is posted when is known exactly.
#include <array>
#include <catch2/catch.hpp>
#include <deque>
#include <numeric>

#include "runtime/slice_engine.hpp"
#include "tests/support/rank_threads.hpp"

namespace rackrail::runtime::bucket_priority_test {
namespace {

/// An in-process transport that says what was sent and completes a send only when it is told to.
class Watched final : public Transport {
 public:
  explicit Watched(std::unique_ptr<Transport> wire) : wire_(std::move(wire)) {}
  std::string_view name() const override { return "watched"; }
  std::vector<std::byte> address() const override { return wire_->address(); }
  void set_key(std::uint64_t key) override { wire_->set_key(key); }
  void connect(Rank self, std::span<const std::vector<std::byte>> addresses) override {
    wire_->connect(self, addresses);
  }
  void set_handlers(ReceiveHandler on_receive, PeerErrorHandler on_error) override {
    wire_->set_handlers(std::move(on_receive), std::move(on_error));
  }
  void send(Rank destination, const SliceHeader& header, std::span<const std::byte> payload,
            SendCompletion done) override {
    sent.emplace_back(header.bucket, header.slice);
    wire_->send(destination, header, payload, [] {});
    open_.push_back(std::move(done));
  }
  /// Of the send that was posted first.
  void complete_one() {
    const SendCompletion done = std::move(open_.front());
    open_.pop_front();
    done();
  }
  bool has_open() const { return !open_.empty(); }
  std::size_t progress() override { return wire_->progress(); }
  bool arm() override { return wire_->arm(); }
  void sleep(Duration at_most) override { wire_->sleep(at_most); }
  void wake() override { wire_->wake(); }
  void close(Duration deadline) noexcept override { wire_->close(deadline); }

  std::vector<std::pair<std::uint32_t, std::uint32_t>> sent;  ///< (bucket, slice)

 private:
  std::unique_ptr<Transport> wire_;
  std::deque<SendCompletion> open_;
};

/// Both ranks of an all-reduce by a ring, in one thread.
struct Pair {
  static constexpr int kWindow = 2;
  static constexpr std::int64_t kElements = 8 * 1024;  ///< 4 slices per chunk

  explicit Pair(const std::vector<std::uint32_t>& priorities)
      : plan(plan_of(ring(2), std::vector<std::int64_t>(priorities.size(), kElements), 1024)) {
    for (std::size_t b = 0; b < priorities.size(); ++b) {
      plan.buckets[b].priority = priorities[b];
    }
    auto transports = make_in_process_transports(2);
    ExecutorOptions options;
    options.send_window = kWindow;
    for (std::size_t r = 0; r < 2; ++r) {
      wires[r] = std::make_unique<Watched>(std::move(transports[r]));
      ledgers[r] = std::make_unique<ExecutionLedger>(Rank(r), false);
      engines[r] = std::make_unique<SliceEngine>(plan, Rank(r), *wires[r], options, *ledgers[r]);
      engines[r]->begin_step(0);
      for (std::size_t b = 0; b < priorities.size(); ++b) {
        std::vector<float>& values = data[r].emplace_back(kElements);
        std::iota(values.begin(), values.end(), static_cast<float>(1000 * (b + 1) * (r + 1)));
      }
    }
  }
  void start(std::size_t rank, std::uint32_t bucket) {
    engines[rank]->start(BucketId(bucket), data[rank][bucket]);
    engines[rank]->drain();
  }
  void complete_one(std::size_t rank) {
    wires[rank]->complete_one();
    engines[rank]->drain();
  }
  /// Until nothing happens any more; returns the buckets that ended on rank 0, in that order.
  std::vector<std::uint32_t> finish() {
    std::vector<std::uint32_t> ended;
    for (bool goes_on = true; goes_on;) {
      goes_on = false;
      for (std::size_t r = 0; r < 2; ++r) {
        while (wires[r]->has_open()) {
          complete_one(r);
          goes_on = true;
        }
        goes_on = wires[r]->progress() > 0 || goes_on;
        engines[r]->drain();
        for (const BucketId bucket : engines[r]->take_finished()) {
          if (r == 0) {
            ended.push_back(bucket.value());
          }
        }
      }
    }
    return ended;
  }
  std::size_t wrong() const {
    std::size_t count = 0;
    for (std::size_t r = 0; r < 2; ++r) {
      for (std::size_t b = 0; b < data[r].size(); ++b) {
        for (std::size_t i = 0; i < data[r][b].size(); ++i) {
          const auto sum = static_cast<float>(3000 * (b + 1) + 2 * i);
          count += data[r][b][i] == sum ? 0 : 1;
        }
      }
    }
    return count;
  }

  plan::Plan plan;
  std::array<std::unique_ptr<Watched>, 2> wires;
  std::array<std::unique_ptr<ExecutionLedger>, 2> ledgers;
  std::array<std::unique_ptr<SliceEngine>, 2> engines;
  std::array<std::vector<std::vector<float>>, 2> data;  ///< by rank and bucket
};

using Sent = std::vector<std::pair<std::uint32_t, std::uint32_t>>;

TEST_CASE("executor: an urgent bucket overtakes what is not in the window yet; sums are exact") {
  Pair pair({1, 0});
  pair.start(0, 0);
  pair.start(1, 0);
  CHECK(pair.wires[0]->sent == Sent{{0, 0}, {0, 1}});
  pair.start(0, 1);  // the window is full
  CHECK(pair.wires[0]->sent.size() == 2);
  pair.start(1, 1);
  pair.complete_one(0);
  pair.complete_one(0);
  pair.complete_one(0);
  pair.complete_one(0);
  // All that the urgent bucket can send by itself, then the other one goes on where it was.
  CHECK(pair.wires[0]->sent == Sent{{0, 0}, {0, 1}, {1, 0}, {1, 1}, {1, 2}, {1, 3}});
  pair.complete_one(0);
  pair.complete_one(0);
  CHECK(pair.wires[0]->sent.back() == std::pair(0U, 3U));
  CHECK(pair.finish() == std::vector<std::uint32_t>{1, 0});
  CHECK(pair.wrong() == 0);
}

TEST_CASE("executor: at equal priorities, and at those in launch order, the plan's order counts") {
  const std::vector<std::uint32_t> priorities =
      GENERATE(std::vector<std::uint32_t>{0, 0}, std::vector<std::uint32_t>{0, 1});
  CAPTURE(priorities);
  Pair pair(priorities);
  pair.start(0, 1);  // launched first, but second in the plan
  pair.start(0, 0);
  for (int i = 0; i < 6; ++i) {
    pair.complete_one(0);
  }
  CHECK(pair.wires[0]->sent ==
        Sent{{1, 0}, {1, 1}, {0, 0}, {0, 1}, {0, 2}, {0, 3}, {1, 2}, {1, 3}});
  pair.start(1, 1);
  pair.start(1, 0);
  pair.finish();
  CHECK(pair.wrong() == 0);
}

}  // namespace
}  // namespace rackrail::runtime::bucket_priority_test
