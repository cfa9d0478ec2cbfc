// Ranks as threads that join a real coordinator and take up one plan after another.
#include "runtime/launch/session.hpp"

#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <random>
#include <thread>

#include "base/build_config.hpp"
#include "base/error.hpp"
#include "plan/format.hpp"
#include "runtime/coordinator/server.hpp"
#include "tests/support/rank_threads.hpp"
#include "tests/support/skip.hpp"

namespace rackrail::runtime::session_test {
namespace {

/// A transport that often takes its time to look what has arrived: an executor that ends then still
/// takes slices, if somebody sends them before it has ended.
class SluggishTransport final : public Transport {
 public:
  SluggishTransport(std::unique_ptr<Transport> transport, unsigned seed)
      : transport_(std::move(transport)), random_(seed) {}

  std::string_view name() const override { return transport_->name(); }
  std::vector<std::byte> address() const override { return transport_->address(); }
  void set_key(std::uint64_t key) override { transport_->set_key(key); }
  void connect(Rank self, std::span<const std::vector<std::byte>> addresses) override {
    transport_->connect(self, addresses);
  }
  void set_handlers(ReceiveHandler on_receive, PeerErrorHandler on_peer_error) override {
    transport_->set_handlers(std::move(on_receive), std::move(on_peer_error));
  }
  void send(Rank destination, const SliceHeader& header, std::span<const std::byte> payload,
            SendCompletion done) override {
    transport_->send(destination, header, payload, std::move(done));
  }
  std::size_t progress() override {
    if (random_() % 2 == 0) {
      std::this_thread::sleep_for(std::chrono::microseconds(random_() % 3000));
    }
    return transport_->progress();
  }
  void sleep(Duration /*at_most*/) override {}  // so that it nearly always looks
  void wake() override { transport_->wake(); }
  void close(Duration deadline) noexcept override { transport_->close(deadline); }

 private:
  std::unique_ptr<Transport> transport_;
  std::mt19937 random_;
};

/// A coordinator and what its ranks need to come.
class Job {
 public:
  explicit Job(std::size_t ranks, const std::string& transport = "in-process")
      : ranks_(ranks), server_(coordinator(ranks)), watchdog_([this] { watch(); }) {
    if (transport == "in-process") {
      transports_ = make_in_process_transports(ranks);
    } else {
      for (std::size_t r = 0; r < ranks; ++r) {
        transports_.push_back(make_transport(transport));
      }
    }
  }

  ~Job() {
    over_ = true;
    watchdog_.join();
  }
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  void slow_down(Rank rank, unsigned seed) {
    auto& transport = transports_[rank.index()];
    transport = std::make_unique<SluggishTransport>(std::move(transport), seed);
  }

  /// Joins and starts each rank with `first`, calls `body`, and ends in order if it returns.
  void run(const plan::Plan& first, const std::function<void(Rank, Session&)>& body) {
    on_every_rank(ranks_, [&](Rank rank) {
      Session session({.coordinator = server_.address(), .rank = rank, .world_size = ranks_},
                      std::move(transports_[rank.index()]));
      session.join();
      session.start(first);
      body(rank, session);
      session.finish("");
    });
  }

 private:
  static CoordinatorOptions coordinator(std::size_t ranks) {
    CoordinatorOptions options;
    options.membership.world_size = ranks;
    options.membership.version = build_config::kVersion;
    return options;
  }

  // A slice that is lost would be waited for without end.
  void watch() {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (!over_ && std::chrono::steady_clock::now() < end) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    if (!over_) {
      server_.stop("the test has waited for 60 s");
    }
  }

