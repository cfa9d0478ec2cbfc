#include "plan/verifier.hpp"

#include <catch2/catch.hpp>
#include <chrono>

#include "tests/unit/plan/example_graphs.hpp"

namespace rackrail::plan::verifier_test {
namespace {

using examples::Draft;

constexpr auto kCopy = TransferOp::kCopy;
constexpr auto kReduce = TransferOp::kReduce;
const Codec kFp16Codec{.kind = CodecKind::kFp16};
const Codec kInt8Codec{.kind = CodecKind::kInt8Block};

VerifyReport check(const Draft& draft) { return verify(draft.build(), nullptr); }

/// All problems in one text, so that a test can look for words of any of them.
std::string problems(const Draft& draft) {
  std::string text;
  for (const std::string& problem : check(draft).problems) {
    text += problem + "\n";
  }
  return text;
}

Draft all_gather(int ranks) {
  Draft draft;
  draft.collective = Collective::kAllGather;
  draft.ranks = static_cast<std::size_t>(ranks);
  draft.weights.assign(draft.ranks, 1);
  for (int owner = 0; owner < ranks; ++owner) {
    draft.owners.emplace_back(owner);
    for (int other = 0; other < ranks; ++other) {
      if (other != owner) {
        draft.add(owner, other, kCopy, {}, static_cast<std::uint32_t>(owner));
      }
    }
  }
  return draft;
}

TEST_CASE("right schedules are right") {
  CHECK(problems(examples::exchange()) == "");
  CHECK(problems(examples::tree()) == "");
  CHECK(problems(examples::halving_doubling()) == "");
  for (const int ranks : {2, 3, 4, 7, 65}) {
    CAPTURE(ranks);
    CHECK(problems(examples::ring(ranks)) == "");
  }
  CHECK(problems(all_gather(4)) == "");

  Draft alone;
  alone.ranks = 1;
  alone.weights = {1};
  CHECK(problems(alone) == "");

  Draft scatter = examples::ring(4);
  scatter.collective = Collective::kReduceScatter;
  scatter.steps.resize(scatter.steps.size() / 2);
  scatter.owners = {Rank(3), Rank(0), Rank(1), Rank(2)};
  CHECK(problems(scatter) == "");
  scatter.owners = {Rank(0), Rank(1), Rank(2), Rank(3)};
  CHECK_THAT(problems(scatter), Catch::Contains("ends without the contribution"));
}

TEST_CASE("mutual sums are right, and only as rule 9 has them") {
  CHECK(problems(examples::recursive_doubling()) == "");
  for (const int ranks : {2, 3, 8}) {
    CAPTURE(ranks);
    CHECK(problems(examples::one_shot(ranks)) == "");
  }

  Draft none = examples::one_shot(3);
  none.mutual_sums.clear();
  CHECK_THAT(problems(none), Catch::Contains("a second time"));

  Draft second_step_too_early = examples::recursive_doubling();
  second_step_too_early.steps[6].dependencies.clear();
  CHECK_THAT(problems(second_step_too_early), Catch::Contains("is not ordered after"));

  Draft other_order = examples::one_shot(3);
  std::swap(other_order.steps[2], other_order.steps[3]);
  CHECK_THAT(problems(other_order), Catch::Contains("transfer 2 is from rank 1 to rank 2"));

  Draft one_missing = examples::one_shot(3);
  --one_missing.mutual_sums[0].count;
  CHECK_THAT(problems(one_missing), Catch::Contains("not those between each two"));

  Draft lossy = examples::one_shot(2);
  lossy.codecs = {{.kind = CodecKind::kFp16}};
  for (auto& step : lossy.steps) {
    step.transfer.codec = 1;
  }
  CHECK_THAT(problems(lossy), Catch::Contains("only additions in FP32"));

  Draft twice = examples::one_shot(2);
  examples::add_mutual_sum(twice, {0, 1}, {TransferId(0), TransferId(1)});
  CHECK_THAT(problems(twice), Catch::Contains("a second time"));

  Draft waits = examples::one_shot(2);
  waits.steps[1].dependencies = {TransferId(0)};
  CHECK_THAT(problems(waits), Catch::Contains("waits for transfer 0 of the same sum"));

  // A copy that overwrites what is still to be sent.
  Draft overwritten = examples::one_shot(2);
  overwritten.ranks = 3;
  overwritten.mutual_sums.clear();
  overwritten.steps.clear();
  overwritten.add(2, 0, TransferOp::kReduce, {});
  examples::add_mutual_sum(overwritten, {0, 1});
  overwritten.add(1, 2, TransferOp::kCopy, {TransferId(1)});
  CHECK_THAT(problems(overwritten), Catch::Contains("is not ordered after"));
}

TEST_CASE("the figures of the report describe the graph") {
  const VerifyReport ring = check(examples::ring(4));
  CHECK(ring.transfers == 24);
  CHECK(ring.depth == 6);
  CHECK(ring.largest_fan_in == 1);
  const VerifyReport tree = check(examples::tree());
  CHECK(tree.transfers == 12);
  CHECK(tree.depth == 4);
  CHECK(tree.largest_fan_in == 2);
}

TEST_CASE("a ring without one of its dependencies is found out, whichever it is") {
  const Draft right = examples::ring(4);
  for (std::size_t i = 0; i < right.steps.size(); ++i) {
    if (right.steps[i].dependencies.empty()) {
      continue;
    }
    Draft wrong = right;
    wrong.steps[i].dependencies.clear();
    CAPTURE(i);
    CHECK_THAT(problems(wrong), Catch::Contains("is not ordered after"));
  }
}

TEST_CASE("a contribution that is added twice is named") {
  Draft wrong = examples::exchange();
  wrong.steps.insert(wrong.steps.begin() + 1, wrong.steps.front());
  wrong.steps[2].dependencies = {TransferId(0), TransferId(1)};
  CHECK_THAT(problems(wrong), Catch::Contains("adds the contribution of rank 1 a second time"));
}

TEST_CASE("a wrong chunk leaves a contribution out") {
  Draft wrong = examples::ring(4);
  wrong.steps[1].transfer.chunk_begin = 3;
  CHECK_THAT(problems(wrong), Catch::Contains("ends without the contribution of rank"));
}

TEST_CASE("a missing copy leaves a rank with a part of the sum") {
  Draft wrong = examples::tree();
  wrong.steps.pop_back();
  CHECK_THAT(problems(wrong), Catch::Contains("rank 6, chunk 0: ends without the contribution of "
                                              "rank 0"));
}

TEST_CASE("a dependency that the sender cannot see is named") {
  Draft wrong = examples::tree();
  // Rank 3's transfer ends at rank 1; rank 2 knows nothing of it.
  wrong.steps[5].dependencies.push_back(TransferId(0));
  CHECK_THAT(problems(wrong), Catch::Contains("transfer 5 (rank 2 to rank 0) waits for transfer 0 "
                                              "(rank 3 to rank 1), which rank 2 cannot see"));
}

TEST_CASE("a chain of dependencies through another chunk orders nothing") {
  // Rank 0 reads chunk 0, and gets it back at last; the second step is all that stands between.
  Draft draft;
  draft.ranks = 2;
  draft.weights = {1, 1};
  const TransferId out = draft.add(0, 1, kReduce, {}, 0);
  const TransferId other = draft.add(0, 1, kReduce, {out}, 1);
  draft.add(1, 0, kCopy, {other}, 0, 2);
  CHECK_THAT(problems(draft), Catch::Contains("chunk 0: the send of transfer 2 (rank 1 to rank 0) "
                                              "is not ordered after the addition of transfer 0"));
  draft.steps[2].dependencies = {out, other};
  CHECK(problems(draft) == "");
}

TEST_CASE("a copy over a chunk that is still being read is found out") {
  // Rank 2 gets the sum from rank 0 while its own contribution may still be on the way to rank 1.
  Draft draft;
  draft.ranks = 3;
  draft.weights = {1};
  const TransferId a = draft.add(1, 0, kReduce, {});
  const TransferId b = draft.add(2, 0, kReduce, {});
  const TransferId unrelated = draft.add(2, 1, kReduce, {a});
  static_cast<void>(unrelated);
  draft.add(0, 1, kCopy, {a, b});
  draft.add(0, 2, kCopy, {a, b});
  const std::string text = problems(draft);
  CHECK_THAT(text, Catch::Contains("transfer 2 (rank 2 to rank 1) waits for transfer 0"));
  CHECK_THAT(text, Catch::Contains("rank 2, chunk 0: the copy of transfer 4 (rank 0 to rank 2) is "
                                   "not ordered after the send of transfer 2"));
}

TEST_CASE("another order of additions gives other bits") {
  // Both ranks add up all three values, in another order each: (1 + 2) + 0 and (0 + 1) + 2.
  Draft draft;
  draft.ranks = 3;
  draft.weights = {1};
  const TransferId a = draft.add(2, 1, kReduce, {});
  const TransferId b = draft.add(0, 2, kCopy, {a});
  draft.add(0, 1, kReduce, {b});
  const std::string text = problems(draft);
  CHECK_THAT(text, Catch::Contains("ends with other bits than rank 0"));
}

TEST_CASE("all-gather sends nothing before it is there, and everything everywhere") {
  Draft early;
  early.collective = Collective::kAllGather;
  early.ranks = 2;
  early.weights = {1};
  early.owners = {Rank(0)};
  early.add(1, 0, kCopy, {});
  const std::string text = problems(early);
  CHECK_THAT(text, Catch::Contains("sends what the rank does not have yet"));
  CHECK_THAT(text, Catch::Contains("rank 1, chunk 0: nothing arrives"));

  Draft missing = all_gather(3);
  missing.steps.pop_back();
  CHECK_THAT(problems(missing), Catch::Contains("rank 1, chunk 2: nothing arrives"));

  Draft summed = all_gather(2);
  summed.steps[0].transfer.op = kReduce;
  CHECK_THAT(problems(summed),
             Catch::Contains("adds to a chunk that the destination does not have"));
}

TEST_CASE("codecs keep all ranks at the same bits when copies are forwarded as they came") {
  CHECK(problems(examples::ring(4, {kFp16Codec}, 1, 1)) == "");
  CHECK(problems(examples::ring(4, {kFp16Codec}, 1, 0)) == "");
  CHECK(problems(examples::ring(4, {kFp16Codec, kInt8Codec}, 1, 2)) == "");
  CHECK(problems(examples::tree(1, {kInt8Codec})) == "");
}

TEST_CASE("an encoding of another range is another encoding, unless the codec is elementwise") {
  // Rank 0 sends two chunks together to rank 1, and one by one to rank 2.
  const auto draft = [](const Codec& codec, bool ordered) {
    Draft d;
    d.collective = Collective::kAllGather;
    d.ranks = 3;
    d.weights = {1, 1};
    d.owners = {Rank(0), Rank(0)};
    d.codecs = {codec};
    const TransferId both = d.add(0, 1, kCopy, {}, 0, 2, 1);
    const auto after = ordered ? std::vector{both} : std::vector<TransferId>{};
    d.add(0, 2, kCopy, after, 0, 1, 1);
    d.add(0, 2, kCopy, after, 1, 1, 1);
    return d;
  };
  CHECK(problems(draft(kFp16Codec, false)) == "");
  CHECK_THAT(problems(draft(kInt8Codec, false)), Catch::Contains("is not ordered after the send"));
  CHECK_THAT(problems(draft(kInt8Codec, true)), Catch::Contains("rank 1, chunk 0: ends with other "
                                                                "bits than rank 0"));
  CHECK(problems(examples::halving_doubling(1, {kFp16Codec})) == "");
  // Both pairs encode the same halves again, and end alike.
  CHECK(problems(examples::halving_doubling(1, {kInt8Codec})) == "");
}

TEST_CASE("a link that copies with another codec than the rest ends with other bits") {
  Draft wrong = examples::ring(4, {kFp16Codec, kInt8Codec}, 0, 1);
  wrong.steps.back().transfer.codec = 2;
  CHECK_THAT(problems(wrong), Catch::Contains("ends with other bits than rank 0"));
}

TEST_CASE("an adopted value must not race with a read under another codec") {
  // The root sends fp16 to one side and FP32 to the other.
  Draft draft;
  draft.ranks = 3;
  draft.weights = {1};
  draft.codecs = {kFp16Codec};
  const TransferId a = draft.add(1, 0, kReduce, {});
  const TransferId b = draft.add(2, 0, kReduce, {});
  const TransferId lossy = draft.add(0, 1, kCopy, {a, b}, 0, 1, 1);
  draft.add(0, 2, kCopy, {a, b}, 0, 1, 0);
  CHECK_THAT(problems(draft), Catch::Contains("the send of transfer 3 (rank 0 to rank 2) is not "
                                              "ordered after the send of transfer 2"));
  // After the adoption, FP32 carries the same bits as FP16.
  draft.steps[3].dependencies.push_back(lossy);
  CHECK(problems(draft) == "");
  // The other way round rank 2 has what rank 0 had before it adopted.
  std::swap(draft.steps[2].transfer, draft.steps[3].transfer);
  CHECK_THAT(problems(draft), Catch::Contains("ends with other bits"));
}

TEST_CASE("copies with one codec need no order, whatever was sent with it before") {
  // Rank 0 sends its share to rank 1 and then copies of the same version with the same codec.
  Draft draft;
  draft.collective = Collective::kAllGather;
  draft.ranks = 4;
  draft.weights = {1};
  draft.owners = {Rank(0)};
  draft.codecs = {kInt8Codec};
  draft.add(0, 1, kCopy, {}, 0, 1, 1);
  const TransferId second = draft.add(0, 2, kCopy, {}, 0, 1, 1);
  const TransferId third = draft.add(2, 3, kCopy, {second}, 0, 1, 1);
  CHECK(problems(draft) == "");
  // Forwarded as FP32, the value is the same, but its encoded form is gone.
  draft.steps[third.index()].transfer.codec = 0;
  CHECK(problems(draft) == "");
  draft.ranks = 5;
  draft.add(3, 4, kCopy, {third}, 0, 1, 1);
  CHECK_THAT(problems(draft), Catch::Contains("ends with other bits than rank 0"));
}

TEST_CASE("a large job in which hardly anything is sent is told at once") {
  Draft draft;
  draft.ranks = 30'000;
  draft.weights.assign(5'000, 1);
  for (std::uint32_t chunk = 0; chunk < 5'000; ++chunk) {
    draft.add(1, 0, kReduce, {}, chunk);
  }
  // Gone through chunk by chunk it would take minutes.
  CHECK(problems(draft) == "chunk 0: 1 transfers move it, 30000 ranks need at least 29999\n");
}

TEST_CASE("at most sixteen problems are told, the rest counted") {
  Draft draft;
  draft.ranks = 40;
  draft.weights = {1};
  const VerifyReport report = check(draft);
  REQUIRE(report.problems.size() == 17);
  // Each rank lacks the others, and 39 have other bits than rank 0.
  CHECK(report.problems.back() == "and 63 more");
}

TEST_CASE("chunks that move together cost no more than one") {
  Draft draft = examples::exchange();
  draft.weights.assign(1'000'000, 1);
  for (auto& step : draft.steps) {
    step.transfer.chunk_count = 1'000'000;
  }
  CHECK(problems(draft) == "");
  draft.steps[1].transfer.chunk_count = 999'999;
  CHECK_THAT(problems(draft), Catch::Contains("rank 1, chunk 999999: ends without"));
}

TEST_CASE("a ring of 256 ranks is verified in well under a second") {
  const TransferGraph graph = examples::ring(256).build();
  const auto start = std::chrono::steady_clock::now();
  const VerifyReport report = verify(graph, nullptr);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  CHECK(report.ok());
  CHECK(report.transfers == 130'560);
  CHECK(report.depth == 510);
  // Generous, for sanitizers and busy machines; a quadratic check would take minutes.
  CHECK(seconds.count() < 10);
}

/// r0 — switch — r1, and r2 beside them on a link of its own to r1.
topology::Topology three_ranks() {
  topology::Topology topology("three");
  const auto node = [&](const char* name, topology::NodeKind kind) {
    topology::Node n;
    n.name = name;
    n.kind = kind;
    return topology.add_node(n);
  };
  const NodeId r0 = node("r0", topology::NodeKind::kHost);
  const NodeId r1 = node("r1", topology::NodeKind::kHost);
  const NodeId r2 = node("r2", topology::NodeKind::kHost);
  const NodeId s = node("switch", topology::NodeKind::kTor);
  for (const NodeId rank : {r0, r1, r2}) {
    topology.add_rank(rank);
  }
  const auto link = [&](NodeId a, NodeId b) {
    topology::Link l;
    l.from = a;
    l.to = b;
    l.bandwidth = 1_GBps;
    topology.add_duplex_link(l);
  };
  link(r0, s);   // links 0, 1
  link(s, r1);   // links 2, 3
  link(r1, r2);  // links 4, 5
  return topology;
}

Draft routed_exchange() {
  Draft draft = examples::tree();
  draft.steps.clear();
  draft.ranks = 3;
  draft.routes = {{LinkId(3), LinkId(1)}, {LinkId(5)}, {LinkId(0), LinkId(2)}, {LinkId(4)}};
  const TransferId a = draft.add(2, 1, kReduce, {});
  const TransferId b = draft.add(1, 0, kReduce, {a});
  const TransferId c = draft.add(0, 1, kCopy, {b});
  draft.add(1, 2, kCopy, {c});
  draft.steps[0].transfer.route = RouteId(2);
  draft.steps[1].transfer.route = RouteId(1);
  draft.steps[2].transfer.route = RouteId(3);
  draft.steps[3].transfer.route = RouteId(4);
  return draft;
}

std::string routed_problems(const Draft& draft) {
  const topology::Topology topology = three_ranks();
  std::string text;
  for (const std::string& problem : verify(draft.build(), &topology).problems) {
    text += problem + "\n";
  }
  return text;
}

TEST_CASE("routes are connected paths between the ends of their transfers") {
  CHECK(routed_problems(routed_exchange()) == "");
  Draft unpinned = routed_exchange();
  for (auto& step : unpinned.steps) {
    step.transfer.route = RouteId(0);
  }
  CHECK(routed_problems(unpinned) == "");

  Draft cut = routed_exchange();
  cut.routes[0] = {LinkId(1)};
  CHECK_THAT(routed_problems(cut), Catch::Contains("transfer 1 (rank 1 to rank 0), route 1") &&
                                       Catch::Contains("does not start at 'r1'"));
  Draft shortened = routed_exchange();
  shortened.routes[2] = {LinkId(0)};
  CHECK_THAT(routed_problems(shortened), Catch::Contains("ends at 'switch', not at 'r1'"));
  Draft unknown = routed_exchange();
  unknown.routes[3] = {LinkId(6)};
  CHECK_THAT(routed_problems(unknown), Catch::Contains("link 6 is not in the cluster"));
  CHECK_THAT(routed_problems(examples::exchange()),
             Catch::Contains("made for 2 ranks, the cluster 'three' has 3"));
}

struct WholePlan {
  topology::Topology topology = three_ranks();
  Workload workload;
  Plan plan;

  WholePlan() {
    workload.name = "w";
    workload.tensors = {{.name = "c", .elements = 10, .ready_gap = {}},
                        {.name = "b", .elements = 20, .ready_gap = {}},
                        {.name = "a", .elements = 30, .ready_gap = {}}};
    plan.cluster_name = topology.name();
    plan.cluster_digest = topology.digest();
    plan.rank_names = {"r0", "r1", "r2"};
    plan.workload_name = workload.name;
    plan.workload_digest = workload.digest();
    plan.schedules.push_back(routed_exchange().build());
    Bucket first;
    first.tensors = {0, 2};
    first.elements = 40;
    first.slice_elements = 1024;
    Bucket second = first;
    second.tensors = {1};
    second.elements = 20;
    plan.buckets = {first, second};
    plan.batch.local_batch = {8, 8, 8};
  }

  std::string problems() const {
    std::string text;
    for (const std::string& problem : verify(plan, &topology, &workload).problems) {
      text += problem + "\n";
    }
    return text;
  }
};

TEST_CASE("a plan is right as a whole") {
  const WholePlan whole;
  CHECK(whole.problems() == "");
  CHECK(verify(whole.plan, nullptr, nullptr).ok());
  CHECK(verify(whole.plan, nullptr, nullptr).transfers == 4);
}

TEST_CASE("what does not fit in a plan is named") {
  const auto expect = [](auto spoil, const std::string& words) {
    WholePlan whole;
    spoil(whole);
    CHECK_THAT(whole.problems(), Catch::Contains(words));
  };
  expect([](WholePlan& w) { w.plan.cluster_digest = "x"; }, "made for the cluster 'three'");
  expect([](WholePlan& w) { w.plan.workload_digest = "x"; }, "made for the workload 'w'");
  expect([](WholePlan& w) { w.plan.rank_names[1] = "x"; }, "rank 1 is 'x' in the plan, 'r1'");
  expect([](WholePlan& w) { w.plan.rank_names.pop_back(); }, "schedule 'tree': made for 3 ranks");
  expect([](WholePlan& w) { w.plan.rank_names.clear(); }, "no ranks");
  expect([](WholePlan& w) { w.plan.buckets[0].schedule = 1; },
         "bucket 0: schedule 1, the plan has 1");
  expect([](WholePlan& w) { w.plan.buckets[1].slice_elements = 1000; }, "bucket 1: slices of 1000");
  expect([](WholePlan& w) { w.plan.buckets[1].slice_elements = 0; }, "bucket 1: slices of 0");
  expect([](WholePlan& w) { w.plan.buckets[1].elements = 0; }, "bucket 1: 0 elements");
  expect([](WholePlan& w) { w.plan.buckets[1].elements = 21; },
         "bucket 1: 21 elements, its tensors have 20");
  expect([](WholePlan& w) { w.plan.buckets.pop_back(); }, "tensor 1 ('b') is in no bucket");
  expect([](WholePlan& w) { w.plan.buckets[1].tensors = {0}; },
         "tensor 0 is in another bucket too");
  expect([](WholePlan& w) { w.plan.buckets[1].tensors = {7}; }, "tensor 7, the workload 'w' has 3");
  expect([](WholePlan& w) { w.plan.buckets[0].tensors = {2, 0}; }, "expected ascending order");
  expect([](WholePlan& w) { w.plan.batch.local_batch.pop_back(); }, "sizes for 2 ranks");
  expect([](WholePlan& w) { w.plan.batch.local_batch[0] = 0; }, "at least 1");
  expect([](WholePlan& w) { w.plan.batch.accumulation = 0; }, "at least 1");
  expect([](WholePlan& w) { w.plan.batch.local_batch[2] = 1'000'000'000; },
         "samples in a step, expected at most 1000000000");
  for (const double rate : {-0.005, 1e308}) {
    expect([rate](WholePlan& w) { w.plan.batch.learning_rate = rate; }, "learning rate");
  }
  expect([](WholePlan& w) { w.plan.error_budget = -1; }, "error budget -1, expected 0 to");
  expect([](WholePlan& w) { w.plan.prediction.sync_share = 1.5; }, "share of synchronisation 1.5");
  expect(
      [](WholePlan& w) {
        w.plan.buckets[0].codec_tiers = {{"nowhere", Codec()}};
      },
      "on tier 'nowhere', which the cluster 'three' has not");
  expect(
      [](WholePlan& w) {
        w.plan.buckets[1].codec.kind = CodecKind::kFp16;
        w.plan.error_budget = 0;
      },
      "error budget 0, bucket 1 has codec 'fp16'");
  expect(
      [](WholePlan& w) {
        w.plan.prediction.step_time = 1_ms;
        w.plan.prediction.bound = 2_ms;
        w.plan.prediction.gap = -0.5;
      },
      "lower bound 0.002, expected at most the step of 0.001 s");
  expect(
      [](WholePlan& w) {
        w.plan.prediction.step_time = 2_ms;
        w.plan.prediction.bound = 1_ms;
        w.plan.prediction.gap = -1;
      },
      "gap -1, expected 1: step over lower bound");
  expect(
      [](WholePlan& w) {
        Draft scatter = examples::ring(3);
        scatter.collective = Collective::kReduceScatter;
        scatter.steps.resize(scatter.steps.size() / 2);
        scatter.owners = {Rank(2), Rank(0), Rank(1)};
        w.plan.schedules[0] = scatter.build();
      },
      "schedule 'ring' is no all-reduce");
}

TEST_CASE("the global batch is the sum over ranks and passes") {
  BatchPlan batch;
  batch.local_batch = {3, 4};
  batch.accumulation = 5;
  CHECK(batch.global_batch() == 35);
}

}  // namespace
}  // namespace rackrail::plan::verifier_test
