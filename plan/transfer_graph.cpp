#include "plan/transfer_graph.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "base/error.hpp"

namespace rackrail::plan {
namespace {

// Codecs are numbered in 8 bits, ids in 32.
constexpr std::size_t kMostCodecs = 256;
constexpr std::size_t kMostIds = std::numeric_limits<std::uint32_t>::max();

/// `what` below `limit`, or a PlanError that says so.
void require_below(std::uint64_t value, std::uint64_t limit, const char* what, std::size_t id) {
  if (value >= limit) {
    throw PlanError(ErrorContext{.file = {},
                                 .where = fmt::format("transfer {}", id),
                                 .found = fmt::format("{} {}", what, value),
                                 .expected = fmt::format("a number below {}", limit)});
  }
}

}  // namespace

TransferGraph::TransferGraph(std::string name, Collective collective, std::size_t rank_count,
                             std::vector<std::uint32_t> chunk_weights)
    : name_(std::move(name)),
      collective_(collective),
      rank_count_(rank_count),
      chunk_weights_(std::move(chunk_weights)) {
  if (rank_count_ == 0 || rank_count_ >= kMostIds) {
    throw PlanError(ErrorContext{.file = {},
                                 .where = fmt::format("schedule '{}'", name_),
                                 .found = fmt::format("{} ranks", rank_count_),
                                 .expected = "at least one rank"});
  }
  cumulative_weights_.reserve(chunk_weights_.size() + 1);
  cumulative_weights_.push_back(0);
  for (const std::uint32_t weight : chunk_weights_) {
    cumulative_weights_.push_back(cumulative_weights_.back() + weight);
  }
  if (cumulative_weights_.back() == 0 || chunk_weights_.size() >= kMostIds) {
    throw PlanError(
        ErrorContext{.file = {},
                     .where = fmt::format("schedule '{}', chunk weights", name_),
                     .found = fmt::format("{} chunks of weight {} in all", chunk_weights_.size(),
                                          cumulative_weights_.back()),
                     .expected = "at least one chunk and a positive sum"});
  }
}

std::span<const TransferId> TransferGraph::dependencies(TransferId id) const {
  const std::size_t begin = dependency_begin_[id.index()];
  const std::size_t end = dependency_begin_[id.index() + 1];
  return std::span(dependencies_).subspan(begin, end - begin);
}

std::uint8_t TransferGraph::add_codec(const Codec& codec) {
  const auto known = std::find(codecs_.begin(), codecs_.end(), codec);
  if (known != codecs_.end()) {
    return static_cast<std::uint8_t>(known - codecs_.begin());
  }
  if (codecs_.size() == kMostCodecs) {
    throw PlanError(ErrorContext{.file = {},
                                 .where = fmt::format("schedule '{}', codecs", name_),
                                 .found = fmt::format("more than {} codecs", kMostCodecs),
                                 .expected = "fewer"});
  }
  codecs_.push_back(codec);
  return static_cast<std::uint8_t>(codecs_.size() - 1);
}

void TransferGraph::remove_codecs() {
  codecs_.resize(1);
  for (Transfer& transfer : transfers_) {
    transfer.codec = 0;
  }
}

RouteId TransferGraph::add_route(std::vector<LinkId> links, Bandwidth rate) {
  if (rate < Bandwidth{}) {
    throw PlanError(ErrorContext{.file = {},
                                 .where = fmt::format("rate of route {}", routes_.size()),
                                 .found = fmt::format("{} B/s", rate.bytes_per_second()),
                                 .expected = "at least 0 (0: no limit)"});
  }
  if (links.empty()) {
    return RouteId(0);
  }
  routes_.push_back(std::move(links));
  rates_.push_back(rate);
  return RouteId(routes_.size() - 1);
}

bool TransferGraph::has_rates() const {
  return std::any_of(rates_.begin(), rates_.end(), [](Bandwidth r) { return r != Bandwidth{}; });
}

TransferId TransferGraph::add_transfer(const Transfer& transfer,
                                       std::span<const TransferId> dependencies) {
  const std::size_t id = transfers_.size();
  require_below(transfer.src.value(), rank_count_, "source rank", id);
  require_below(transfer.dst.value(), rank_count_, "destination rank", id);
  require_below(transfer.chunk_begin, chunk_count(), "first chunk", id);
  require_below(transfer.codec, codecs_.size(), "codec", id);
  require_below(transfer.route.value(), routes_.size(), "route", id);
  if (transfer.chunk_count == 0 || transfer.chunk_count > chunk_count() - transfer.chunk_begin) {
    throw PlanError(ErrorContext{
        .file = {},
        .where = fmt::format("transfer {}", id),
        .found = fmt::format("{} chunks from chunk {}", transfer.chunk_count, transfer.chunk_begin),
        .expected = fmt::format("1 to {}", chunk_count() - transfer.chunk_begin)});
  }
  if (transfer.src == transfer.dst) {
    throw PlanError(ErrorContext{.file = {},
                                 .where = fmt::format("transfer {}", id),
                                 .found = fmt::format("rank {} at both ends", transfer.src.value()),
                                 .expected = "two different ranks"});
  }
  for (const TransferId dependency : dependencies) {
    require_below(dependency.value(), id, "dependency on transfer", id);
  }
  require_below(dependencies_.size() + dependencies.size(), kMostIds, "dependency number", id);
  dependencies_.insert(dependencies_.end(), dependencies.begin(), dependencies.end());
  dependency_begin_.push_back(static_cast<std::uint32_t>(dependencies_.size()));
  transfers_.push_back(transfer);
  return TransferId(id);
}

void TransferGraph::add_to(std::vector<TransferGroup>& groups, const char* what, TransferId first,
                           std::uint32_t count) const {
  const std::size_t begin = groups.empty() ? 0 : groups.back().first.index() + groups.back().count;
  const std::size_t end = first.index() + std::size_t{count};
  if (count < 2 || first.index() < begin || end > transfers_.size()) {
    throw PlanError(ErrorContext{
        .file = {},
        .where = fmt::format("{} {}", what, groups.size()),
        .found = fmt::format("{} transfers from transfer {}", count, first.value()),
        .expected = fmt::format("at least two of transfers {} to {}", begin, transfers_.size())});
  }
  groups.push_back({first, count});
}

void TransferGraph::add_group(TransferId first, std::uint32_t count) {
  add_to(groups_, "group", first, count);
}

void TransferGraph::add_mutual_sum(TransferId first, std::uint32_t count) {
  add_to(mutual_sums_, "mutual sum", first, count);
}

void TransferGraph::add_groups_of(const TransferGraph& other) {
  for (const TransferGroup& group : other.groups()) {
    add_group(group.first, group.count);
  }
}

void TransferGraph::add_mutual_sums_of(const TransferGraph& other) {
  for (const TransferGroup& sum : other.mutual_sums()) {
    add_mutual_sum(sum.first, sum.count);
  }
}

void TransferGraph::reserve(std::size_t transfers, std::size_t dependencies) {
  transfers_.reserve(transfers);
  dependency_begin_.reserve(transfers + 1);
  dependencies_.reserve(dependencies);
}

ElementRange TransferGraph::range(std::uint32_t chunk_begin, std::uint32_t chunk_count,
                                  std::int64_t elements) const {
  // Rounding down the cumulative share makes neighbours meet exactly. 128 bits: 2³² chunks of
  // weight 2³² times 2⁶³ elements do not fit into 64.
  __extension__ using Wide = unsigned __int128;
  const auto boundary = [&](std::size_t chunk) {
    const Wide share = static_cast<Wide>(elements) * cumulative_weights_[chunk];
    return static_cast<std::int64_t>(share / cumulative_weights_.back());
  };
  return {boundary(chunk_begin), boundary(std::size_t{chunk_begin} + chunk_count)};
}

void TransferGraph::set_owners(std::vector<Rank> owners) {
  const auto unknown = std::find_if(owners.begin(), owners.end(),
                                    [this](Rank rank) { return rank.index() >= rank_count_; });
  const bool all_reduce = collective_ == Collective::kAllReduce;
  const std::size_t expected = all_reduce ? 0 : chunk_count();
  if (owners.size() != expected || unknown != owners.end()) {
    throw PlanError(ErrorContext{
        .file = {},
        .where = fmt::format("schedule '{}', owners", name_),
        .found = unknown != owners.end() ? fmt::format("rank {}", unknown->value())
                                         : fmt::format("{} owners", owners.size()),
        .expected = fmt::format("{} owners, each a rank below {}", expected, rank_count_)});
  }
  owners_ = std::move(owners);
}

std::vector<RouteId> distinct_routes(const TransferGraph& graph) {
  const auto routes = graph.routes();
  std::vector<std::size_t> by_links(routes.size());
  std::iota(by_links.begin(), by_links.end(), std::size_t{0});
  std::stable_sort(by_links.begin(), by_links.end(),
                   [&](std::size_t a, std::size_t b) { return routes[a] < routes[b]; });
  std::vector<RouteId> first(routes.size());
  for (std::size_t i = 0; i < by_links.size(); ++i) {
    const bool is_known = i > 0 && routes[by_links[i]] == routes[by_links[i - 1]];
    first[by_links[i]] = is_known ? first[by_links[i - 1]] : RouteId(by_links[i]);
  }
  return first;
}

std::int64_t slice_count(ElementRange range, std::int64_t slice_elements) {
  if (slice_elements <= 0) {
    throw PlanError(ErrorContext{.file = {},
                                 .where = "slice size",
                                 .found = fmt::format("{} elements", slice_elements),
                                 .expected = "a positive number"});
  }
  const std::int64_t size = range.size();
  return size / slice_elements + (size % slice_elements != 0 ? 1 : 0);
}

ElementRange slice(ElementRange range, std::int64_t slice_elements, std::int64_t index) {
  const std::int64_t begin = range.begin + index * slice_elements;
  return {begin, range.end - begin < slice_elements ? range.end : begin + slice_elements};
}

}  // namespace rackrail::plan