  std::size_t ranks_;
  CoordinatorServer server_;
  std::vector<std::unique_ptr<Transport>> transports_;
  std::atomic<bool> over_ = false;
  std::thread watchdog_;  // last: it uses what is above
};

/// Whole numbers, so that sums are exact.
float contribution(Rank rank, std::uint32_t step, std::size_t i) {
  return static_cast<float>((rank.value() + 1) * (i % 13 + 1) + 5 * step);
}

/// Reduces every bucket of the current plan once; returns how many elements are not the sum.
std::size_t wrong_after_step(Session& session, Rank rank, std::uint32_t step) {
  std::vector<std::vector<float>> data;
  for (const plan::Bucket& bucket : session.plan().buckets) {
    auto& values = data.emplace_back(static_cast<std::size_t>(bucket.elements));
    for (std::size_t i = 0; i < values.size(); ++i) {
      values[i] = contribution(rank, step, i);
    }
  }
  session.executor().begin_step(step);
  for (std::size_t b = 0; b < data.size(); ++b) {
    session.executor().launch(BucketId(b), data[b]);
  }
  session.executor().wait_all();
  std::size_t wrong = 0;
  for (const auto& values : data) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      float sum = 0;
      for (std::size_t r = 0; r < session.plan().rank_count(); ++r) {
        sum += contribution(Rank(r), step, i);
      }
      wrong += values[i] == sum ? 0 : 1;
    }
  }
  return wrong;
}

void require_transport(const std::string& name) {
  for (const TransportKind& kind : transport_kinds()) {
    if (kind.name == name && kind.unavailable) {
      RACKRAIL_SKIP(*kind.unavailable);
    }
  }
}

}  // namespace

TEST_CASE("a running job takes up one plan after another without losing a slice") {
  const std::string transport = GENERATE("in-process", "ucx");
  const std::size_t ranks = GENERATE(2, 3, 4);
  const unsigned seed = 4711 + static_cast<unsigned>(ranks);
  INFO("transport " << transport << ", " << ranks << " ranks, seed " << seed);
  require_transport(transport);
  constexpr int kSwitches = 25;
  std::mt19937 random(seed);
  std::vector<plan::Plan> plans;
  for (int i = 0; i <= kSwitches; ++i) {
    std::vector<std::int64_t> elements(1 + random() % 3);
    for (std::int64_t& count : elements) {
      count = 1 + static_cast<std::int64_t>(random() % 5000);
    }
    // Some follow a plan that is equal to them: only the epoch tells their slices apart.
    plans.push_back(i % 5 == 4 ? plans.back()
                               : plan_of(i % 2 == 0 ? ring(ranks) : star(ranks), elements, 1024));
  }
  std::vector<std::size_t> wrong(ranks, 0);
  Job job(ranks, transport);
  job.slow_down(Rank(seed % ranks), seed);
  job.run(plans[0], [&](Rank rank, Session& session) {
    std::mt19937 delays(seed + rank.value());
    const auto be_late = [&] {
      std::this_thread::sleep_for(std::chrono::microseconds(delays() % 2000));
    };
    std::uint32_t step = 0;
    wrong[rank.index()] += wrong_after_step(session, rank, step++);
    for (int i = 1; i <= kSwitches; ++i) {
      be_late();
      session.adopt(plans[static_cast<std::size_t>(i)]);
      be_late();
      for (int once_more = 0; once_more < 2; ++once_more) {
        wrong[rank.index()] += wrong_after_step(session, rank, step++);
      }
    }
  });
  CHECK(wrong == std::vector<std::size_t>(ranks, 0));
}

TEST_CASE("ranks that do not agree on the next plan all say so and keep the one they have") {
  constexpr std::size_t kRanks = 3;
  const plan::Plan first = plan_of(ring(kRanks), {100}, 1024);
  std::vector<std::string> said(kRanks);
  std::vector<std::size_t> wrong(kRanks, 1);
  std::vector<std::string> names(kRanks);
  Job(kRanks).run(first, [&](Rank rank, Session& session) {
    plan::Plan next = plan_of(star(kRanks), {100}, 1024);
    next.name = rank.value() == 2 ? "another" : "next";
    try {
      session.adopt(std::move(next));
    } catch (const PlanError& error) {
      said[rank.index()] = error.what();
    }
    wrong[rank.index()] = wrong_after_step(session, rank, 0);
    names[rank.index()] = session.plan().name;
  });
  for (const std::string& line : said) {
    CHECK_THAT(line, Catch::StartsWith("rank 2 adopts the plan "));
    CHECK_THAT(line, Catch::Contains(", rank 0 the plan "));
  }
  CHECK(names == std::vector<std::string>(kRanks, "test"));
  CHECK(wrong == std::vector<std::size_t>(kRanks, 0));
}

