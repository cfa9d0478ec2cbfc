// Random damage to right schedules. What the verifier lets pass must come out exactly in every
// legal order in which it is executed with numbers, at every size of the buffer.

#include <catch2/catch.hpp>
#include <functional>
#include <random>

#include "plan/access_order.hpp"
#include "plan/verifier.hpp"
#include "tests/property/plan/random_execution.hpp"
#include "tests/unit/plan/example_graphs.hpp"

namespace rackrail::plan::verifier_property_test {
namespace {

using examples::Draft;
using examples::Number;
using examples::RandomExecution;

constexpr int kOrders = 6;
// Sizes at which some chunks are empty, each has one element, and each has several slices.
constexpr std::array<std::int64_t, 4> kSizes{1, 3, 5, 26};
constexpr std::int64_t kSliceElements = 2;

class Mutator {
 public:
  explicit Mutator(std::uint64_t seed) : random_(seed) {}

  void mutate(Draft& draft) {
    Draft::Step& step = draft.steps[below(draft.steps.size())];
    const auto ranks = draft.ranks;
    const auto chunks = draft.weights.size();
    switch (below(10)) {
      case 0:
        if (!step.dependencies.empty()) {
          step.dependencies.erase(step.dependencies.begin() +
                                  static_cast<std::ptrdiff_t>(below(step.dependencies.size())));
        }
        break;
      case 1:
        step.transfer.op =
            step.transfer.op == TransferOp::kCopy ? TransferOp::kReduce : TransferOp::kCopy;
        break;
      case 2:
        step.transfer.chunk_begin = static_cast<std::uint32_t>(below(chunks));
        step.transfer.chunk_count = 1;
        break;
      case 3:
        step.transfer.chunk_begin = static_cast<std::uint32_t>(below(chunks));
        step.transfer.chunk_count =
            static_cast<std::uint32_t>(1 + below(chunks - step.transfer.chunk_begin));
        break;
      case 4:
        step.transfer.dst = Rank((step.transfer.src.index() + 1 + below(ranks - 1)) % ranks);
        break;
      case 5: {
        // Another dependency, of those that the sender can see.
        const auto id = static_cast<std::size_t>(&step - draft.steps.data());
        for (std::size_t tries = 0; id > 0 && tries < 8; ++tries) {
          const std::size_t other = below(id);
          const Transfer& d = draft.steps[other].transfer;
          if (d.dst == step.transfer.src || d.src == step.transfer.src) {
            step.dependencies.emplace_back(other);
            break;
          }
        }
        break;
      }
      case 6:
        draft.steps.push_back(step);
        break;
      case 7: {
        const auto id = static_cast<std::size_t>(&step - draft.steps.data());
        if (id + 1 < draft.steps.size()) {
          std::swap(step.transfer, draft.steps[id + 1].transfer);
        }
        break;
      }
      case 8:
        step.transfer.codec = static_cast<std::uint8_t>(below(draft.codecs.size() + 1));
        break;
      case 9:
        // Another route: what follows on the one that it had need not wait for it any more.
        if (draft.routes.empty()) {
          draft.routes = {{LinkId(0)}, {LinkId(1)}};
        }
        step.transfer.route = RouteId(below(draft.routes.size() + 1));
        break;
      default:
        break;
    }
  }

  std::size_t below(std::size_t limit) { return static_cast<std::size_t>(random_() % limit); }

