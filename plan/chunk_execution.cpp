#include "plan/chunk_execution.hpp"

#include <algorithm>
#include <functional>
#include <iterator>
#include <optional>

#include "base/random.hpp"
#include "plan/mutual_sum.hpp"

namespace rackrail::plan {
namespace {

// Identities are mixed from these so that no two kinds of expression meet by construction.
constexpr std::uint64_t kInput = 0x696e707574ULL;
constexpr std::uint64_t kSum = 0x73756dULL;
constexpr std::uint64_t kCode = 0x636f6465ULL;

std::uint64_t input_identity(Rank rank) { return random_bits(kInput, rank.value()); }

/// Commutative, as the addition of floats is, and not associative.
std::uint64_t sum_identity(std::uint64_t a, std::uint64_t b) {
  return random_bits(random_bits(kSum, std::min(a, b)), std::max(a, b));
}

/// Of D(C(value)) for an elementwise codec.
std::uint64_t decoded_identity(std::uint8_t codec, std::uint64_t value) {
  return random_bits(random_bits(kCode, codec), value);
}

/// Of D(C(value)) for any other: `transfer` encodes the value as a part of its range.
std::uint64_t decoded_identity(const Transfer& transfer, std::uint64_t value) {
  const std::uint64_t range = (std::uint64_t{transfer.chunk_begin} << 32U) | transfer.chunk_count;
  const std::uint64_t who = transfer.op == TransferOp::kReduce ? 1ULL + transfer.src.value() : 0;
  return random_bits(random_bits(decoded_identity(transfer.codec, range), who), value);
}

void set_bit(std::span<std::uint64_t> words, Rank rank) {
  words[rank.index() / 64] |= std::uint64_t{1} << (rank.index() % 64);
}

/// The first rank in `a` and not in `b`, if any.
std::optional<std::size_t> first_missing(std::span<const std::uint64_t> a,
                                         std::span<const std::uint64_t> b) {
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (const std::uint64_t missing = a[i] & ~b[i]; missing != 0) {
      return i * 64 + static_cast<std::size_t>(__builtin_ctzll(missing));
    }
  }
  return std::nullopt;
}

std::optional<std::size_t> first_common(std::span<const std::uint64_t> a,
                                        std::span<const std::uint64_t> b) {
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (const std::uint64_t common = a[i] & b[i]; common != 0) {
      return i * 64 + static_cast<std::size_t>(__builtin_ctzll(common));
    }
  }
  return std::nullopt;
}

}  // namespace

ChunkExecution::ChunkExecution(const TransferGraph& graph, ProblemList& problems)
    : graph_(graph),
      problems_(problems),
      order_(graph, problems),
      sources_(encoding_sources(graph)),
      words_((graph.rank_count() + 63) / 64),
      values_(graph.rank_count()),
      sent_(graph.transfers().size()),
      contributions_(graph.rank_count() * words_) {
  std::ranges::copy_if(
      graph.mutual_sums(), std::back_inserter(sums_),
      [&](const TransferGroup& sum) { return !mutual_sum_problem(graph, sum).has_value(); });
}

std::span<std::uint64_t> ChunkExecution::contributions(Rank rank) {
  return std::span(contributions_).subspan(rank.index() * words_, words_);
}

std::string ChunkExecution::place(Rank rank) const {
  return fmt::format("rank {}, chunk {}", rank.value(), chunk_);
}

void ChunkExecution::run(std::uint32_t chunk, std::span<const TransferId> transfers) {
  begin(chunk);
  for (std::size_t i = 0; i < transfers.size();) {
    const auto sum = std::ranges::lower_bound(sums_, transfers[i], {}, &TransferGroup::first);
    if (sum != sums_.end() && sum->first == transfers[i]) {
      apply_sum(*sum);
      i += sum->count;  // all of it move the chunk
    } else {
      apply(transfers[i++]);
    }
  }
  check_end();
}

void ChunkExecution::begin(std::uint32_t chunk) {
  chunk_ = chunk;
  order_.begin_chunk(chunk);
  std::fill(contributions_.begin(), contributions_.end(), 0);
  std::fill(values_.begin(), values_.end(), Value{});
  for (std::size_t i = 0; i < values_.size(); ++i) {
    const Rank rank(i);
    if (graph_.collective() != Collective::kAllGather || graph_.owners()[chunk] == rank) {
      values_[i] = {.defined = true, .fixed_by = 0, .identity = input_identity(rank)};
      set_bit(contributions(rank), rank);
    }
  }
}

