// The C interface without the shared library, so that the sanitizers see both sides of it. Ranks
// are threads, each with a context of its own; what processes do is in tests/integration/capi.
#include <catch2/catch.hpp>
#include <cstring>

#include "tests/support/skip.hpp"
#include "tests/unit/runtime/capi/ranks.hpp"

namespace rackrail::test::c_interface_test {
namespace {

void sum_arrays(TestRank& rank) {
  for (const std::size_t size : {0U, 1U, 1'023U, 5'000U, 70'001U}) {
    std::vector<float> data = values_of(rank.rank, size, 1);
    const rackrail_buffer buffer = buffer_of(data.data(), data.size());
    rank.expect(rackrail_all_reduce(rank.context, &buffer, RACKRAIL_SUM), RACKRAIL_OK, "sum");
    rank.expect(data == sum_of(rank.ranks, size, 1), "array of " + std::to_string(size));
  }
}

void sum_buckets(TestRank& rank) {
  const std::vector<std::int64_t> elements{30'000, 700, 1};
  std::int32_t first = -1;
  rank.expect(rackrail_plan(rank.context, elements.data(), nullptr, 3, &first), RACKRAIL_OK,
              "plan");
  for (int step = 0; step < 3; ++step) {
    std::vector<std::vector<float>> data;
    for (std::int32_t b = 0; b < 3; ++b) {
      data.push_back(values_of(
          rank.rank, static_cast<std::size_t>(elements[static_cast<std::size_t>(b)]), step));
      const rackrail_buffer buffer = buffer_of(data.back().data(), data.back().size());
      rank.expect(rackrail_start(rank.context, first + b, &buffer, RACKRAIL_SUM), RACKRAIL_OK,
                  "start");
    }
    for (std::int32_t b = 2; b >= 0; --b) {
      rank.expect(rackrail_wait(rank.context, first + b), RACKRAIL_OK, "wait");
      const auto& sum = data[static_cast<std::size_t>(b)];
      rank.expect(sum == sum_of(rank.ranks, sum.size(), step), "bucket " + std::to_string(b));
    }
  }
}

TEST_CASE("The C interface: a job of one") {
  rackrail_config config = {};
  config.size = sizeof config;
  config.world_size = 1;
  rackrail_context* context = nullptr;
  REQUIRE(rackrail_init(&config, &context) == RACKRAIL_OK);
  CHECK(rackrail_world_size(context) == 1);
  std::vector<float> data{1, 2, 3};
  rackrail_buffer buffer = buffer_of(data.data(), data.size());
  CHECK(rackrail_all_reduce(context, &buffer, RACKRAIL_MEAN) == RACKRAIL_OK);
  CHECK(data == std::vector<float>{1, 2, 3});
  buffer.device = RACKRAIL_CUDA;
  CHECK(rackrail_all_reduce(context, &buffer, RACKRAIL_SUM) == RACKRAIL_BAD_INPUT);
  CHECK_THAT(rackrail_last_error(), Catch::Contains("RACKRAIL_CUDA"));
  CHECK(rackrail_wait(context, 99) == RACKRAIL_BAD_INPUT);
  CHECK(rackrail_finish(context) == RACKRAIL_OK);
  buffer.device = RACKRAIL_HOST;
  CHECK(rackrail_finish(context) == RACKRAIL_BAD_INPUT);
  CHECK(rackrail_all_reduce(context, &buffer, RACKRAIL_SUM) == RACKRAIL_BAD_INPUT);
  CHECK_THAT(rackrail_last_error(), Catch::Contains("the job was finished here"));
  rackrail_destroy(context);
  rackrail_destroy(nullptr);
  CHECK(rackrail_init(nullptr, nullptr) == RACKRAIL_BAD_INPUT);
}

/// What becomes of a job of one that is configured so.
struct Alone {
  template <typename Configure>
  explicit Alone(Configure configure) {
    rackrail_config config = {};
    config.size = sizeof config;
    config.world_size = 1;
    configure(config);
    status = rackrail_init(&config, &context);
    line = status == RACKRAIL_OK ? "" : rackrail_last_error();
  }
  ~Alone() { rackrail_destroy(context); }
  Alone(const Alone&) = delete;
  Alone& operator=(const Alone&) = delete;

  rackrail_context* context = nullptr;
  rackrail_status status;
  std::string line;
};

TEST_CASE("The C interface: a job of one refuses what one of several ranks would") {
  const Alone pigeon([](rackrail_config& config) { config.transport = "pigeon"; });
  CHECK(pigeon.status == RACKRAIL_BAD_INPUT);
  CHECK(pigeon.context == nullptr);
  CHECK_THAT(pigeon.line, Catch::StartsWith("transport: found 'pigeon', expected one of "));

  const Alone cluster([](rackrail_config& config) { config.cluster = "nowhere.yaml"; });
  CHECK(cluster.status == RACKRAIL_BAD_INPUT);
  CHECK_THAT(cluster.line, Catch::Contains("nowhere.yaml") && Catch::Contains("no such file"));

  const Alone plan([](rackrail_config& config) { config.plan = "nowhere.json"; });
  CHECK(plan.status == RACKRAIL_BAD_INPUT);
  CHECK_THAT(plan.line, Catch::Contains("nowhere.json"));

  const Alone gpu([](rackrail_config& config) {
    config.device = RACKRAIL_CUDA;
    config.device_id = 99;  // which no machine has
  });
  CHECK(gpu.status == RACKRAIL_FAILED);
  CHECK_THAT(gpu.line, Catch::StartsWith("rank 0 is to "));
}

TEST_CASE("The C interface: a job of one takes the cluster and the transport of a larger one") {
  const Alone job([](rackrail_config& config) {
    config.cluster = "two-racks-40g";
    config.transport = "ucx";  // which a build without it knows by name
  });
  CHECK(job.line == "");
  const std::int64_t elements[] = {30'000, 700};
  std::int32_t first = -1;
  CHECK(rackrail_plan(job.context, elements, nullptr, 2, &first) == RACKRAIL_OK);
  char text[256];
  REQUIRE(rackrail_describe(job.context, text, sizeof text) < sizeof text);
  CHECK(std::string(text) == R"([{"codec":"none","elements":30000,"error":0,"schedule":"none"},)"
                             R"({"codec":"none","elements":700,"error":0,"schedule":"none"}])");
}

TEST_CASE("The C interface: ranks sum arrays and buckets, and come to an orderly end") {
  if (const char* reason = rackrail_unavailable()) RACKRAIL_SKIP(reason);
  const std::string problems = on_ranks(
      2, [](rackrail_config&) {},
      [](TestRank& rank) {
        sum_arrays(rank);
        sum_buckets(rank);
        sum_arrays(rank);
        char text[16];
        rank.expect(
            rackrail_describe(rank.context, text, sizeof text) > 16 && std::strlen(text) == 15,
            "description");
        rank.expect(rackrail_finish(rank.context), RACKRAIL_OK, "finish");
      });
  CHECK(problems == "");
}

TEST_CASE("The C interface: another thread waits while this one starts") {
  if (const char* reason = rackrail_unavailable()) RACKRAIL_SKIP(reason);
  const std::string problems = on_ranks(
      2, [](rackrail_config&) {},
      [](TestRank& rank) {
        const std::vector<std::int64_t> elements{20'000, 10'000};
        std::int32_t first = -1;
        rank.expect(rackrail_plan(rank.context, elements.data(), nullptr, 2, &first), RACKRAIL_OK,
                    "plan");
        std::vector<float> one = values_of(rank.rank, 20'000, 0);
        std::vector<float> two = values_of(rank.rank, 10'000, 0);
        const rackrail_buffer first_buffer = buffer_of(one.data(), one.size());
        const rackrail_buffer second_buffer = buffer_of(two.data(), two.size());
        rank.expect(rackrail_start(rank.context, first, &first_buffer, RACKRAIL_SUM), RACKRAIL_OK,
                    "start");
        rackrail_status waited = RACKRAIL_FAILED;
        std::thread waiter([&] { waited = rackrail_wait(rank.context, first); });
        rank.expect(rackrail_start(rank.context, first + 1, &second_buffer, RACKRAIL_SUM),
                    RACKRAIL_OK, "start of the second");
        rank.expect(rackrail_wait(rank.context, first + 1), RACKRAIL_OK, "wait");
        waiter.join();
        rank.expect(waited, RACKRAIL_OK, "wait of the other thread");
        rank.expect(one == sum_of(2, one.size(), 0) && two == sum_of(2, two.size(), 0), "sums");
        rank.expect(rackrail_finish(rank.context), RACKRAIL_OK, "finish");
      });
  CHECK(problems == "");
}

TEST_CASE("The C interface: an abort ends the others' calls with its reason") {
  if (const char* reason = rackrail_unavailable()) RACKRAIL_SKIP(reason);
  const std::string problems = on_ranks(
      2, [](rackrail_config&) {},
      [](TestRank& rank) {
        std::vector<float> data(100'000);
        const rackrail_buffer buffer = buffer_of(data.data(), data.size());
        const rackrail_status first = rackrail_all_reduce(rank.context, &buffer, RACKRAIL_SUM);
        // The end may come while the other is still in the first sum.
        rank.expect(first == RACKRAIL_OK || (rank.rank == 0 && first == RACKRAIL_PEER_LOST), "sum");
        if (rank.rank == 1) {
          rackrail_abort(rank.context, "it has had enough");
        } else {
          rank.expect(rackrail_all_reduce(rank.context, &buffer, RACKRAIL_SUM), RACKRAIL_PEER_LOST,
                      "a sum without the other");
          rank.expect(
              std::string(rackrail_last_error()).find("it has had enough") != std::string::npos,
              std::string("another reason: ") + rackrail_last_error());
        }
      });
  CHECK(problems == "");
}

TEST_CASE("The C interface: arrays of unlike sizes are one clear error on all ranks") {
  if (const char* reason = rackrail_unavailable()) RACKRAIL_SKIP(reason);
  struct Sizes {
    std::size_t of_rank_0;
    std::size_t of_others;
  };
  // Cut into the same pieces, into others, and into more steps.
  const Sizes sizes =
      GENERATE(Sizes{1'000, 1'001}, Sizes{4, 1'000'000}, Sizes{3'000'000, 5}, Sizes{0, 7});
  const int ranks = GENERATE(2, 3);
  CAPTURE(sizes.of_rank_0, sizes.of_others, ranks);
  const std::string problems = on_ranks(
      ranks, [](rackrail_config&) {},
      [&](TestRank& rank) {
        std::vector<float> data(rank.rank == 0 ? sizes.of_rank_0 : sizes.of_others);
        const rackrail_buffer buffer = buffer_of(data.data(), data.size());
        rank.expect(rackrail_all_reduce(rank.context, &buffer, RACKRAIL_SUM), RACKRAIL_PEER_LOST,
                    "sum");
        const std::string line = rackrail_last_error();
        rank.expect(
            line.find("all ranks must sum the same") != std::string::npos &&
                line.find(std::to_string(sizes.of_rank_0) + " elements") != std::string::npos &&
                line.find(std::to_string(sizes.of_others) + " elements") != std::string::npos,
            "another line: " + line);
      });
  CHECK(problems == "");
}

TEST_CASE("The C interface: an array where others sum buckets is an error, not a wrong sum") {
  if (const char* reason = rackrail_unavailable()) RACKRAIL_SKIP(reason);
  const std::string problems = on_ranks(
      2, [](rackrail_config&) {},
      [](TestRank& rank) {
        const std::int64_t elements = 5'000;
        std::int32_t bucket = -1;
        rank.expect(rackrail_plan(rank.context, &elements, nullptr, 1, &bucket), RACKRAIL_OK,
                    "plan");
        std::vector<float> data(static_cast<std::size_t>(elements));
        const rackrail_buffer buffer = buffer_of(data.data(), data.size());
        if (rank.rank == 0) {
          rank.expect(rackrail_start(rank.context, bucket, &buffer, RACKRAIL_SUM), RACKRAIL_OK,
                      "start");
        }
        rank.expect(rank.rank == 0 ? rackrail_wait(rank.context, bucket)
                                   : rackrail_all_reduce(rank.context, &buffer, RACKRAIL_SUM),
                    RACKRAIL_PEER_LOST, "sum");
        rank.expect(std::string(rackrail_last_error()).find("planned buckets") != std::string::npos,
                    std::string("another line: ") + rackrail_last_error());
      });
  CHECK(problems == "");
}

}  // namespace
}  // namespace rackrail::test::c_interface_test
