#include "plan/format.hpp"

#include <catch2/catch.hpp>
#include <random>

#include "base/digest.hpp"
#include "base/error.hpp"
#include "base/file.hpp"
#include "tests/support/paths.hpp"
#include "tests/unit/plan/example_graphs.hpp"

namespace rackrail::plan::format_test {
namespace {

using examples::Draft;

/// n hosts on one switch; host i has links 2i (up) and 2i + 1 (down).
topology::Topology star(const std::string& name, int hosts) {
  topology::Topology topology(name);
  topology::Node node;
  node.name = "switch";
  node.kind = topology::NodeKind::kTor;
  const NodeId hub = topology.add_node(node);
  for (int i = 0; i < hosts; ++i) {
    node.name = "h" + std::to_string(i);
    node.kind = topology::NodeKind::kHost;
    const NodeId host = topology.add_node(node);
    topology.add_rank(host);
    topology::Link link;
    link.from = host;
    link.to = hub;
    link.bandwidth = 10_GBps;
    link.tier = i == 0 ? "uplink" : "host";
    topology.add_duplex_link(link);
  }
  return topology;
}

/// A plan in which every field has a value of its own, but for codecs, which are the schedule's.
Plan full_plan(const topology::Topology& topology) {
  const auto ranks = static_cast<int>(topology.rank_count());
  const Codec top_k{.kind = CodecKind::kTopK, .density = 0.001};
  Draft ring = examples::ring(ranks, {{.kind = CodecKind::kFp16}, top_k}, 2, 1);
  for (auto& step : ring.steps) {
    // Rank r's neighbour is always r + 1: one route per rank.
    step.transfer.route = RouteId(1 + step.transfer.src.index());
  }
  for (int rank = 0; rank < ranks; ++rank) {
    ring.routes.push_back({LinkId(2 * rank), LinkId(2 * ((rank + 1) % ranks) + 1)});
  }
  Plan plan;
  plan.name = "a \"plan\" \\ of ours, µ";
  plan.cluster_name = topology.name();
  plan.cluster_digest = topology.digest();
  for (int rank = 0; rank < ranks; ++rank) {
    plan.rank_names.push_back("h" + std::to_string(rank));
  }
  plan.workload_name = "w";
  plan.workload_digest = sha256_hex("w");
  plan.schedules = {ring.build(), examples::ring(ranks).build()};
  Bucket first;
  first.tensors = {0, 3, 4};
  first.elements = 1'000'000;
  first.slice_elements = 65'536;
  first.priority = 1;
  first.codec = top_k;
  first.codec_tiers = {{"uplink", first.codec}, {"host", {.kind = CodecKind::kFp16}}};
  Bucket second;
  second.tensors = {1, 2};
  second.elements = 7;
  second.schedule = 1;
  second.slice_elements = 1024;
  plan.buckets = {first, second};
  plan.batch.local_batch.assign(topology.rank_count(), 32);
  plan.batch.accumulation = 2;
  plan.batch.learning_rate = 0.1;
  plan.batch.learning_rate_rule = "0.1 · 256/256";
  plan.batch.warmup_steps = 500;
  plan.error_budget = 1.0 / 3;
  plan.only_schedule = "ring";
  plan.only_bucket_size = 25_MiB;
  plan.compression_warmup_steps = 40;
  plan.prediction.step_time = 123'456'789_ps;
  plan.prediction.bound = 100'000'000_ps;
  plan.prediction.bound_reason = "cut around h0";
  plan.prediction.gap = 0.23456789;
  plan.prediction.sync_share = 0.125;
  plan.prediction.warmup_step_time = 234'567'890_ps;
  plan.prediction.baselines = {{"ring", 200'000'000_ps}, {"naive", 300'000'000_ps}};
  plan.notes = {"one", "two"};
  plan.seed = 0xfedcba9876543210ULL;
  plan.schedules_by_size = {{1_KiB, "double-binary-tree"}, {3_MiB, "ring"}};
  plan.adapters = {{.host = "h0",
                    .name = "nic0",
                    .devices = "mlx5_0 0000:1b:00.0",
                    .out = {LinkId(0), LinkId(4)},
                    .in = {LinkId(1)}},
                   {.host = "h1", .name = "nic0", .devices = "", .out = {LinkId(2)}, .in = {}}};
  return plan;
}

Plan without_requests(Plan plan) {
  plan.only_schedule.clear();
  plan.only_bucket_size = Bytes();
  return plan;
}

Plan without_adapters(Plan plan) {
  plan.adapters.clear();
  return plan;
}

Plan without_warmup(Plan plan) {
  plan.compression_warmup_steps = 0;
  plan.prediction.warmup_step_time = Duration();
  return plan;
}

Plan small_plan() { return full_plan(star("star", 4)); }

/// With a rate of `rate` on each route.
Plan rated_plan(Bandwidth rate) {
  Plan plan = without_requests(without_adapters(without_warmup(small_plan())));
  Draft rated = examples::ring(4);
  rated.rate = rate;
  for (int rank = 0; rank < 4; ++rank) {
    rated.routes.push_back({LinkId(2 * rank), LinkId(2 * ((rank + 1) % 4) + 1)});
  }
  for (auto& step : rated.steps) {
    step.transfer.route = RouteId(1 + step.transfer.src.index());
  }
  plan.schedules.push_back(rated.build());
  return plan;
}

std::string refusal(const std::string& content) {
  try {
    const Plan plan = parse_plan(content, "p.plan");
    FAIL("accepted '" << plan.name << "'");
  } catch (const Error& e) {
    CHECK(e.is_bad_input());
    CHECK(e.context().file == "p.plan");
    CHECK(std::string(e.what()).find('\n') == std::string::npos);
    return e.what();
  }
  return {};
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const std::size_t place = text.find(from);
  REQUIRE(place != std::string::npos);
  return text.replace(place, from.size(), to);
}

/// The binary form of a plan whose other bytes are `body`: tag 2047 (fixed64), then the first 8
/// bytes of the digest as a number, which the wire has the other way round.
std::string with_checksum(std::string body) {
  const std::string digest = sha256_hex(body);
  body += "\xF9\x7F";
  for (std::size_t byte = 8; byte-- > 0;) {
    const std::string hex = digest.substr(2 * byte, 2);
    body += static_cast<char>(std::stoi(hex, nullptr, 16));
  }
  return body;
}

TEST_CASE("rates of routes are kept in both forms") {
  const Plan plan = rated_plan(25_GBps);
  for (const std::string& content : {to_json(plan), to_binary(plan)}) {
    const Plan read = parse_plan(content, "p.plan");
    CHECK(read.schedules.back().rate(RouteId(1)) == 25_GBps);
    CHECK(to_json(read) == to_json(plan));
  }
  CHECK_THAT(refusal(replaced(to_json(plan), "\"rate\": \"25000000000\"", "\"rate\": \"-2\"")),
             Catch::Contains("rate of route 1") && Catch::Contains("-2"));
}

TEST_CASE("a plan that older programs understand is written for them") {
  CHECK_THAT(to_json(without_requests(without_adapters(without_warmup(small_plan())))),
             Catch::Contains("\"version\": 1"));
  CHECK_THAT(to_json(rated_plan(Bandwidth(7))), Catch::Contains("\"version\": 3"));
  CHECK_THAT(to_json(without_requests(without_adapters(small_plan()))),
             Catch::Contains("\"version\": 2"));
  CHECK_THAT(to_json(without_requests(small_plan())), Catch::Contains("\"version\": 3"));
  CHECK_THAT(to_json(small_plan()), Catch::Contains("\"version\": 4"));
  CHECK_THAT(refusal(replaced(to_json(small_plan()), "\"compression_warmup_steps\": \"40\"",
                              "\"compression_warmup_steps\": \"-1\"")),
             Catch::Contains("compression_warmup_steps") && Catch::Contains("found -1"));
}

TEST_CASE("a plan comes back from both forms with every field") {
  const Plan plan = small_plan();
  const std::string binary = to_binary(plan);
  const std::string json = to_json(plan);
  for (const std::string& form : {binary, json}) {
    const Plan again = parse_plan(form, "p");
    CHECK(to_binary(again) == binary);
    CHECK(to_json(again) == json);
    CHECK(digest(again) == digest(plan));
    CHECK(again.name == plan.name);
    CHECK(again.rank_names == plan.rank_names);
    CHECK(again.seed == plan.seed);
    CHECK(again.notes == plan.notes);
    CHECK(again.schedules_by_size == plan.schedules_by_size);
    CHECK(again.adapters == plan.adapters);
    CHECK(again.error_budget == plan.error_budget);
    CHECK(again.only_schedule == "ring");
    CHECK(again.only_bucket_size == 25_MiB);
    CHECK(again.compression_warmup_steps == 40);
    CHECK(again.prediction.warmup_step_time == plan.prediction.warmup_step_time);
    CHECK(again.prediction.step_time == plan.prediction.step_time);
    CHECK(again.prediction.gap == plan.prediction.gap);
    CHECK(again.prediction.baselines == plan.prediction.baselines);
    CHECK(again.batch.local_batch == plan.batch.local_batch);
    CHECK(again.batch.learning_rate == plan.batch.learning_rate);
    CHECK(again.batch.warmup_steps == 500);
    REQUIRE(again.buckets.size() == 2);
    CHECK(again.buckets[0].tensors == plan.buckets[0].tensors);
    CHECK(again.buckets[0].codec == plan.buckets[0].codec);
    CHECK(again.buckets[0].codec_tiers == plan.buckets[0].codec_tiers);
    CHECK(again.buckets[0].priority == 1);
    CHECK(again.buckets[1].schedule == 1);
    REQUIRE(again.schedules.size() == 2);
    const TransferGraph& graph = again.schedules[0];
    REQUIRE(graph.transfers().size() == plan.schedules[0].transfers().size());
    CHECK(graph.name() == "ring");
    CHECK(graph.codecs().size() == 3);
    CHECK(graph.routes().size() == 5);
    for (std::size_t i = 0; i < graph.transfers().size(); ++i) {
      const Transfer& a = graph.transfers()[i];
      const Transfer& b = plan.schedules[0].transfers()[i];
      REQUIRE(std::tie(a.src, a.dst, a.chunk_begin, a.chunk_count, a.op, a.codec, a.route) ==
              std::tie(b.src, b.dst, b.chunk_begin, b.chunk_count, b.op, b.codec, b.route));
      const auto there = plan.schedules[0].dependencies(TransferId(i));
      const auto here = graph.dependencies(TransferId(i));
      REQUIRE(std::equal(here.begin(), here.end(), there.begin(), there.end()));
    }
  }
}

TEST_CASE("writing is deterministic and the digest is that of the binary form") {
  CHECK(to_binary(small_plan()) == to_binary(small_plan()));
  CHECK(to_json(small_plan()) == to_json(small_plan()));
  CHECK(digest(small_plan()) == sha256_hex(to_binary(small_plan())));
  Plan other = small_plan();
  other.seed += 1;
  CHECK(digest(other) != digest(small_plan()));
}

TEST_CASE("a plan without schedules by size is a plan; one with unordered sizes is none") {
  Plan plan = small_plan();
  plan.schedules_by_size.clear();
  CHECK(to_json(plan).find("schedules_by_size") == std::string::npos);
  CHECK(parse_plan(to_json(plan), "p").schedules_by_size.empty());
  CHECK(parse_plan(to_binary(plan), "p").schedules_by_size.empty());
  plan.schedules_by_size = {{2_KiB, "ring"}, {1_KiB, "hierarchical"}};
  CHECK_THAT(refusal(to_json(plan)), Catch::Contains("from_bytes 1024"));
  plan.schedules_by_size = {{0_B, "ring"}};
  CHECK_THAT(refusal(to_binary(plan)), Catch::Contains("from_bytes 0"));
  plan.schedules_by_size = {{1_KiB, ""}};
  CHECK_THAT(refusal(to_json(plan)), Catch::Contains("no schedule"));
  plan.schedules_by_size = {{1_KiB, "ri\nng"}};
  CHECK_THAT(refusal(to_json(plan)), Catch::Contains("without control characters"));
}

TEST_CASE("how a schedule was made is kept, and makes the format a newer one") {
  Plan plan = small_plan();
  plan.schedules[0].set_mechanism("rings of groups per rail, 24 rounds");
  CHECK_THAT(to_json(plan), Catch::Contains("\"version\": 5"));
  for (const std::string& form : {to_json(plan), to_binary(plan)}) {
    const Plan again = parse_plan(form, "p");
    CHECK(again.schedules[0].mechanism() == "rings of groups per rail, 24 rounds");
    CHECK(again.schedules[0].label() == "ring: rings of groups per rail, 24 rounds");
    CHECK(again.schedules[1].label() == again.schedules[1].name());
  }
}

TEST_CASE("mutual sums are kept, and make the format a newer one") {
  Plan plan = small_plan();
  plan.schedules[1] = examples::recursive_doubling().build();
  CHECK_THAT(to_json(plan), Catch::Contains("\"version\": 6"));
  for (const std::string& form : {to_json(plan), to_binary(plan)}) {
    const Plan again = parse_plan(form, "p");
    const auto sums = again.schedules[1].mutual_sums();
    REQUIRE(sums.size() == 4);
    CHECK(sums[3].first == TransferId(6));
    CHECK(sums[3].count == 2);
  }
  const std::string json = to_json(plan);
  CHECK_THAT(
      refusal(replaced(json, "\"mutual_counts\": [2, 2, 2, 2]", "\"mutual_counts\": [2, 2, 2, 3]")),
      Catch::Contains("mutual_counts[3]"));
}

TEST_CASE("a baseline without a name or a time is refused") {
  Plan plan = small_plan();
  plan.prediction.baselines = {{"", 5_us}};
  CHECK_THAT(refusal(to_json(plan)), Catch::Contains("baselines: found ''"));
  plan.prediction.baselines = {{"naive", Duration()}};
  CHECK_THAT(refusal(to_binary(plan)), Catch::Contains("a name and a step time"));
}

TEST_CASE("null is no value, in a field or in a list") {
  const std::string json = to_json(small_plan());
  CHECK_THAT(refusal(replaced(json, "\"notes\": [", "\"notes\": [null, ")),
             Catch::Contains("notes: found null, expected a value"));
  CHECK_THAT(refusal(replaced(json, "\"version\": 4", "\"version\": 4, \"name\": null")),
             Catch::Contains("name: found null"));
}

TEST_CASE("what protobuf would read as something else is refused") {
  const std::string json = to_json(small_plan());
  CHECK_THAT(refusal(replaced(json, "\"notes\": [", "\"notes\": [[\"a\"], ")),
             Catch::Contains("notes: found a list in a list"));
  CHECK_THAT(refusal(replaced(json, "\"version\": 4", "\"version\": 4, \"version\": 4")),
             Catch::Contains("version: found two values, expected one"));
}

TEST_CASE("the JSON form reads well") {
  const std::string json = to_json(small_plan());
  CHECK_THAT(json, Catch::Contains("\"version\": 4") &&
                       Catch::Contains("\"rank_names\": [\"h0\", \"h1\", \"h2\", \"h3\"]") &&
                       Catch::Contains("\"step_time_ps\": \"123456789\"") &&
                       Catch::Contains("\"codec\": \"topk:density=0.001\"") &&
                       Catch::Contains("\"collective\": \"ALL_REDUCE\""));
  CHECK(json.find("checksum") == std::string::npos);
}

TEST_CASE("a newer plan is refused with both numbers, in either form") {
  const std::string newer =
      replaced(to_json(small_plan()), "\"version\": 4,", "\"version\": 9, \"of_tomorrow\": {},");
  CHECK_THAT(refusal(newer), Catch::Contains("version") && Catch::Contains("found 9") &&
                                 Catch::Contains("at most 6"));
  std::string body = to_binary(small_plan());
  REQUIRE(body.substr(0, 2) == std::string("\x08\x04", 2));
  body[1] = 9;
  body.resize(body.size() - 10);
  CHECK_THAT(refusal(with_checksum(body)),
             Catch::Contains("found 9") && Catch::Contains("at most 6"));
  CHECK_THAT(refusal("{}"), Catch::Contains("version") && Catch::Contains("none"));
}

TEST_CASE("an unknown field of JSON is named") {
  const std::string json = to_json(small_plan());
  CHECK_THAT(refusal(replaced(json, "\"seed\"", "\"sede\"")),
             Catch::Contains("unknown field 'sede'"));
  CHECK_THAT(refusal(replaced(json, "\"slice_elements\"", "\"slice\"")),
             Catch::Contains("buckets[0]: found unknown field 'slice'"));
  CHECK_THAT(refusal(replaced(json, "\"elements\": \"7\"", "\"elements\": \"seven\"")),
             Catch::Contains("buckets[1].elements: found") && Catch::Contains("seven"));
}

TEST_CASE("a plan that was cut short or damaged is refused in a clear line") {
  const std::string json = to_json(small_plan());
  CHECK_THAT(refusal(json.substr(0, json.size() / 2)),
             Catch::Contains("line ") && Catch::Contains("end of the file"));
  CHECK_THAT(refusal(replaced(json, "\"seed\":", "\"seed\"")),
             Catch::Contains("line ") && Catch::Contains("not JSON"));
  const std::string binary = to_binary(small_plan());
  CHECK_THAT(refusal(binary.substr(0, binary.size() / 2)), Catch::Contains("cut short"));
  // Where a field ends, protobuf sees nothing missing.
  CHECK_THAT(refusal(binary.substr(0, binary.size() - 10)), Catch::Contains("cut short"));
  CHECK_THAT(refusal(""), Catch::Contains("found nothing"));
  CHECK_THAT(refusal("  \n"), Catch::Contains("found nothing"));
  CHECK_THAT(refusal("hello"), Catch::Contains("text that is no JSON object"));
  CHECK_THAT(refusal("[1]"), Catch::Contains("text that is no JSON object"));
}

TEST_CASE("numbers that point nowhere are refused with their place") {
  const auto spoiled = [](const std::string& from, const std::string& to) {
    return refusal(replaced(to_json(small_plan()), from, to));
  };
  CHECK_THAT(spoiled("\"dst\": [1,", "\"dst\": [4,"),
             Catch::Contains("schedules[0]") && Catch::Contains("destination rank 4"));
  CHECK_THAT(spoiled("\"dst\": [1,", "\"dst\": [0,"), Catch::Contains("at both ends"));
  CHECK_THAT(spoiled("\"src\": [0,", "\"src\": [0, 0,"), Catch::Contains("transfers.src"));
  CHECK_THAT(spoiled("\"route\": [1,", "\"route\": [5,"), Catch::Contains("route 5"));
  CHECK_THAT(spoiled("\"codec\": [2,", "\"codec\": [259,"), Catch::Contains("transfers.codec[0]"));
  CHECK_THAT(spoiled("\"op\": [1,", "\"op\": [2,"), Catch::Contains("transfers.op[0]"));
  CHECK_THAT(spoiled("\"dependency_distances\": [", "\"dependency_distances\": [0, "),
             Catch::Contains("dependency_distances"));
  CHECK_THAT(spoiled("\"count\": 24", "\"count\": 4000000000"), Catch::Contains("4000000000"));
  CHECK_THAT(spoiled("\"codecs\": [\"none\"", "\"codecs\": [\"fp16\""), Catch::Contains("'none'"));
  CHECK_THAT(spoiled("\"codecs\": [\"none\", \"fp16\"", "\"codecs\": [\"none\", \"fp61\""),
             Catch::Contains("schedules[0].codecs[1]") && Catch::Contains("fp61"));
  CHECK_THAT(spoiled("\"rank_count\": 4", "\"rank_count\": 5"), Catch::Contains("rank_count"));
  CHECK_THAT(spoiled("\"collective\": \"ALL_REDUCE\"", "\"collective\": \"ALL_GATHER\""),
             Catch::Contains("owners"));
  CHECK_THAT(spoiled("\"accumulation\": \"2\"", "\"accumulation\": \"0\""),
             Catch::Contains("batch.accumulation"));
  CHECK_THAT(spoiled("\"gap\": 0.23456789", "\"gap\": \"NaN\""), Catch::Contains("prediction.gap"));
  CHECK_THAT(spoiled("cut around h0", "cut\\naround h0"),
             Catch::Contains("prediction.bound_reason") && Catch::Contains("control characters"));
  CHECK_THAT(spoiled("\"bound_ps\": \"", "\"bound_ps\": \"-"),
             Catch::Contains("prediction.bound_ps"));
  CHECK_THAT(spoiled("\"schedule\": 1", "\"schedule\": 2"),
             Catch::Contains("bucket 1: schedule 2"));
}

TEST_CASE("bytes with a right checksum that are no plan are refused") {
  CHECK_THAT(refusal(with_checksum("\x08\x01\x12")), Catch::Contains("no message"));
  CHECK_THAT(refusal(with_checksum("")), Catch::Contains("version"));
}

TEST_CASE("a text that is not UTF-8 is refused before it is written") {
  for (const char* text :
       {"\xFF", "a\xC3", "\xC0\x80", "\xED\xA0\x80", "\xF4\x90\x80\x80", "\xE2\x82"}) {
    Plan plan = small_plan();
    plan.rank_names[2] = text;
    CHECK_THROWS_WITH(to_binary(plan), Catch::Contains("rank_names") && Catch::Contains("UTF-8"));
    CHECK_THROWS_AS(to_json(plan), PlanError);
  }
  for (const char* text : {"", "ascii", "µ", "€", "𝄞"}) {
    Plan plan = small_plan();
    plan.notes = {text};
    CHECK(parse_plan(to_json(plan), "p").notes == plan.notes);
    CHECK(parse_plan(to_binary(plan), "p").notes == plan.notes);
  }
}

TEST_CASE("a plan whose schedule is wrong does not load") {
  Plan plan = small_plan();
  Draft wrong = examples::ring(4);
  wrong.steps.pop_back();
  plan.schedules[1] = wrong.build();
  CHECK_THAT(refusal(to_binary(plan)), Catch::Contains("schedule 'ring'") &&
                                           Catch::Contains("ends without the contribution") &&
                                           Catch::Contains("a plan that verifies"));
  CHECK_THAT(refusal(to_json(plan)), Catch::Contains("ends without the contribution"));
}

TEST_CASE("plans are saved by the name of the file and loaded for their cluster only") {
  const test::TemporaryDirectory folder;
  const topology::Topology cluster = star("here", 4);
  const Plan plan = full_plan(cluster);
  const auto json = folder.path() / "p.json";
  const auto binary = folder.path() / "deep" / "p.plan";
  save_plan(plan, json);
  save_plan(plan, binary);
  CHECK(read_file(json) == to_json(plan));
  CHECK(read_file(binary) == to_binary(plan));
  CHECK(digest(load_plan(json)) == digest(plan));
  CHECK(digest(load_plan(binary, &cluster)) == digest(plan));

  const topology::Topology other = star("there", 5);
  CHECK_THROWS_WITH(load_plan(json, &other), Catch::Contains(json.string()) &&
                                                 Catch::Contains("'here'") &&
                                                 Catch::Contains("'there'"));
  CHECK_THROWS_AS(load_plan(folder.path() / "none.json"), ConfigError);
}

TEST_CASE("a route that the cluster does not have is found when the plan is loaded for it") {
  const test::TemporaryDirectory folder;
  const topology::Topology cluster = star("here", 4);
  Plan plan = full_plan(cluster);
  Draft ring = examples::ring(4);
  ring.routes = {{LinkId(0), LinkId(5)}};
  ring.steps[0].transfer.route = RouteId(1);
  plan.schedules[1] = ring.build();
  save_plan(plan, folder.path() / "p.json");
  CHECK_NOTHROW(load_plan(folder.path() / "p.json"));
  CHECK_THROWS_WITH(load_plan(folder.path() / "p.json", &cluster), Catch::Contains("ends at 'h2'"));
}

TEST_CASE("damaged plans are refused, never crash") {
  const std::uint64_t seed = 31;
  INFO("seed " << seed);
  std::mt19937_64 random(seed);
  const Plan plan = full_plan(star("star", 3));
  const std::string binary = to_binary(plan);
  const std::string json = to_json(plan);
  int refused_binary = 0;
  int refused_json = 0;
  constexpr int kRounds = 400;
  for (int round = 0; round < 2 * kRounds; ++round) {
    const bool is_json = round % 2 == 0;
    std::string bytes = is_json ? json : binary;
    for (std::uint64_t flips = 1 + random() % 3; flips > 0; --flips) {
      bytes[random() % bytes.size()] ^= static_cast<char>(1U << (random() % 8));
    }
    if (random() % 4 == 0) {
      bytes.resize(random() % bytes.size());
    }
    try {
      const Plan accepted = parse_plan(bytes, "p");
      CHECK(accepted.rank_count() == 3);
    } catch (const Error& e) {
      CHECK(e.is_bad_input());
      (is_json ? refused_json : refused_binary) += 1;
    }
  }
  // The checksum misses nothing; in JSON a flip may fall into a name or a note.
  CHECK(refused_binary == kRounds);
  CHECK(refused_json > kRounds / 2);
}

TEST_CASE("a plan with damaged content but a right checksum is refused or right, never a crash") {
  const std::uint64_t seed = 37;
  INFO("seed " << seed);
  std::mt19937_64 random(seed);
  const std::string json = to_json(full_plan(star("star", 3)));
  int refused = 0;
  constexpr int kRounds = 400;
  for (int round = 0; round < kRounds; ++round) {
    // Digits only: what is left is JSON of the right shape with wrong numbers.
    std::string text = json;
    for (int changes = 0; changes < 2;) {
      char& c = text[random() % text.size()];
      if (c >= '0' && c <= '9') {
        c = static_cast<char>('0' + random() % 10);
        ++changes;
      }
    }
    try {
      const Plan accepted = parse_plan(text, "p");
      CHECK(accepted.buckets.size() == 2);
    } catch (const Error& e) {
      CHECK(e.is_bad_input());
      ++refused;
    }
  }
  CHECK(refused > kRounds / 4);
}

TEST_CASE("a plan for 256 ranks is a few megabytes") {
  Plan plan = full_plan(star("big", 256));
  plan.schedules.pop_back();
  plan.buckets[1].schedule = 0;
  plan.buckets[1].codec = plan.buckets[0].codec;
  const std::string binary = to_binary(plan);
  CHECK(binary.size() < 3'000'000);
  const Plan again = parse_plan(binary, "p");
  CHECK(again.schedules[0].transfers().size() == 130'560);
  CHECK(to_json(plan).size() < 10'000'000);
}

}  // namespace
}  // namespace rackrail::plan::format_test
