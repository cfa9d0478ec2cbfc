#include "runtime/executor.hpp"

#include <malloc.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <cmath>
#include <cstring>
#include <optional>
#include <random>
#include <thread>

#include "base/error.hpp"
#include "plan/verifier.hpp"
#include "runtime/missed_peer.hpp"
#include "tests/support/rank_threads.hpp"
#include "tests/support/skip.hpp"

namespace rackrail::runtime::executor_test {
namespace {

using Buffers = std::vector<std::vector<std::vector<float>>>;  // by rank and bucket

// Whole numbers that differ by rank, step, bucket and place: their sums are exact.
float contribution(std::size_t rank, std::uint32_t step, std::size_t bucket, std::size_t i) {
  return static_cast<float>((rank + 1) * (i % 31 + 1) + 7 * step + 3 * bucket);
}

void fill(Buffers& buffers, const plan::Plan& plan, Rank rank, std::uint32_t step) {
  for (std::size_t b = 0; b < plan.buckets.size(); ++b) {
    auto& values = buffers[rank.index()][b];
    values.resize(static_cast<std::size_t>(plan.buckets[b].elements));
    for (std::size_t i = 0; i < values.size(); ++i) {
      values[i] = contribution(rank.index(), step, b, i);
    }
  }
}

// The number of elements of this rank that are not the sum.
std::size_t wrong(const Buffers& buffers, const plan::Plan& plan, Rank rank, std::uint32_t step) {
  std::size_t count = 0;
  for (std::size_t b = 0; b < plan.buckets.size(); ++b) {
    const auto& values = buffers[rank.index()][b];
    for (std::size_t i = 0; i < values.size(); ++i) {
      float sum = 0;
      for (std::size_t r = 0; r < plan.rank_count(); ++r) {
        sum += contribution(r, step, b, i);
      }
      count += values[i] == sum ? 0 : 1;
    }
  }
  return count;
}

Buffers buffers_for(const plan::Plan& plan) {
  return Buffers(plan.rank_count(), std::vector<std::vector<float>>(plan.buckets.size()));
}

std::vector<std::vector<float>> normal_inputs(std::size_t ranks, std::size_t elements,
                                              unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<std::vector<float>> inputs(ranks, std::vector<float>(elements));
  for (auto& input : inputs) {
    std::generate(input.begin(), input.end(), [&] { return normal(random); });
  }
  return inputs;
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

TEST_CASE("executor: sums are exact over steps, buckets, launch orders and delays") {
  const std::size_t ranks = GENERATE(2U, 4U);
  const plan::TransferGraph graph = GENERATE_COPY(ring(ranks), star(ranks), one_shot(ranks));
  const unsigned seed = 2024;
  CAPTURE(ranks, graph.name(), seed);
  const plan::Plan plan = plan_of(graph, {1, 10'007, 3'000, 4'096}, 1024);
  Ranks job(plan);
  Buffers buffers = buffers_for(plan);
  std::vector<std::size_t> errors(ranks, 0);
  on_every_rank(ranks, [&](Rank rank) {
    std::mt19937 random(seed + rank.value());
    for (std::uint32_t step = 5; step < 13; ++step) {
      fill(buffers, plan, rank, step);
      std::vector<std::uint32_t> order{0, 1, 2, 3};
      std::shuffle(order.begin(), order.end(), random);
      job[rank].begin_step(step);
      for (const std::uint32_t bucket : order) {
        std::this_thread::sleep_for(std::chrono::microseconds(random() % 2'000));
        job[rank].launch(BucketId(bucket), buffers[rank.index()][bucket]);
      }
      job[rank].wait(BucketId(order.back()));
      job[rank].wait_all();
      errors[rank.index()] += wrong(buffers, plan, rank, step);
    }
  });
  CHECK(errors == std::vector<std::size_t>(ranks, 0));
}

TEST_CASE("executor: a group that switches could do moves one by one, and sums are exact") {
  constexpr std::uint32_t kRanks = 4;
  // Rule 7 needs routes; the executor goes its own ways.
  plan::TransferGraph graph("grouped star", plan::Collective::kAllReduce, kRanks, {1, 1});
  const RouteId route = graph.add_route({LinkId(0)});
  for (std::uint32_t chunk = 0; chunk < 2; ++chunk) {
    std::vector<TransferId> sums;
    const auto others = [&](const auto& add) {
      std::vector<TransferId> ids;
      for (std::uint32_t r = 0; r < kRanks; ++r) {
        if (r != chunk) ids.push_back(add(Rank(r)));
      }
      graph.add_group(ids.front(), kRanks - 1);
      return ids;
    };
    sums = others([&](Rank r) {
      return graph.add_transfer({.src = r,
                                 .dst = Rank(chunk),
                                 .chunk_begin = chunk,
                                 .op = plan::TransferOp::kReduce,
                                 .route = route},
                                {});
    });
    others([&](Rank r) {
      return graph.add_transfer(
          {.src = Rank(chunk), .dst = r, .chunk_begin = chunk, .route = route}, sums);
    });
  }
  REQUIRE(plan::verify(graph, nullptr).ok());
  const plan::Plan plan = plan_of(std::move(graph), {10'007, 3}, 1024);
  Ranks job(plan);
  Buffers buffers = buffers_for(plan);
  std::vector<std::size_t> errors(kRanks, 0);
  on_every_rank(kRanks, [&](Rank rank) {
    for (std::uint32_t step = 0; step < 3; ++step) {
      fill(buffers, plan, rank, step);
      job[rank].begin_step(step);
      job[rank].launch(BucketId(0), buffers[rank.index()][0]);
      job[rank].launch(BucketId(1), buffers[rank.index()][1]);
      job[rank].wait_all();
      errors[rank.index()] += wrong(buffers, plan, rank, step);
    }
  });
  CHECK_THAT(job[Rank(0)].notes().back(), Catch::Contains("in-network"));
  CHECK(errors == std::vector<std::size_t>(kRanks, 0));
}

TEST_CASE("executor: statistics count what the graph sends") {
  const plan::Plan plan = plan_of(ring(4), {4'000}, 1024);
  Ranks job(plan);
  Buffers buffers = buffers_for(plan);
  on_every_rank(4, [&](Rank rank) {
    fill(buffers, plan, rank, 0);
    job[rank].begin_step(0);
    job[rank].launch(BucketId(0), buffers[rank.index()][0]);
    job[rank].wait_all();
  });
  for (std::size_t r = 0; r < 4; ++r) {
    const ExecutorStatistics statistics = job[Rank(r)].statistics();
    CHECK(statistics.sent == Bytes(6 * 4'000));  // six chunks of 1,000 floats
    CHECK(statistics.messages == 6);
    CHECK(statistics.bytes_by_pair.size() == 1);
    CHECK(statistics.bytes_by_pair.at({Rank(r), Rank((r + 1) % 4)}) == Bytes(6 * 4'000));
    CHECK(statistics.arrived.size() == 1);
    CHECK(statistics.arrived.at(Rank((r + 3) % 4)).bytes == Bytes(6 * 4'000));
    CHECK(statistics.arrived.at(Rank((r + 3) % 4)).busy >= Duration());
  }
}

TEST_CASE("executor: additions are applied in the order of ids, whoever comes first") {
  // (big + small) − big depends on the order, so bits tell it.
  const std::size_t ranks = 4;
  const plan::Plan plan = plan_of(GENERATE_COPY(star(ranks), one_shot(ranks)), {2'500}, 1024);
  const auto inputs = normal_inputs(ranks, 2'500, 7);
  std::vector<float> expected = inputs[0];
  for (std::size_t r = 1; r < ranks; ++r) {
    for (std::size_t i = 0; i < expected.size(); ++i) {
      expected[i] += inputs[r][i] * std::pow(10.0F, static_cast<float>(r));
    }
  }
  for (std::size_t late = 0; late < ranks; ++late) {
    Ranks job(plan);
    auto data = inputs;
    on_every_rank(ranks, [&](Rank rank) {
      auto& mine = data[rank.index()];
      for (float& value : mine) {
        value *= rank == Rank(0) ? 1.0F : std::pow(10.0F, static_cast<float>(rank.value()));
      }
      if (rank.index() == late) {
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
      }
      job[rank].begin_step(0);
      job[rank].launch(BucketId(0), mine);
      job[rank].wait_all();
    });
    for (std::size_t r = 0; r < ranks; ++r) {
      CAPTURE(late, r);
      CHECK(same_bits(data[r], expected));
    }
  }
}

TEST_CASE("executor: slices that come before the launch are kept") {
  const plan::Plan plan = plan_of(ring(2), {20'000}, 1024);
  Ranks job(plan);
  Buffers buffers = buffers_for(plan);
  std::vector<std::size_t> errors(2, 0);
  on_every_rank(2, [&](Rank rank) {
    for (std::uint32_t step = 0; step < 3; ++step) {
      fill(buffers, plan, rank, step);
      job[rank].begin_step(step);
      std::this_thread::sleep_for(std::chrono::milliseconds(rank == Rank(0) ? 30 : 0));
      job[rank].launch(BucketId(0), buffers[rank.index()][0]);
      job[rank].wait_all();
      errors[rank.index()] += wrong(buffers, plan, rank, step);
    }
  });
  CHECK(errors == std::vector<std::size_t>(2, 0));
  CHECK(job[Rank(0)].statistics().peak_buffered_bytes > 1024);
}

// Bytes of the heap that are in use, those of large blocks included; 0 under a sanitizer.
std::size_t heap_in_use() {
  const struct mallinfo2 info = mallinfo2();
  return info.uordblks + info.hblkhd;
}

// The most that is in use while it lives.
class HeapWatch {
 public:
  HeapWatch()
      : thread_([this](const std::stop_token& over) {
          while (!over.stop_requested()) {
            most_ = std::max(most_.load(), heap_in_use());
            std::this_thread::sleep_for(std::chrono::microseconds(200));
          }
        }) {}
  std::size_t most() const { return most_; }

 private:
  std::atomic<std::size_t> most_ = 0;
  std::jthread thread_;
};

TEST_CASE("executor: memory is bounded by what a step sends, whoever is late") {
  if (heap_in_use() == 0) {
    RACKRAIL_SKIP("the sanitizer's allocator does not say what is in use");
  }
  const std::string codec_name = GENERATE("none", "int8");
  const bool is_ring = GENERATE(true, false);
  CAPTURE(codec_name, is_ring);
  const plan::Codec codec = plan::parse_codec(codec_name);
  constexpr std::size_t kRanks = 4;
  constexpr std::int64_t kBucket = 1 << 18;
  const plan::Plan plan = plan_of(is_ring ? ring(kRanks, codec) : star(kRanks, codec),
                                  std::vector<std::int64_t>(4, kBucket), 4096);
  const std::size_t gradient = 4 * 4 * kBucket;
  // What may come before a late rank wants it is at most all that is sent in a step: 2 · (n − 1)
  // gradients. Beside it each rank has residuals, where they are.
  const std::size_t limit = 2 * (kRanks - 1) * gradient +
                            (codec.has_error_feedback() ? kRanks * gradient : 0) + (2 << 20);
  Buffers buffers = buffers_for(plan);
  on_every_rank(kRanks, [&](Rank rank) { fill(buffers, plan, rank, 0); });
  const std::size_t before = heap_in_use();
  std::size_t after_four = 0;
  std::size_t at_end = 0;
  Ranks job(plan);
  const HeapWatch watch;
  for (std::uint32_t step = 0; step < 12; ++step) {
    on_every_rank(kRanks, [&](Rank rank) {
      job[rank].begin_step(step);
      if (rank.index() == step % kRanks) {
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
      }
      for (std::uint32_t b = 0; b < 4; ++b) {
        job[rank].launch(BucketId(b), buffers[rank.index()][b]);
      }
      job[rank].wait_all();
    });
    (step < 4 ? after_four : at_end) = heap_in_use();
  }
  CAPTURE(before, limit, after_four, at_end, watch.most(), gradient);
  CHECK(watch.most() - before < limit);
  CHECK(at_end < after_four + gradient / 2);  // nothing of a step stays
  std::size_t early = 0;
  for (std::uint32_t r = 0; r < kRanks; ++r) {
    early = std::max(early, job[Rank(r)].statistics().peak_buffered_bytes);
  }
  CHECK(early > 0);
  CHECK(early <= (kRanks - 1) * gradient);
}

TEST_CASE("executor: lossy codecs leave the same bits on all ranks, near the sum") {
  const plan::Codec codec = plan::parse_codec(
      GENERATE("fp16", "bf16", "int8", "int8:block=64", "fp8", "fp8e5m2", "topk", "randomk"));
  const bool is_ring = GENERATE(true, false);
  const std::size_t ranks = 4;
  const std::size_t elements = 9'001;
  const plan::Plan plan = plan_of(is_ring ? ring(ranks, codec) : star(ranks, codec),
                                  {static_cast<std::int64_t>(elements)}, 1024);
  CAPTURE(plan::to_string(codec), is_ring);
  Ranks job(plan);
  for (std::uint32_t step = 0; step < 3; ++step) {
    const auto inputs = normal_inputs(ranks, elements, step);
    auto data = inputs;
    on_every_rank(ranks, [&](Rank rank) {
      job[rank].begin_step(step);
      job[rank].launch(BucketId(0), data[rank.index()]);
      job[rank].wait_all();
    });
    for (std::size_t r = 1; r < ranks; ++r) {
      CAPTURE(step, r);
      CHECK(same_bits(data[r], data[0]));
    }
    double error = 0;
    double norm = 0;
    for (std::size_t i = 0; i < elements; ++i) {
      double sum = 0;
      for (const auto& input : inputs) {
        sum += input[i];
      }
      error += (data[0][i] - sum) * (data[0][i] - sum);
      norm += sum * sum;
    }
    // Those that drop elements move errors between steps.
    if (plan::relative_error(codec) < 0.5) {
      // At most one encoding per hop on the way to the sum and one of the sum, plus what error
      // feedback carries over from the step before: twice as many, independent of each other.
      const double hops = 2.0 * static_cast<double>(ranks);
      CHECK(std::sqrt(error / norm) < plan::relative_error(codec) * std::sqrt(hops) * 1.3);
    }
  }
  CHECK(job[Rank(1)].residuals().empty() == !codec.has_error_feedback());
}

TEST_CASE(
    "executor: while compression warms up, sums are exact and four bytes are sent an element") {
  const plan::Codec codec = plan::parse_codec(GENERATE("fp16", "int8", "topk"));
  const bool is_ring = GENERATE(true, false);
  CAPTURE(plan::to_string(codec), is_ring);
  constexpr std::size_t kRanks = 4;
  plan::Plan plan =
      plan_of(is_ring ? ring(kRanks, codec) : star(kRanks, codec), {9'000, 100}, 1024);
  const auto sent_in_steps = [](const plan::Plan& executed, std::uint32_t steps,
                                std::vector<std::size_t>& errors, Residuals& residuals) {
    Ranks job(executed);
    Buffers buffers = buffers_for(executed);
    on_every_rank(kRanks, [&](Rank rank) {
      for (std::uint32_t step = 0; step < steps; ++step) {
        fill(buffers, executed, rank, step);
        job[rank].begin_step(step);
        for (std::uint32_t bucket = 0; bucket < 2; ++bucket) {
          job[rank].launch(BucketId(bucket), buffers[rank.index()][bucket]);
        }
        job[rank].wait_all();
        errors[rank.index()] += wrong(buffers, executed, rank, step);
      }
    });
    residuals = job[Rank(1)].residuals();
    return job[Rank(1)].statistics().sent;
  };
  std::vector<std::size_t> errors(kRanks, 0);
  Residuals residuals;
  const Bytes plain = sent_in_steps(plan::without_codecs(plan), 2, errors, residuals);
  plan.compression_warmup_steps = 2;
  CHECK(sent_in_steps(plan, 2, errors, residuals) == plain);
  CHECK(errors == std::vector<std::size_t>(kRanks, 0));
  CHECK(residuals.empty());
  // The third step has its codec.
  const Bytes all = sent_in_steps(plan, 3, errors, residuals);
  CHECK(all > plain);
  CHECK((all - plain) * 10 < plain * 3);
  CHECK(residuals.empty() == !codec.has_error_feedback());
}

TEST_CASE("executor: residuals come back where they were set") {
  const plan::Plan plan = plan_of(ring(2, plan::parse_codec("int8")), {3'000}, 1024);
  const auto inputs = normal_inputs(2, 3'000, 3);
  const auto step = [&](Ranks& job, std::uint32_t number) {
    auto data = inputs;
    on_every_rank(2, [&](Rank rank) {
      job[rank].begin_step(number);
      job[rank].launch(BucketId(0), data[rank.index()]);
      job[rank].wait_all();
    });
    return data[0];
  };
  Ranks whole(plan);
  step(whole, 0);
  const std::array<Residuals, 2> saved{whole[Rank(0)].residuals(), whole[Rank(1)].residuals()};
  const std::vector<float> expected = step(whole, 1);

  Ranks resumed(plan);
  for (std::size_t r = 0; r < 2; ++r) {
    resumed[Rank(r)].set_residuals(saved[r]);
  }
  CHECK(same_bits(step(resumed, 1), expected));
  Ranks forgetful(plan);
  CHECK_FALSE(same_bits(step(forgetful, 1), expected));
}

TEST_CASE("executor: abort while slices are in flight") {
  const plan::Plan plan = plan_of(ring(4), {300'000}, 4096);
  for (int round = 0; round < 10; ++round) {
    Ranks job(plan);
    std::vector<int> thrown(4, 0);
    std::vector<int> aborted(4, 0);
    on_every_rank(4, [&](Rank rank) {
      job[rank].begin_step(0);
      {
        std::vector<float> data(300'000, 1.0F);  // freed as soon as wait has thrown
        if (rank != Rank(3)) {
          job[rank].launch(BucketId(0), data);
        }
        std::this_thread::sleep_for(std::chrono::microseconds(200 * round));
        job[rank].abort("the coordinator said so");
        job[rank].abort("too late");
        try {
          job[rank].wait_all();
        } catch (const PeerLostError& error) {
          thrown[rank.index()] += std::string(error.what()) == "the coordinator said so" ? 1 : 0;
        }
      }
      aborted[rank.index()] = job[rank].aborted() ? 1 : 0;
      std::vector<float> more(300'000, 1.0F);
      job[rank].begin_step(1);
      job[rank].launch(BucketId(0), more);
      try {
        job[rank].wait(BucketId(0));
      } catch (const PeerLostError&) {
        ++thrown[rank.index()];
      }
    });
    CHECK(aborted == std::vector<int>(4, 1));
    CHECK(thrown == std::vector<int>(4, 2));
  }
}

TEST_CASE("executor: a peer that leaves when it is done is missed only when it is needed") {
  const std::string transport = GENERATE("in-process", "ucx");
  const auto kinds = transport_kinds();
  if (std::none_of(kinds.begin(), kinds.end(), [&](const TransportKind& kind) {
        return kind.name == transport && !kind.unavailable;
      })) {
    return;
  }
  CAPTURE(transport);
  const int rounds = transport == "ucx" ? 3 : 40;
  for (int round = 0; round < rounds; ++round) {
    const plan::Plan plan = plan_of(ring(3), {5'000}, 1024);
    auto transports = joined_transports(transport, 3);
    on_every_rank(3, [&](Rank rank) {
      auto executor =
          std::make_unique<Executor>(plan, rank, *transports[rank.index()], ExecutorOptions{});
      std::vector<float> data(5'000, 1.0F);
      for (std::uint32_t step = 0; step < 2; ++step) {
        std::fill(data.begin(), data.end(), 1.0F);
        executor->begin_step(step);
        executor->launch(BucketId(0), data);
        executor->wait_all();
        if (!std::all_of(data.begin(), data.end(), [](float x) { return x == 3.0F; })) {
          throw RuntimeFailure("wrong sum");
        }
      }
      if (rank == Rank(2)) {  // goes on alone
        executor->begin_step(2);
        executor->launch(BucketId(0), data);
        try {
          executor->wait_all();
          throw RuntimeFailure("a step without peers");
        } catch (const PeerLostError&) {
        }
      }
      executor.reset();
      transports[rank.index()]->close(1_s);
    });
  }
}

TEST_CASE("executor: a peer that falls silent in the middle of a step is missed by name") {
  const plan::Plan plan = plan_of(ring(3), {10'000}, 1024);
  ExecutorOptions options;
  options.pulse = PulseOptions{.period = 50_ms, .patience = 2_s};
  Ranks job(plan, "in-process", options);
  Buffers buffers = buffers_for(plan);
  std::vector<std::size_t> errors(3, 0);
  on_every_rank(3, [&](Rank rank) {
    fill(buffers, plan, rank, 0);
    job[rank].begin_step(0);
    job[rank].launch(BucketId(0), buffers[rank.index()][0]);
    job[rank].wait_all();
    errors[rank.index()] = wrong(buffers, plan, rank, 0);
    std::this_thread::sleep_for(std::chrono::milliseconds(500));  // everybody is heard
  });
  CHECK(errors == std::vector<std::size_t>(3, 0));
  // Its transport stays open, as the socket of a host whose cable is cut does.
  job.executors[2].reset();
  std::vector<std::optional<MissedPeer>> missed(3);
  on_every_rank(3, [&](Rank rank) {
    if (rank == Rank(2)) {
      return;
    }
    fill(buffers, plan, rank, 1);
    job[rank].begin_step(1);
    job[rank].launch(BucketId(0), buffers[rank.index()][0]);
    try {
      job[rank].wait_all();
    } catch (const MissedPeerError& error) {
      missed[rank.index()] = error.peer();
    }
  });
  for (const std::size_t rank : {0U, 1U}) {
    REQUIRE(missed[rank].has_value());
    CHECK(missed[rank]->rank == Rank(2));
    CHECK(missed[rank]->silence.value() >= 2_s);
  }
}

TEST_CASE("executor: steps and launches that make no sense are refused") {
  const plan::Plan plan = plan_of(ring(2), {100, 100}, 1024);
  std::vector<float> data(100);  // outlives the executor, which still sends it at the end
  Ranks job(plan);
  Executor& executor = job[Rank(0)];
  CHECK_THROWS_AS(executor.launch(BucketId(0), data), RuntimeFailure);
  executor.begin_step(41);
  CHECK_THROWS_AS(executor.begin_step(41), RuntimeFailure);
  CHECK_THROWS_AS(executor.begin_step(43), RuntimeFailure);
  CHECK_THROWS_AS(executor.launch(BucketId(2), data), RuntimeFailure);
  std::vector<float> small(99);
  CHECK_THROWS_AS(executor.launch(BucketId(0), small), RuntimeFailure);
  executor.launch(BucketId(0), data);
  CHECK_THROWS_AS(executor.launch(BucketId(0), data), RuntimeFailure);
  CHECK_THROWS_AS(executor.begin_step(42), RuntimeFailure);  // bucket 0 is not done
}

TEST_CASE("executor: one rank is done at once") {
  const plan::Plan plan =
      plan_of(plan::TransferGraph("alone", plan::Collective::kAllReduce, 1, {1}), {100}, 1024);
  Ranks job(plan);
  std::vector<float> data(100, 5.0F);
  job[Rank(0)].begin_step(0);
  job[Rank(0)].launch(BucketId(0), data);
  job[Rank(0)].wait(BucketId(0));
  CHECK(data == std::vector<float>(100, 5.0F));
}

}  // namespace
}  // namespace rackrail::runtime::executor_test