void ChunkExecution::apply(TransferId id) {
  const Transfer& transfer = graph_.transfer(id);
  Value& from = values_[transfer.src.index()];
  Value& to = values_[transfer.dst.index()];
  const auto text = [&](std::string_view what) {
    return fmt::format("{}: transfer {} (rank {} to rank {}) {}", place(transfer.src), id.value(),
                       transfer.src.value(), transfer.dst.value(), what);
  };
  if (!from.defined) {
    problems_.add([&] { return text("sends what the rank does not have yet"); });
  }

  const Value sent = sent_value(id);
  sent_[id.index()] = sent;
  const bool is_lossy = graph_.codecs()[transfer.codec].is_lossy();
  const bool adopts = is_lossy && transfer.op == TransferOp::kCopy &&
                      sources_[id.index()].kind == EncodingKind::kOwn &&
                      sent.identity != from.identity;
  order_.read(id, sent_bytes(id), adopts);
  if (adopts) {
    from = sent;
  }

  const auto sent_set = contributions(transfer.src);
  const auto set = contributions(transfer.dst);
  if (transfer.op == TransferOp::kCopy) {
    order_.write(id);
    std::copy(sent_set.begin(), sent_set.end(), set.begin());
    to = sent;
    return;
  }
  order_.add(id);
  if (!to.defined) {
    problems_.add([&] { return text("adds to a chunk that the destination does not have yet"); });
  }
  if (const auto twice = first_common(sent_set, set)) {
    problems_.add([&] {
      return text(fmt::format("adds the contribution of rank {} a second time", *twice));
    });
  }
  std::transform(sent_set.begin(), sent_set.end(), set.begin(), set.begin(),
                 [](std::uint64_t a, std::uint64_t b) { return a | b; });
  to = {.defined = to.defined, .fixed_by = 0, .identity = sum_identity(to.identity, sent.identity)};
}

// Everyone sends before anyone adds, and then adds in the order of ranks.
void ChunkExecution::apply_sum(const TransferGroup& sum) {
  const std::vector<Rank> members = mutual_sum_members(graph_, sum);
  Value total;
  std::vector<std::uint64_t> everything(words_, 0);
  for (const Rank rank : members) {
    const Value& own = values_[rank.index()];
    const auto set = contributions(rank);
    if (!own.defined) {
      problems_.add(
          [&] { return fmt::format("{}: sums what the rank does not have yet", place(rank)); });
    }
    if (const auto twice = first_common(set, everything)) {
      problems_.add([&] {
        return fmt::format("{}: adds the contribution of rank {} a second time", place(rank),
                           *twice);
      });
    }
    std::ranges::transform(set, everything, everything.begin(), std::bit_or<>());
    total.identity =
        rank == members.front() ? own.identity : sum_identity(total.identity, own.identity);
  }
  total.defined = true;
  for (std::uint32_t i = 0; i < sum.count; ++i) {
    const TransferId id(sum.first.value() + i);
    sent_[id.index()] = values_[graph_.transfer(id).src.index()];
    order_.read(id, 0, false);
  }
  for (std::uint32_t i = 0; i < sum.count; ++i) {
    order_.add(TransferId(sum.first.value() + i));
  }
  for (const Rank rank : members) {
    values_[rank.index()] = total;
    std::ranges::copy(everything, contributions(rank).begin());
  }
}

ChunkExecution::Value ChunkExecution::sent_value(TransferId id) const {
  const EncodingSource& source = sources_[id.index()];
  if (source.kind != EncodingKind::kOwn) {
    return sent_[source.from.index()];
  }
  const Transfer& transfer = graph_.transfer(id);
  const Codec& codec = graph_.codecs()[transfer.codec];
  Value sent = values_[transfer.src.index()];
  if (!codec.is_lossy() || sent.fixed_by == transfer.codec) {
    return sent;
  }
  if (codec.is_elementwise()) {
    sent.identity = decoded_identity(transfer.codec, sent.identity);
    sent.fixed_by = transfer.codec;
  } else {
    sent.identity = decoded_identity(transfer, sent.identity);
    sent.fixed_by = 0;
  }
  return sent;
}

/// What tells apart the bytes of the reads of one phase (access_order.hpp); 0: those of the value.
std::uint64_t ChunkExecution::sent_bytes(TransferId id) const {
  const Codec& codec = graph_.codecs()[graph_.transfer(id).codec];
  if (!codec.is_lossy()) {
    return 0;
  }
  if (codec.is_elementwise()) {
    return graph_.transfer(id).codec;
  }
  // Past the numbers of the codecs.
  const EncodingSource& source = sources_[id.index()];
  return 256 + std::uint64_t{source.kind == EncodingKind::kOwn ? id.value() : source.from.value()};
}

void ChunkExecution::check_contributions(Rank rank, std::span<const std::uint64_t> expected) {
  if (!values_[rank.index()].defined) {
    problems_.add([&] { return fmt::format("{}: nothing arrives", place(rank)); });
    return;
  }
  if (const auto missing = first_missing(expected, contributions(rank))) {
    problems_.add([&] {
      return fmt::format("{}: ends without the contribution of rank {}", place(rank), *missing);
    });
  }
  if (const auto foreign = first_missing(contributions(rank), expected)) {
    problems_.add([&] {
      return fmt::format("{}: ends with a contribution of rank {}, which does not belong there",
                         place(rank), *foreign);
    });
  }
}

void ChunkExecution::check_end() {
  std::vector<std::uint64_t> expected(words_, 0);
  const bool gathers = graph_.collective() == Collective::kAllGather;
  for (std::size_t i = 0; i < values_.size(); ++i) {
    if (!gathers || graph_.owners()[chunk_] == Rank(i)) {
      set_bit(expected, Rank(i));
    }
  }
  if (graph_.collective() == Collective::kReduceScatter) {
    check_contributions(graph_.owners()[chunk_], expected);
    return;
  }
  for (std::size_t i = 0; i < values_.size(); ++i) {
    check_contributions(Rank(i), expected);
    if (values_[i].identity != values_[0].identity) {
      problems_.add([&] {
        return fmt::format(
            "{}: ends with other bits than rank 0 (another order of additions or "
            "other codecs)",
            place(Rank(i)));
      });
    }
  }
}

}  // namespace rackrail::plan