 private:
  std::mt19937_64 random_;
};

/// Whether every tried order at every size gives the exact sums.
bool always_sums(const TransferGraph& graph, std::uint64_t seed) {
  for (const std::int64_t size : kSizes) {
    for (int order = 0; order < kOrders; ++order) {
      RandomExecution execution(graph, size, kSliceElements,
                                seed + static_cast<std::uint64_t>(order));
      if (!execution.sums_exactly()) {
        return false;
      }
    }
  }
  return true;
}

/// Whether every tried order at every size gives all ranks the same numbers, the same in every
/// order.
bool always_alike(const TransferGraph& graph, std::uint64_t seed) {
  for (const std::int64_t size : kSizes) {
    std::vector<Number> first;
    for (int order = 0; order < kOrders; ++order) {
      RandomExecution execution(graph, size, kSliceElements,
                                seed + static_cast<std::uint64_t>(order));
      std::vector<Number> result;
      if (!execution.ends_alike(result)) {
        return false;
      }
      if (order == 0) {
        first = result;
      } else if (result != first) {
        return false;
      }
    }
  }
  return true;
}

std::vector<Draft> right_drafts(const std::vector<Codec>& codecs) {
  const std::uint8_t lossy = codecs.empty() ? 0 : 1;
  const auto last = static_cast<std::uint8_t>(codecs.size());
  return {examples::ring(2, codecs, lossy, last),  examples::ring(3, codecs, 0, lossy),
          examples::ring(4, codecs, lossy, lossy), examples::ring(4, codecs, last, 0),
          examples::tree(lossy, codecs),           examples::halving_doubling(lossy, codecs),
          examples::halving_doubling(last, codecs)};
}

struct Counts {
  int accepted = 0;
  int refused = 0;
  int wrongly_accepted = 0;
  int refused_and_wrong = 0;
};

Counts try_mutants(const std::vector<Draft>& drafts, int rounds, std::uint64_t seed,
                   const std::function<bool(const TransferGraph&, std::uint64_t)>& is_right) {
  Counts counts;
  Mutator mutator(seed);
  for (int round = 0; round < rounds; ++round) {
    Draft draft = drafts[static_cast<std::size_t>(round) % drafts.size()];
    for (std::size_t mutations = 1 + mutator.below(2); mutations > 0; --mutations) {
      mutator.mutate(draft);
    }
    const TransferGraph graph = draft.build();
    const std::uint64_t order_seed = seed + static_cast<std::uint64_t>(round) * 1000;
    if (verify(graph, nullptr).ok()) {
      ++counts.accepted;
      if (!is_right(graph, order_seed)) {
        ++counts.wrongly_accepted;
        UNSCOPED_INFO("accepted a wrong mutant of '" << draft.name << "' in round " << round);
      }
    } else {
      ++counts.refused;
      counts.refused_and_wrong += is_right(graph, order_seed) ? 0 : 1;
    }
  }
  return counts;
}

TEST_CASE("right schedules sum exactly in every order, as the judge sees it") {
  const std::uint64_t seed = 17;
  INFO("seed " << seed);
  for (const Draft& draft : right_drafts({})) {
    CAPTURE(draft.name, draft.ranks);
    CHECK(always_sums(draft.build(), seed));
  }
}

TEST_CASE("an order that only holds through an empty chunk is wrong, and both judges say so") {
  const std::uint64_t seed = 19;
  INFO("seed " << seed);
  Draft detour;
  detour.ranks = 2;
  detour.weights = {1, 1};
  // Of one element, chunk 1 has all and chunk 0 nothing.
  const TransferId out = detour.add(0, 1, TransferOp::kReduce, {}, 1);
  const TransferId empty = detour.add(0, 1, TransferOp::kReduce, {out}, 0);
  detour.add(1, 0, TransferOp::kCopy, {empty}, 0, 2);
  CHECK_FALSE(always_sums(detour.build(), seed));
  CHECK_FALSE(verify(detour.build(), nullptr).ok());
  detour.steps[2].dependencies = {out, empty};
  CHECK(always_sums(detour.build(), seed));
  CHECK(verify(detour.build(), nullptr).ok());
}

TEST_CASE("what the verifier lets pass sums exactly in every order") {
  const std::uint64_t seed = 23;
  INFO("seed " << seed);
  const Counts counts = try_mutants(right_drafts({}), 900, seed, always_sums);
  CHECK(counts.wrongly_accepted == 0);
  // Both kinds occur, and most of what is refused is wrong in one of the few orders tried.
  CHECK(counts.accepted > 50);
  CHECK(counts.refused > 300);
  CHECK(counts.refused_and_wrong * 2 > counts.refused);
}

TEST_CASE("what the verifier lets pass ends with the same bits on all ranks, codecs or not") {
  const std::uint64_t seed = 29;
  INFO("seed " << seed);
  const std::vector<Codec> codecs{{.kind = CodecKind::kFp16}, {.kind = CodecKind::kInt8Block}};
  for (const Draft& draft : right_drafts(codecs)) {
    CAPTURE(draft.name, draft.ranks);
    CHECK(verify(draft.build(), nullptr).ok());
    CHECK(always_alike(draft.build(), seed));
  }
  const Counts counts = try_mutants(right_drafts(codecs), 900, seed, always_alike);
  CHECK(counts.wrongly_accepted == 0);
  CHECK(counts.accepted > 50);
  CHECK(counts.refused > 300);
}

/// What AccessOrder has against the accesses of all transfers, the first searches of so many steps.
std::vector<std::string> disorder(const TransferGraph& graph, std::size_t first_steps) {
  ProblemList problems;
  AccessOrder order(graph, problems, first_steps);
  for (std::uint32_t chunk = 0; chunk < graph.chunk_count(); ++chunk) {
    order.begin_chunk(chunk);
    for (std::size_t id = 0; id < graph.transfers().size(); ++id) {
      const Transfer& t = graph.transfers()[id];
      if (chunk >= t.chunk_begin && chunk - t.chunk_begin < t.chunk_count) {
        order.read(TransferId(id), 0, false);
        t.op == TransferOp::kCopy ? order.write(TransferId(id)) : order.add(TransferId(id));
      }
    }
  }
  return problems.take();
}

TEST_CASE("searches from both ends find the same disorder as the one backwards alone") {
  constexpr std::size_t kAll = 1'000'000;
  const std::uint64_t seed = 31;
  INFO("seed " << seed);
  std::vector<Draft> drafts = right_drafts({});
  drafts.push_back(examples::ring(12));
  Mutator mutator(seed);
  int ordered = 0;
  int rounds = 0;
  for (; rounds < 1200; ++rounds) {
    Draft draft = drafts[static_cast<std::size_t>(rounds) % drafts.size()];
    for (std::size_t mutations = mutator.below(3); mutations > 0; --mutations) {
      mutator.mutate(draft);
    }
    const TransferGraph graph = draft.build();
    const std::vector<std::string> expected = disorder(graph, kAll);
    ordered += expected.empty() ? 1 : 0;
    CAPTURE(rounds, draft.name);
    for (const std::size_t steps : {1, 2, 3, 7}) {
      CHECK(disorder(graph, steps) == expected);
    }
  }
  CHECK(ordered > rounds / 4);
  CHECK(ordered < rounds * 3 / 4);
}

/// Rank 0 has two chunks; a few copies of random ranges in random codecs take them to all ranks,
/// each waiting for all that its sender can see, or for most of it.
Draft random_broadcast(std::mt19937_64& random, const std::vector<Codec>& codecs) {
  const auto below = [&random](std::size_t limit) { return static_cast<int>(random() % limit); };
  Draft draft;
  draft.name = "random broadcast";
  draft.collective = Collective::kAllGather;
  draft.ranks = 3;
  draft.weights = {1, 1};
  draft.owners = {Rank(0), Rank(0)};
  draft.codecs = codecs;
  for (std::size_t steps = 2 + random() % 4; steps > 0; --steps) {
    const int src = below(3);
    const int dst = (src + 1 + below(2)) % 3;
    const int count = 1 + below(2);
    std::vector<TransferId> dependencies;
    for (std::size_t id = 0; id < draft.steps.size(); ++id) {
      const Transfer& d = draft.steps[id].transfer;
      const bool is_visible = d.src == Rank(src) || d.dst == Rank(src);
      if (is_visible && random() % 4 != 0) {
        dependencies.emplace_back(id);
      }
    }
    draft.add(src, dst, TransferOp::kCopy, dependencies,
              static_cast<std::uint32_t>(count == 2 ? 0 : below(2)),
              static_cast<std::uint32_t>(count),
              static_cast<std::uint8_t>(below(codecs.size() + 1)));
  }
  return draft;
}

TEST_CASE("random broadcasts with codecs that are let pass end with the same bits") {
  const std::uint64_t seed = 41;
  INFO("seed " << seed);
  const std::vector<Codec> codecs{{.kind = CodecKind::kFp16}, {.kind = CodecKind::kInt8Block}};
  std::mt19937_64 random(seed);
  int accepted = 0;
  for (std::uint64_t round = 0; round < 60000; ++round) {
    const TransferGraph graph = random_broadcast(random, codecs).build();
    if (verify(graph, nullptr).ok()) {
      ++accepted;
      CAPTURE(round);
      CHECK(always_alike(graph, seed + round));
    }
  }
  CHECK(accepted > 200);
}

}  // namespace
}  // namespace rackrail::plan::verifier_property_test