TEST_CASE("a plan of another number of ranks is refused") {
  constexpr std::size_t kRanks = 2;
  std::vector<std::string> said(kRanks);
  Job(kRanks).run(plan_of(ring(kRanks), {10}, 1024), [&](Rank rank, Session& session) {
    try {
      session.adopt(plan_of(ring(3), {10}, 1024));
    } catch (const PlanError& error) {
      said[rank.index()] = error.what();
    }
  });
  for (const std::string& line : said) {
    CHECK(line == "the job's plan: ranks: found 3, expected 2, the number of workers");
  }
}

TEST_CASE("residuals of places that the next plan has too are kept") {
  constexpr std::size_t kRanks = 2;
  const plan::Codec codec{.kind = plan::CodecKind::kInt8Block};
  const plan::Plan first = plan_of(ring(kRanks, codec), {512}, 1024);
  const plan::Plan next = plan_of(ring(kRanks, codec), {512, 300}, 1024);
  std::vector<Residuals> before(kRanks);
  std::vector<Residuals> after(kRanks);
  Job(kRanks).run(first, [&](Rank rank, Session& session) {
    std::vector<float> values(512);
    for (std::size_t i = 0; i < values.size(); ++i) {
      values[i] = 0.37F * static_cast<float>(i + 1);
    }
    session.executor().begin_step(0);
    session.executor().launch(BucketId(0), values);
    session.executor().wait_all();
    before[rank.index()] = session.executor().residuals();
    session.adopt(next);
    after[rank.index()] = session.executor().residuals();
  });
  CHECK_FALSE(before[0].empty());
  CHECK_FALSE(before[1].empty());
  CHECK(after == before);
}

TEST_CASE("a rank that is lost while others wait to take up a plan ends their wait") {
  constexpr std::size_t kRanks = 3;
  const plan::Plan first = plan_of(ring(kRanks), {100}, 1024);
  std::vector<std::string> said(kRanks);
  std::vector<std::string> after(kRanks);
  Job job(kRanks);
  const auto run = [&] {
    job.run(first, [&](Rank rank, Session& session) {
      if (rank.value() == 1) {
        throw RuntimeFailure("killed");  // its session ends without a word
      }
      try {
        session.adopt(plan_of(star(kRanks), {100}, 1024));
      } catch (const PeerLostError& error) {
        said[rank.index()] = error.what();
        // Giving up is a consequence then.
        session.abandon({"it has had enough", false});
        after[rank.index()] = session.reason_of_loss(error);
        throw;
      }
    });
  };
  CHECK_THROWS_AS(run(), PeerLostError);
  CHECK_THAT(said[0], Catch::StartsWith("rank 1 ") && Catch::Contains("was lost"));
  CHECK(said[2] == said[0]);
  CHECK(after == said);
}

TEST_CASE("a rank that gives up ends its own waiting and that of the others") {
  constexpr std::size_t kRanks = 2;
  std::vector<std::string> said(kRanks);
  std::string own;
  Job job(kRanks);
  const auto run = [&] {
    job.run(plan_of(ring(kRanks), {100}, 1024), [&](Rank rank, Session& session) {
      std::thread other;
      if (rank.value() == 0) {
        other = std::thread([&] {
          std::this_thread::sleep_for(std::chrono::milliseconds(30));
          session.abandon({"it has had enough", false});
        });
      }
      try {
        if (rank.value() == 0) {
          session.adopt(plan_of(star(kRanks), {100}, 1024));
        } else {
          (void)wrong_after_step(session, rank, 0);  // for which rank 0 is missing
        }
      } catch (const PeerLostError& error) {
        // The other's connections may close before the coordinator's word is here.
        said[rank.index()] = rank.value() == 0 ? error.what() : session.reason_of_loss(error);
      }
      if (other.joinable()) {
        other.join();
        // Its peers closed their connections because of it.
        own = session.reason_of_loss(PeerLostError("rank 1 closed its connections"));
      }
      throw PeerLostError("done");  // there is no orderly end
    });
  };
  CHECK_THROWS_AS(run(), PeerLostError);
  CHECK(said[0] == "this worker has left the job");
  CHECK(own == "it has had enough");
  CHECK_THAT(said[1], Catch::Contains("failed: it has had enough"));
}

}  // namespace rackrail::runtime::session_test
