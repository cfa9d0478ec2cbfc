#include "plan/encoding_source.hpp"

#include <catch2/catch.hpp>

#include "tests/unit/plan/example_graphs.hpp"

namespace rackrail::plan::encoding_source_test {
namespace {

using examples::Draft;

constexpr auto kCopy = TransferOp::kCopy;
constexpr auto kReduce = TransferOp::kReduce;

Draft draft(std::size_t ranks) {
  Draft d;
  d.ranks = ranks;
  d.weights = {1, 1};
  d.codecs = {{.kind = CodecKind::kFp16}, {.kind = CodecKind::kInt8Block}};
  return d;
}

void check_source(const Draft& d, TransferId id, EncodingKind kind, TransferId from = {}) {
  const EncodingSource source = encoding_sources(d.build())[id.index()];
  CAPTURE(id.value());
  CHECK(source.kind == kind);
  CHECK(source.from == from);
}

TEST_CASE("graphs without lossy codecs encode nothing") {
  for (const EncodingSource& source : encoding_sources(examples::ring(3).build())) {
    CHECK(source.kind == EncodingKind::kOwn);
  }
}

TEST_CASE("in a ring each chunk's sum is encoded once and forwarded from then on") {
  const TransferGraph graph = examples::ring(4, {{.kind = CodecKind::kFp16}}, 1, 1).build();
  const auto sources = encoding_sources(graph);
  for (std::size_t i = 0; i < sources.size(); ++i) {
    // 12 reductions, then 4 first copies, then 8 that pass on what came.
    CHECK(sources[i].kind == (i < 16 ? EncodingKind::kOwn : EncodingKind::kForwarded));
    if (i >= 16) {
      const Transfer& from = graph.transfer(sources[i].from);
      CHECK(from.dst == graph.transfers()[i].src);
      CHECK(from.chunk_begin == graph.transfers()[i].chunk_begin);
    }
  }
}

TEST_CASE("copies of one version share, other ranges, codecs and ops do not") {
  Draft d = draft(7);
  const TransferId first = d.add(0, 1, kCopy, {}, 0, 1, 2);
  const TransferId same = d.add(0, 2, kCopy, {}, 0, 1, 2);
  const TransferId other_chunk = d.add(0, 3, kCopy, {}, 1, 1, 2);
  const TransferId passed_on = d.add(1, 6, kCopy, {first}, 0, 1, 2);
  const TransferId plain = d.add(0, 4, kCopy, {}, 0, 1, 0);
  const TransferId reduction = d.add(0, 5, kReduce, {}, 0, 1, 2);
  const TransferId wider = d.add(0, 6, kCopy, {}, 0, 2, 2);
  const TransferId other_codec = d.add(0, 5, kCopy, {}, 0, 1, 1);
  check_source(d, first, EncodingKind::kOwn);
  check_source(d, same, EncodingKind::kShared, first);
  check_source(d, other_chunk, EncodingKind::kOwn);
  check_source(d, passed_on, EncodingKind::kForwarded, first);
  check_source(d, plain, EncodingKind::kOwn);
  check_source(d, reduction, EncodingKind::kOwn);
  check_source(d, wider, EncodingKind::kOwn);
  check_source(d, other_codec, EncodingKind::kOwn);
}

TEST_CASE("a version ends where something is added, copied in, or adopted") {
  for (const TransferOp op : {kReduce, kCopy}) {
    Draft d = draft(4);
    const TransferId first = d.add(0, 1, kReduce, {}, 0, 1, 2);
    const TransferId second = d.add(0, 2, kReduce, {}, 0, 1, 2);
    const TransferId write = d.add(3, 0, op, {});
    const TransferId third = d.add(0, 1, kReduce, {write}, 0, 1, 2);
    check_source(d, second, EncodingKind::kShared, first);
    check_source(d, third, EncodingKind::kOwn);
  }
  Draft d = draft(4);
  const TransferId before = d.add(0, 1, kReduce, {}, 0, 1, 2);
  const TransferId adopted = d.add(0, 2, kCopy, {}, 0, 1, 2);
  const TransferId after = d.add(0, 3, kReduce, {}, 0, 1, 2);
  check_source(d, before, EncodingKind::kOwn);
  check_source(d, adopted, EncodingKind::kOwn);
  check_source(d, after, EncodingKind::kOwn);
}

TEST_CASE("only what came whole, in the same range and codec, is forwarded") {
  Draft d = draft(4);
  const TransferId both = d.add(0, 1, kCopy, {}, 0, 2, 2);
  const TransferId part = d.add(1, 2, kCopy, {both}, 0, 1, 2);
  check_source(d, part, EncodingKind::kOwn);

  Draft overwritten = draft(4);
  const TransferId whole = overwritten.add(0, 1, kCopy, {}, 0, 2, 2);
  const TransferId half = overwritten.add(3, 1, kCopy, {}, 1, 1, 2);
  const TransferId next = overwritten.add(1, 2, kCopy, {whole, half}, 0, 2, 2);
  const TransferId second_half = overwritten.add(1, 3, kCopy, {half}, 1, 1, 2);
  check_source(overwritten, next, EncodingKind::kOwn);
  // The transfer before adopted a new version of both halves.
  check_source(overwritten, second_half, EncodingKind::kOwn);

  Draft summed = draft(3);
  const TransferId sum = summed.add(0, 1, kReduce, {}, 0, 1, 2);
  const TransferId out = summed.add(1, 2, kCopy, {sum}, 0, 1, 2);
  check_source(summed, out, EncodingKind::kOwn);
}

}  // namespace
}  // namespace rackrail::plan::encoding_source_test
