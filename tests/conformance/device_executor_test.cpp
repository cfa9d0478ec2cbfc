// The executor for gradients on a device, on an emulated GPU and with a stand-in for NCCL, against
// the executor's bits on processors. Threads are ranks.
#include "runtime/nccl/device_executor.hpp"

#include <catch2/catch.hpp>

#include "runtime/nccl/host_messages.hpp"
#include "tests/conformance/device_jobs.hpp"
#include "tests/support/emulated_gpu/fibers.hpp"
#include "tests/support/fake_nccl.hpp"

namespace rackrail::runtime::device_executor_test {
namespace {

/// Buckets of one rank on its device, summed step by step.
class DeviceRank {
 public:
  /// With a transport, messages go over that.
  DeviceRank(const plan::Plan& plan, const RankGroups& groups, const test::FakeNccl& nccl,
             const NcclId& id, Rank self, Transport* transport = nullptr)
      : plan_(plan),
        self_(self),
        communicators(DeviceCommunicators::make(
            NcclCommunicator::join(nccl.functions(), id, static_cast<int>(plan.rank_count()),
                                   static_cast<int>(self.value()), {.deadline = 20_s}),
            groups, self)),
        messages(make_messages(transport)),
        executor(plan, self, groups, communicators, *messages) {
    for (const plan::Bucket& bucket : plan.buckets) {
      memory_.emplace_back(static_cast<std::size_t>(bucket.elements));
    }
  }

  std::vector<std::vector<float>> sum(std::uint32_t step, bool whole_numbers) {
    std::vector<std::vector<float>> values = gradients_of(plan_, self_, step, whole_numbers);
    executor.begin_step(step);
    for (std::size_t b = 0; b < values.size(); ++b) {
      copy_to_device<float>(values[b], memory_[b], stream_.get());
      executor.launch(BucketId(b), memory_[b].span(), stream_.get());
    }
    for (std::size_t b = 0; b < values.size(); ++b) {
      executor.wait_on(BucketId(b), stream_.get());
      copy_to_host(memory_[b], std::span(values[b]), stream_.get());
    }
    has_waited = has_waited && emulated_gpu::has_seen_all(stream_.get());
    stream_.synchronize();
    return values;
  }

