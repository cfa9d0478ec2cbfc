// A job's executor for gradients on a device, on an emulated GPU: whatever carries them, and
// whatever goes wrong with that. Threads are ranks.
#include "runtime/nccl/plan_executor.hpp"

#include <atomic>
#include <barrier>
#include <catch2/catch.hpp>
#include <mutex>
#include <thread>
#include <utility>

#include "runtime/cuda/handles.hpp"
#include "runtime/nccl/host_messages.hpp"
#include "tests/conformance/device_jobs.hpp"
#include "tests/support/emulated_gpu/fibers.hpp"
#include "tests/support/fake_nccl.hpp"
#include "tests/support/skip.hpp"

namespace rackrail::runtime::device_plan_executor_test {
namespace {

/// What a coordinator does for ranks that are threads: each says something, all hear all.
class Meeting {
 public:
  explicit Meeting(std::size_t ranks)
      : said_(ranks), barrier_(static_cast<std::ptrdiff_t>(ranks)) {}

  std::vector<std::string> exchange(Rank self, const std::string& own) {
    said_[self.index()] = own;
    barrier_.arrive_and_wait();
    std::vector<std::string> all = said_;
    barrier_.arrive_and_wait();
    return all;
  }

 private:
  std::vector<std::string> said_;
  std::barrier<> barrier_;
};

DevicePlanOptions plan_options(DevicePath path, const CudaStream& stream, test::FakeNccl& nccl,
                               Meeting& meeting, Rank self) {
  return {
      .stream = stream.get(),
      .path = path,
      .groups = kPairs,
      .nccl = &nccl.functions(),
      .exchange = [&meeting, self](const std::string& own) { return meeting.exchange(self, own); }};
}

TEST_CASE("device plan executor: it gives the same sums whatever carries them") {
  const DevicePath path = GENERATE(DevicePath::kNccl, DevicePath::kHybrid, DevicePath::kTransport);
  CAPTURE(to_string(path, true));
  const plan::Plan plan = plan_of(two_tiers(plan::parse_codec("int8")), {4'096, 3'001, 1}, 1'024);
  test::FakeNccl nccl;
  nccl.on_enqueue([](NcclStream stream) { emulated_gpu::enqueue(stream, [] {}); });
  Meeting meeting(4);
  const auto transports = make_in_process_transports(4);
  Gradients sums(4);
  std::vector<Residuals> residuals(4);
  std::vector<ExecutorStatistics> statistics(4);
  std::vector<std::string> too_early(4);
  on_every_rank(4, [&](Rank self) {
    const CudaStream stream;
    std::unique_ptr<PlanExecutor> executor = make_device_plan_executor(
        plan, self, *transports[self.index()], plan_options(path, stream, nccl, meeting, self));
    std::vector<DeviceBuffer<float>> memory;
    for (const plan::Bucket& bucket : plan.buckets) {
      memory.emplace_back(static_cast<std::size_t>(bucket.elements));
    }
    for (std::uint32_t step = 0; step < 2; ++step) {
      auto values = gradients_of(plan, self, step, true);
      executor->begin_step(step);
      for (std::size_t b = 0; b < values.size(); ++b) {
        copy_to_device<float>(values[b], memory[b], stream.get());
        executor->launch(BucketId(b), memory[b].span());
      }
      executor->wait(BucketId(1));
      executor->wait_all();
      for (std::size_t b = 0; b < values.size(); ++b) {
        copy_to_host(memory[b], std::span(values[b]), stream.get());
      }
      stream.synchronize();
      sums[self.index()] = std::move(values);
    }
    residuals[self.index()] = executor->residuals();
    executor->set_residuals({});
    for (const auto& [name, values] : executor->residuals()) {
      if (std::any_of(values.begin(), values.end(), [](float value) { return value != 0; })) {
        too_early[self.index()] = name;
      }
    }
    statistics[self.index()] = executor->statistics();
    executor.reset();
    transports[self.index()]->close(1_s);
  });
  const RankGroups alone{{Rank(0)}, {Rank(1)}, {Rank(2)}, {Rank(3)}};
  CHECK(sums == simulated(plan, path == DevicePath::kTransport ? alone : kPairs, 2));
  CHECK(too_early == std::vector<std::string>(4));
  for (std::size_t r = 0; r < 4; ++r) {
    // Each shard crosses once there and once back.
    CHECK(statistics[r].bytes_by_pair.contains({Rank(r), Rank((r + 2) % 4)}));
    CHECK(statistics[r].bytes_by_pair.size() == (path == DevicePath::kTransport ? 2 : 1));
    CHECK(statistics[r].messages > 0);
  }
  CHECK(nccl.open() == 0);
}

TEST_CASE("device plan executor: an abort ends the waits of a job's executor with its reason") {
  const DevicePath path = GENERATE(DevicePath::kNccl, DevicePath::kTransport);
  CAPTURE(to_string(path, true));
  const plan::Plan plan = plan_of(two_tiers({}), {4'096}, 1'024);
  test::FakeNccl nccl;
  Meeting meeting(4);
  const auto transports = make_in_process_transports(4);
  std::vector<std::string> errors(4);
  std::vector<std::ptrdiff_t> aborted(4);
  on_every_rank(4, [&](Rank self) {
    const CudaStream stream;
    std::unique_ptr<PlanExecutor> executor = make_device_plan_executor(
        plan, self, *transports[self.index()], plan_options(path, stream, nccl, meeting, self));
    const DeviceBuffer<float> memory(4'096);
    executor->begin_step(0);
    try {
      if (self == Rank(3)) {
        nccl.kill(3);
        executor->abort("rank 3 was lost");
        executor->wait_all();
      } else {
        executor->abort("rank 3 was lost");
        executor->abort("something else");
        executor->launch(BucketId(0), memory.span());
        executor->wait_all();
      }
    } catch (const PeerLostError& error) {
      errors[self.index()] = error.what();
    }
    // Kernels that hang must have quit before anything waits for a stream.
    const std::vector<std::string> calls = nccl.calls();
    aborted[self.index()] = std::count(calls.begin(), calls.end(), "comm_abort");
    executor->residuals();
    executor.reset();
    transports[self.index()]->close(1_s);
  });
  CHECK(errors == std::vector<std::string>(4, "rank 3 was lost"));
  CHECK(aborted == std::vector<std::ptrdiff_t>(4, path == DevicePath::kNccl ? 3 : 0));
  CHECK(nccl.open() == 0);
}

/// A transport that does as another, but for what a test changes.
class Bypass : public Transport {
 public:
  explicit Bypass(Transport& behind) : behind_(behind) {}

  std::string_view name() const override { return behind_.name(); }
  std::vector<std::byte> address() const override { return behind_.address(); }
  void set_key(std::uint64_t key) override { behind_.set_key(key); }
  void connect(Rank self, std::span<const std::vector<std::byte>> addresses) override {
    behind_.connect(self, addresses);
  }
  void set_handlers(ReceiveHandler on_receive, PeerErrorHandler on_peer_error) override {
    behind_.set_handlers(std::move(on_receive), std::move(on_peer_error));
  }
  void send(Rank destination, const SliceHeader& header, std::span<const std::byte> payload,
            SendCompletion done) override {
    behind_.send(destination, header, payload, std::move(done));
  }
  std::size_t progress() override { return behind_.progress(); }
  bool arm() override { return behind_.arm(); }
  void sleep(Duration at_most) override { behind_.sleep(at_most); }
  void wake() override { behind_.wake(); }
  void close(Duration deadline) noexcept override { behind_.close(deadline); }

 private:
  Transport& behind_;
};

/// Counts how often it is asked to progress.
class Counting final : public Bypass {
 public:
  using Bypass::Bypass;
  std::size_t progress() override {
    ++calls;
    return Bypass::progress();
  }
  std::atomic<int> calls = 0;
};

TEST_CASE("device plan executor: a transport's connections are made whatever carries gradients") {
  const DevicePath path = GENERATE(DevicePath::kNccl, DevicePath::kTransport, DevicePath::kHybrid);
  CAPTURE(to_string(path, true));
  const plan::Plan plan = plan_of(two_tiers({}), {4'096}, 1'024);
  test::FakeNccl nccl;
  Meeting meeting(4);
  const auto transports = make_in_process_transports(4);
  std::vector<char> has_progressed(4);
  on_every_rank(4, [&](Rank self) {
    const CudaStream stream;
    Counting transport(*transports[self.index()]);
    const std::unique_ptr<PlanExecutor> executor = make_device_plan_executor(
        plan, self, transport, plan_options(path, stream, nccl, meeting, self));
    for (int turn = 0; turn < 1'000 && transport.calls == 0; ++turn) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    has_progressed[self.index()] = transport.calls > 0 ? 1 : 0;
    meeting.exchange(self, "");
  });
  CHECK(has_progressed == std::vector<char>(4, 1));
}

/// The first index of what arrives is one that no encoder makes.
class Damaging final : public Bypass {
 public:
  using Bypass::Bypass;
  void set_handlers(ReceiveHandler on_receive, PeerErrorHandler on_peer_error) override {
    Bypass::set_handlers(
        [on_receive](Rank source, const SliceHeader& header, std::span<const std::byte> payload) {
          std::vector<std::byte> damaged(payload.begin(), payload.end());
          std::fill_n(damaged.begin(), sizeof(std::uint32_t), std::byte{0xff});
          on_receive(source, header, damaged);
        },
        std::move(on_peer_error));
  }
};

TEST_CASE("device plan executor: a damaged message is an error on the rank that gets it") {
  const plan::Plan plan = plan_of(ring(2, plan::parse_codec("topk:density=0.1")), {4'096}, 4'096);
  test::FakeNccl nccl;
  Meeting meeting(2);
  const auto transports = make_in_process_transports(2);
  std::vector<std::string> errors(2);
  on_every_rank(2, [&](Rank self) {
    const CudaStream stream;
    Transport& whole = *transports[self.index()];
    Damaging damaging(whole);
    DevicePlanOptions options = plan_options(DevicePath::kTransport, stream, nccl, meeting, self);
    options.groups = {{Rank(0)}, {Rank(1)}};
    std::unique_ptr<PlanExecutor> executor = make_device_plan_executor(
        plan, self, self == Rank(1) ? static_cast<Transport&>(damaging) : whole, options);
    const DeviceBuffer<float> memory(4'096);
    copy_to_device<float>(gradients_of(plan, self, 0, true)[0], memory, stream.get());
    executor->begin_step(0);
    executor->launch(BucketId(0), memory.span());
    try {
      executor->wait_all();
    } catch (const RuntimeFailure& error) {
      errors[self.index()] = error.what();
    }
    executor.reset();
    whole.close(1_s);
  });
  CHECK(errors[0] == "");
  CHECK_THAT(errors[1], Catch::Contains("codes arrived that no encoder makes"));
}

/// Sends end when the test says so.
class Late final : public Bypass {
 public:
  struct Sent {
    std::span<const std::byte> payload;
    SendCompletion done;
  };
  using Bypass::Bypass;
  void send(Rank /*destination*/, const SliceHeader& /*header*/, std::span<const std::byte> payload,
            SendCompletion done) override {
    const std::lock_guard lock(mutex_);
    sent_.push_back({payload, std::move(done)});
  }
  std::vector<Sent> take() {
    const std::lock_guard lock(mutex_);
    return std::exchange(sent_, {});
  }

 private:
  std::mutex mutex_;
  std::vector<Sent> sent_;
};

TEST_CASE("device plan executor: a send that ends after its executor still has its memory") {
  const plan::Plan plan = plan_of(ring(2), {4'096}, 1'024);
  const auto transports = make_in_process_transports(2);
  Late late(*transports[0]);
  const auto is_there = [](const Late::Sent& sent) {
    cudaPointerAttributes attributes = {};
    return cudaPointerGetAttributes(&attributes, sent.payload.data()) == cudaSuccess &&
           attributes.type != cudaMemoryTypeUnregistered;
  };
  std::vector<Late::Sent> sent;
  {
    test::FakeNccl nccl;
    Meeting meeting(1);
    const CudaStream stream;
    DevicePlanOptions options =
        plan_options(DevicePath::kTransport, stream, nccl, meeting, Rank(0));
    options.groups = {{Rank(0)}, {Rank(1)}};
    const auto executor = make_device_plan_executor(plan, Rank(0), late, options);
    const DeviceBuffer<float> memory(4'096);
    executor->begin_step(0);
    // The emulated stream is the thread that launches, and waits for what rank 1 never sends.
    std::jthread aborts([&] {
      while (sent.empty()) {
        sent = late.take();
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
      executor->abort("rank 1 was lost");
    });
    CHECK_THROWS_AS((executor->launch(BucketId(0), memory.span()), executor->wait_all()),
                    PeerLostError);
  }
  for (const Late::Sent& each : late.take()) {
    sent.push_back(each);
  }
  REQUIRE_FALSE(sent.empty());
  CHECK(std::all_of(sent.begin(), sent.end(), is_there));
  for (const Late::Sent& each : sent) {
    each.done();
  }
  for (Late::Sent& each : sent) {
    each.done = nullptr;
  }
  CHECK(std::none_of(sent.begin(), sent.end(), is_there));
}

/// Stands for a transport that takes memory of the device.
class Reaching final : public Bypass, public DeviceMessaging {
 public:
  using Bypass::Bypass;
  DeviceMessaging* device_messaging() override { return this; }
  void set_handlers(ReceiveHandler on_receive, PeerErrorHandler on_peer_error) override {
    Bypass::set_handlers(
        [this, on_receive](Rank source, const SliceHeader& header,
                           std::span<const std::byte> payload) {
          if (on_landing_) {
            if (const std::optional<Landing> landing = on_landing_(source, header)) {
              unknown += knows(landing->memory) ? 0 : 1;
              std::copy(payload.begin(), payload.end(), landing->memory.begin());
              ++landed;
              landing->done(true);
              return;
            }
          }
          on_receive(source, header, payload);
        },
        std::move(on_peer_error));
  }
  void learn(std::span<const std::byte> memory) override {
    const std::lock_guard lock(learning_);
    learnt_.push_back(memory);
  }
  void send_from_device(Rank destination, const SliceHeader& header,
                        std::span<const std::byte> payload, SendCompletion done) override {
    ++sent;
    unknown += knows(payload) ? 0 : 1;
    send(destination, header, payload, std::move(done));
  }
  void set_landing_handler(LandingHandler handler) override { on_landing_ = std::move(handler); }

  std::atomic<int> sent = 0;
  std::atomic<int> landed = 0;
  std::atomic<int> unknown = 0;  ///< memory that was used before it was learnt of

 private:
  bool knows(std::span<const std::byte> memory) {
    const std::lock_guard lock(learning_);
    return std::any_of(learnt_.begin(), learnt_.end(), [&](std::span<const std::byte> each) {
      return each.data() <= memory.data() &&
             memory.data() + memory.size() <= each.data() + each.size();
    });
  }

  LandingHandler on_landing_;
  std::mutex learning_;
  std::vector<std::span<const std::byte>> learnt_;
};

TEST_CASE("device plan executor: UCX itself puts messages where they shall lie") {
  setenv("EMULATED_UCX_WITH_CUDA", "1", 1);  // the host's memory stands for the device's
  const auto kinds = transport_kinds();
  const auto ucx = std::find_if(kinds.begin(), kinds.end(),
                                [](const TransportKind& kind) { return kind.name == "ucx"; });
  if (ucx == kinds.end() || ucx->unavailable) {
    RACKRAIL_SKIP(ucx == kinds.end() ? "no UCX" : *ucx->unavailable);
  }
  CHECK_FALSE(ucx->no_device_memory);
  auto transports = joined_transports("ucx", 2);
  unsetenv("EMULATED_UCX_WITH_CUDA");
  const std::vector<std::size_t> sizes{4, 1'000, 70'000, 5'000'000};
  std::vector<std::vector<std::byte>> memory;
  for (const std::size_t size : sizes) {
    memory.emplace_back(size);
  }
  std::size_t landed = 0;
  std::size_t received = 0;
  on_every_rank(2, [&](Rank self) {
    Transport& transport = *transports[self.index()];
    REQUIRE(transport.device_messaging() != nullptr);
    std::size_t sent = 0;
    std::vector<std::vector<std::byte>> payloads;
    if (self == Rank(1)) {
      transport.set_handlers([&](Rank, const SliceHeader&, auto) { ++received; }, {});
      transport.device_messaging()->set_landing_handler(
          [&](Rank source, const SliceHeader& header) -> std::optional<Landing> {
            if (source != Rank(0) || header.step == 1) {
              return std::nullopt;  // the receive handler gets it
            }
            return Landing{memory[header.slice], [&](bool has_arrived) { landed += has_arrived; }};
          });
    } else {
      for (std::size_t i = 0; i < 2 * sizes.size(); ++i) {
        const std::size_t which = i % sizes.size();
        const auto& payload =
            payloads.emplace_back(sizes[which], static_cast<std::byte>(which + 1));
        const SliceHeader header{.step = i < sizes.size() ? 0U : 1U,
                                 .slice = static_cast<std::uint32_t>(which),
                                 .bytes = static_cast<std::uint32_t>(payload.size())};
        // Staged senders and direct ones are the same to who receives.
        if (i % 3 == 0) {
          transport.send(Rank(1), header, payload, [&] { ++sent; });
        } else {
          transport.device_messaging()->send_from_device(Rank(1), header, payload, [&] { ++sent; });
        }
      }
    }
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    const auto is_done = [&] {
      return self == Rank(0) ? sent == 2 * sizes.size()
                             : landed == sizes.size() && received == sizes.size();
    };
    while (!is_done() && std::chrono::steady_clock::now() < end) {
      if (transport.progress() == 0) {
        transport.wait(1_ms);
      }
    }
    if (self == Rank(1)) {
      transport.device_messaging()->set_landing_handler({});
    }
    transport.set_handlers({}, {});
    transport.close(1_s);
  });
  CHECK(landed == sizes.size());
  CHECK(received == sizes.size());
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    CHECK(std::all_of(memory[i].begin(), memory[i].end(),
                      [&](std::byte byte) { return byte == static_cast<std::byte>(i + 1); }));
  }
}

TEST_CASE("device plan executor: messages from the device's memory and staged ones give one sum") {
  const std::string codec = GENERATE("none", "int8");
  const std::size_t direct_ranks = GENERATE(4U, 2U, 0U);
  const bool some_are_late = GENERATE(false, true);
  CAPTURE(codec, direct_ranks, some_are_late);
  const RankGroups alone{{Rank(0)}, {Rank(1)}, {Rank(2)}, {Rank(3)}};
  const plan::Plan plan = plan_of(two_tiers(plan::parse_codec(codec)), {4'096, 3'001, 1}, 1'024);
  test::FakeNccl nccl;
  Meeting meeting(4);
  const auto transports = make_in_process_transports(4);
  Gradients sums(4);
  std::vector<std::pair<int, int>> used(4);
  std::atomic<int> unknown = 0;
  on_every_rank(4, [&](Rank self) {
    Reaching reaching(*transports[self.index()]);
    const CudaStream stream;
    DevicePlanOptions options = plan_options(DevicePath::kTransport, stream, nccl, meeting, self);
    options.staging = self.index() < direct_ranks ? Staging::kNever : Staging::kAlways;
    auto executor = make_device_plan_executor(plan, self, reaching, options);
    std::vector<DeviceBuffer<float>> memory;
    for (const plan::Bucket& bucket : plan.buckets) {
      memory.emplace_back(static_cast<std::size_t>(bucket.elements));
    }
    for (std::uint32_t step = 0; step < 3; ++step) {
      auto values = gradients_of(plan, self, step, true);
      executor->begin_step(step);
      for (std::size_t b = 0; b < values.size(); ++b) {
        if (some_are_late && (self.index() + b) % 2 == 0) {
          std::this_thread::sleep_for(std::chrono::milliseconds(5));
        }
        copy_to_device<float>(values[b], memory[b], stream.get());
        executor->launch(BucketId(b), memory[b].span());
      }
      executor->wait_all();
      for (std::size_t b = 0; b < values.size(); ++b) {
        copy_to_host(memory[b], std::span(values[b]), stream.get());
      }
      stream.synchronize();
      sums[self.index()] = std::move(values);
    }
    executor.reset();
    used[self.index()] = {reaching.sent, reaching.landed};
    unknown += reaching.unknown;
    // At once: what it has sent counts, also where others have not begun what it is for.
    transports[self.index()]->close(1_s);
  });
  CHECK(sums == simulated(plan, alone, 3));
  CHECK(unknown == 0);
  for (std::size_t r = 0; r < 4; ++r) {
    CHECK((used[r].first > 0) == (r < direct_ranks));
    CHECK((used[r].second > 0) <= (r < direct_ranks));
  }
}

TEST_CASE("device plan executor: a transport that takes no memory of a GPU is not given any") {
  const plan::Plan plan = plan_of(ring(2), {4'096}, 1'024);
  const auto transports = make_in_process_transports(2);
  test::FakeNccl nccl;
  Meeting meeting(1);
  const CudaStream stream;
  DevicePlanOptions options = plan_options(DevicePath::kTransport, stream, nccl, meeting, Rank(0));
  options.groups = {{Rank(0)}, {Rank(1)}};
  options.staging = Staging::kNever;
  CHECK_THROWS_WITH(make_device_plan_executor(plan, Rank(0), *transports[0], options),
                    "gradients cannot stay in the memory of the GPU: transport in-process takes "
                    "none here");
}

TEST_CASE("device plan executor: a peer that is far too far ahead is an error, not memory") {
  const bool is_direct = GENERATE(false, true);
  CAPTURE(is_direct);
  const plan::Plan plan = plan_of(ring(2), {1'048'576}, 1'048'576);
  const auto transports = make_in_process_transports(2);
  Reaching reaching(*transports[0]);
  test::FakeNccl nccl;
  Meeting meeting(1);
  const CudaStream stream;
  DevicePlanOptions options = plan_options(DevicePath::kTransport, stream, nccl, meeting, Rank(0));
  options.groups = {{Rank(0)}, {Rank(1)}};
  options.staging = is_direct ? Staging::kNever : Staging::kAlways;
  const auto executor = make_device_plan_executor(plan, Rank(0), reaching, options);
  const plan::TransferGraph& graph = plan.schedules[0];
  const auto first = std::find_if(graph.transfers().begin(), graph.transfers().end(),
                                  [](const plan::Transfer& t) { return t.dst == Rank(0); });
  const auto transfer = static_cast<std::uint32_t>(first - graph.transfers().begin());
  std::vector<std::byte> payload(2'097'152);  // half of the bucket
  std::uint32_t turns = 0;
  // Twice what comes in a step: what a peer that follows the plan may be ahead. Then far more.
  for (std::uint32_t turn = 2; turn < 40; ++turn, ++turns) {
    transports[1]->send(Rank(0),
                        {.plan = 0,
                         .epoch = 0,
                         .step = turn,
                         .bucket = 0,
                         .transfer = transfer,
                         .slice = 0,
                         .bytes = static_cast<std::uint32_t>(payload.size())},
                        payload, [] {});
  }
  const DeviceBuffer<float> memory(1'048'576);
  executor->begin_step(0);
  CHECK_THROWS_WITH((executor->launch(BucketId(0), memory.span()), executor->wait_all()),
                    "rank 1 is too far ahead: 33554432 bytes wait for their buckets");
}

}  // namespace
}  // namespace rackrail::runtime::device_plan_executor_test