 private:
  std::unique_ptr<DeviceMessages> make_messages(Transport* transport) {
    if (transport == nullptr) {
      return std::make_unique<NcclMessages>(*communicators.world);
    }
    return std::make_unique<HostMessages>(
        *transport, HostMessages::Options{.plan = 7, .epoch = 1, .piece_bytes = 1'000});
  }

  const plan::Plan& plan_;
  Rank self_;
  CudaStream stream_;
  std::vector<DeviceBuffer<float>> memory_;

 public:
  DeviceCommunicators communicators;
  std::unique_ptr<DeviceMessages> messages;
  DeviceExecutor executor;
  bool has_waited = true;
};

struct Outcome {
  Gradients gradients;
  std::vector<char> is_orderly;
  std::vector<char> has_waited;
  std::vector<std::vector<std::string>> calls;
};

Outcome run(const plan::Plan& plan, const RankGroups& groups, test::FakeNccl& nccl,
            std::uint32_t steps, bool whole_numbers,
            std::span<const std::unique_ptr<Transport>> transports = {}) {
  nccl.on_enqueue([](NcclStream stream) { emulated_gpu::enqueue(stream, [] {}); });
  const NcclId id = NcclCommunicator::make_id(nccl.functions());
  const std::size_t ranks = plan.rank_count();
  Outcome outcome{Gradients(ranks), std::vector<char>(ranks), std::vector<char>(ranks),
                  std::vector<std::vector<std::string>>(ranks)};
  on_every_rank(ranks, [&](Rank self) {
    DeviceRank rank(plan, groups, nccl, id, self,
                    transports.empty() ? nullptr : transports[self.index()].get());
    for (std::uint32_t step = 0; step < steps; ++step) {
      outcome.gradients[self.index()] = rank.sum(step, whole_numbers);
    }
    rank.executor.check_health();
    outcome.has_waited[self.index()] = rank.has_waited ? 1 : 0;
    outcome.is_orderly[self.index()] =
        rank.communicators.close(20_s) && rank.executor.refused_codes(BucketId(0)) == 0 ? 1 : 0;
    outcome.calls[self.index()] = nccl.calls();
  });
  return outcome;
}

TEST_CASE("device executor: two tiers give the bits of the same programs on processors") {
  const std::string across =
      GENERATE("none", "fp16", "int8", "topk:density=0.1", "randomk:density=0.2");
  CAPTURE(across);
  const plan::Plan plan = plan_of(two_tiers(plan::parse_codec(across)), {4'096, 3'001, 1}, 1'024);
  test::FakeNccl nccl;
  const Outcome outcome = run(plan, kPairs, nccl, 3, true);
  CHECK(outcome.gradients == simulated(plan, kPairs, 3));
  CHECK(outcome.is_orderly == std::vector<char>(4, 1));
  CHECK(outcome.has_waited == std::vector<char>(4, 1));
  CHECK(nccl.open() == 0);
}

TEST_CASE("device executor: sums launch no kernel for the first time, and take no memory") {
  const std::string across =
      GENERATE("none", "fp16", "int8", "topk:density=0.1", "randomk:density=0.2");
  const bool is_staged = GENERATE(false, true);
  CAPTURE(across, is_staged);
  const plan::Plan plan = plan_of(two_tiers(plan::parse_codec(across)), {4'096, 3'001, 1}, 1'024);
  test::FakeNccl nccl;
  nccl.on_enqueue([](NcclStream stream) { emulated_gpu::enqueue(stream, [] {}); });
  const NcclId id = NcclCommunicator::make_id(nccl.functions());
  const auto transports = make_in_process_transports(4);
  struct Used {
    std::size_t kernels = 0;
    int memory_calls = 0;
    bool operator==(const Used&) const = default;
  };
  const auto used = [] { return Used{emulated_gpu::loaded_kernels(), emulated_gpu::memory_calls}; };
  std::vector<Used> before(4);
  std::vector<std::vector<Used>> after(4);
  on_every_rank(4, [&](Rank self) {
    emulated_gpu::forget_kernels();
    DeviceRank rank(plan, kPairs, nccl, id, self,
                    is_staged ? transports[self.index()].get() : nullptr);
    before[self.index()] = used();
    for (std::uint32_t step = 0; step < 3; ++step) {
      rank.sum(step, true);
      after[self.index()].push_back(used());
    }
    rank.communicators.close(20_s);
  });
  for (std::size_t r = 0; r < before.size(); ++r) {
    CHECK(before[r].memory_calls > 0);
    CHECK(after[r] == std::vector<Used>(3, before[r]));
  }
  CHECK(before[0].kernels > 0);  // floats that others send are added by one
}

TEST_CASE("device executor: by messages alone, with codecs on every hop") {
  const std::string codec = GENERATE("none", "fp16", "fp8");
  const bool is_ring = GENERATE(true, false);  // a star's root sums several payloads at once
  CAPTURE(codec, is_ring);
  const plan::Codec descriptor = plan::parse_codec(codec);
  const plan::Plan plan =
      plan_of(is_ring ? ring(3, descriptor) : star(3, descriptor), {5'000}, 1'024);
  const RankGroups singles{{Rank(0)}, {Rank(1)}, {Rank(2)}};
  test::FakeNccl nccl;
  const Outcome outcome = run(plan, singles, nccl, 2, true);
  CHECK(outcome.gradients == simulated(plan, singles, 2));
  CHECK(outcome.has_waited == std::vector<char>(3, 1));
  CHECK(std::count(outcome.calls[0].begin(), outcome.calls[0].end(), "comm_split") == 0);
}

TEST_CASE("device executor: between the groups over a transport, in pieces, with the same bits") {
  const std::string across = GENERATE("none", "int8");
  CAPTURE(across);
  const plan::Plan plan = plan_of(two_tiers(plan::parse_codec(across)), {4'096, 3'001, 1}, 1'024);
  test::FakeNccl nccl;
  const auto transports = make_in_process_transports(4);
  const Outcome outcome = run(plan, kPairs, nccl, 3, true, transports);
  CHECK(outcome.gradients == simulated(plan, kPairs, 3));
  CHECK(outcome.is_orderly == std::vector<char>(4, 1));
  CHECK(outcome.has_waited == std::vector<char>(4, 1));
  const auto is_message = [](const std::string& call) {
    return call.starts_with("send") || call.starts_with("recv");
  };
  CHECK(std::none_of(outcome.calls[0].begin(), outcome.calls[0].end(), is_message));
}

TEST_CASE("device executor: a rank lost on the transport lets streams go on, and is an error") {
  const plan::Plan plan = plan_of(ring(3), {4'096}, 1'024);
  const RankGroups singles{{Rank(0)}, {Rank(1)}, {Rank(2)}};
  test::FakeNccl nccl;
  const NcclId id = NcclCommunicator::make_id(nccl.functions());
  const auto transports = make_in_process_transports(3);
  std::vector<std::string> errors(3);
  on_every_rank(3, [&](Rank self) {
    {
      DeviceRank rank(plan, singles, nccl, id, self, transports[self.index()].get());
      rank.sum(0, true);
      if (self != Rank(1)) {
        try {
          rank.sum(1, true);
          rank.executor.check_health();
        } catch (const PeerLostError& error) {
          errors[self.index()] = error.what();
        }
      }
    }
    transports[self.index()]->close(1_s);
  });
  for (const std::size_t r : {0U, 2U}) {
    CHECK_THAT(errors[r], Catch::Contains("cannot be reached"));
  }
}

TEST_CASE("device executor: all ranks end with the same bits where the order of sums shows") {
  const plan::Plan plan = plan_of(two_tiers({}), {4'096}, 1'024);
  test::FakeNccl nccl;
  const Outcome outcome = run(plan, kPairs, nccl, 1, false);
  for (const auto& of_rank : outcome.gradients) {
    CHECK(of_rank == outcome.gradients[0]);
  }
}

TEST_CASE("device executor: NCCL is asked for whole shards inside, and one group per round") {
  const plan::Plan plan = plan_of(two_tiers({}), {4'096}, 1'024);
  test::FakeNccl nccl;
  const Outcome outcome = run(plan, kPairs, nccl, 1, true);
  const std::vector<std::string> after_joining(outcome.calls[1].begin() + 3,
                                               outcome.calls[1].end());
  CHECK(after_joining ==
        std::vector<std::string>{"group_start", "reduce_scatter 2048 float root 0", "group_end",  //
                                 "group_start", "recv 8192 byte from 3", "group_end",             //
                                 "group_start", "send 8192 byte to 3", "group_end",               //
                                 "group_start", "all_gather 2048 float root 0", "group_end",      //
                                 "comm_finalize", "comm_destroy", "comm_finalize", "comm_destroy",
                                 "comm_finalize", "comm_destroy"});
}

TEST_CASE("device executor: NCCL is asked for one all-reduce where a tier is one group") {
  const bool is_ring = GENERATE(true, false);
  CAPTURE(is_ring);
  const plan::Plan plan = plan_of(is_ring ? ring(4) : star(4), {4'096}, 1'024);
  const RankGroups one{{Rank(0), Rank(1), Rank(2), Rank(3)}};
  test::FakeNccl nccl;
  const Outcome outcome = run(plan, one, nccl, 2, true);
  CHECK(outcome.gradients == simulated(plan, one, 2));
  const std::vector<std::string> sum{"group_start", "all_reduce 4096 float root 0", "group_end"};
  std::vector<std::string> expected = sum;
  expected.insert(expected.end(), sum.begin(), sum.end());
  for (const std::vector<std::string>& calls : outcome.calls) {
    const std::vector<std::string> after_joining(calls.begin() + 3, calls.end() - 6);
    CHECK(after_joining == expected);
  }
}

TEST_CASE("device executor: a lost rank is an error on every other, and all is aborted at once") {
  const plan::Plan plan = plan_of(two_tiers({}), {4'096}, 1'024);
  test::FakeNccl nccl;
  const NcclId id = NcclCommunicator::make_id(nccl.functions());
  std::vector<std::string> errors(4);
  std::vector<std::vector<std::string>> ends(4);
  on_every_rank(4, [&](Rank self) {
    DeviceRank rank(plan, kPairs, nccl, id, self);
    rank.sum(0, true);
    if (self == Rank(2)) {
      nccl.kill(2);
    } else {
      try {
        rank.sum(1, true);
      } catch (const NcclError& error) {
        errors[self.index()] = error.what();
      }
    }
    rank.communicators.abort();
    const auto calls = nccl.calls();
    ends[self.index()].assign(calls.end() - 5, calls.end());
  });
  CHECK(nccl.open() == 0);
  for (const std::size_t r : {0U, 1U, 3U}) {
    CHECK_THAT(errors[r], Catch::Contains("NCCL: "));
  }
  CHECK(ends[0] == std::vector<std::string>{"group_start", "comm_abort", "comm_abort", "comm_abort",
                                            "group_end"});
}

TEST_CASE("device executor: what is launched wrongly is refused") {
  const plan::Plan plan = plan_of(ring(1), {1'024}, 1'024);
  const RankGroups groups{{Rank(0)}};
  test::FakeNccl nccl;
  DeviceRank rank(plan, groups, nccl, NcclCommunicator::make_id(nccl.functions()), Rank(0));
  const DeviceBuffer<float> memory(1'024);
  const CudaStream stream;
  CHECK_THROWS_WITH(rank.executor.launch(BucketId(0), memory.span(), stream.get()),
                    "bucket 0 was launched before the first step");
  rank.executor.begin_step(4);
  CHECK_THROWS_WITH(rank.executor.wait_on(BucketId(0), stream.get()), "bucket 0 was not launched");
  CHECK_THROWS_WITH(rank.executor.launch(BucketId(1), memory.span(), stream.get()),
                    "bucket 1 was launched that the plan lacks");
  CHECK_THROWS_WITH(rank.executor.launch(BucketId(0), memory.span().first(3), stream.get()),
                    "bucket 0 was launched with 3 floats, the plan says 1024");
  rank.executor.launch(BucketId(0), memory.span(), stream.get());
  CHECK_THROWS_WITH(rank.executor.launch(BucketId(0), memory.span(), stream.get()),
                    "bucket 0 was launched twice in step 4");
  CHECK_THROWS_WITH(rank.executor.begin_step(6), "step 6 was begun after step 4");
  rank.executor.begin_step(5);
}

}  // namespace
}  // namespace rackrail::runtime::device_executor_test
