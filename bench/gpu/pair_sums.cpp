#include "bench/gpu/pair_sums.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "runtime/nccl/library.hpp"

namespace rackrail::bench {
namespace {

using runtime::RankGroups;

constexpr std::size_t kDifferentValues = 31;
constexpr Duration kEndDeadline = 10_s;

float pattern(std::size_t element) { return static_cast<float>(element % kDifferentValues + 1); }

float factor_of(Rank rank) { return static_cast<float>(rank.index() + 1); }

/// Adds the transfers of a shard.
class ShardRoutes {
 public:
  ShardRoutes(plan::TransferGraph& graph, std::uint8_t codec_across, const RankGroups& groups,
              std::uint32_t shard)
      : graph_(graph), codec_across_(codec_across), groups_(groups), shard_(shard) {}

  void add_all() {
    std::vector<std::vector<TransferId>> own;  // by group
    for (std::size_t g = 0; g < groups_.size(); ++g) {
      own.emplace_back();
      if (groups_[g].size() == 2) {
        own.back() = {add(other(g), keeper(g), plan::TransferOp::kReduce, 0, {})};
      }
    }
    std::vector<TransferId> sums;
    for (std::size_t g = 1; g < groups_.size(); ++g) {
      sums.push_back(add(keeper(g), keeper(0), plan::TransferOp::kReduce, codec_across_, own[g]));
    }
    sums.insert(sums.end(), own[0].begin(), own[0].end());
    std::vector<TransferId> across = sums;  // a codec makes what is here what it made of it
    for (std::size_t g = 1; g < groups_.size(); ++g) {
      across.push_back(add(keeper(0), keeper(g), plan::TransferOp::kCopy, codec_across_, sums));
      if (groups_[g].size() == 2) {
        add(keeper(g), other(g), plan::TransferOp::kCopy, 0, {across.back()});
      }
    }
    if (groups_[0].size() == 2) {
      add(keeper(0), other(0), plan::TransferOp::kCopy, 0, across);
    }
  }

 private:
  Rank keeper(std::size_t group) const {
    return groups_[group][std::min<std::size_t>(shard_, groups_[group].size() - 1)];
  }
  Rank other(std::size_t group) const { return groups_[group][1 - shard_]; }

  TransferId add(Rank src, Rank dst, plan::TransferOp op, std::uint8_t codec,
                 const std::vector<TransferId>& after) {
    return graph_.add_transfer(
        {.src = src, .dst = dst, .chunk_begin = shard_, .op = op, .codec = codec}, after);
  }

  plan::TransferGraph& graph_;
  std::uint8_t codec_across_;
  const RankGroups& groups_;
  std::uint32_t shard_;
};

/// Joined to those of the other members; with NCCL alone nothing goes over it.
std::unique_ptr<runtime::Transport> join_transport(const SumOptions& options, Meeting& meeting) {
  if (options.path() == runtime::DevicePath::kNccl) {
    return std::move(runtime::make_in_process_transports(1).front());
  }
  std::unique_ptr<runtime::Transport> transport = runtime::make_transport(options.across);
  const std::vector<std::byte> own = transport->address();
  std::vector<std::vector<std::byte>> addresses;
  for (const std::string& address :
       meeting.exchange({reinterpret_cast<const char*>(own.data()), own.size()})) {
    const auto bytes = std::as_bytes(std::span(address));
    addresses.emplace_back(bytes.begin(), bytes.end());
  }
  transport->connect(meeting.self(), addresses);
  return transport;
}

}  // namespace

runtime::DevicePath SumOptions::path() const {
  if (across == "nccl") {
    return runtime::DevicePath::kNccl;
  }
  return inside == "nccl" ? runtime::DevicePath::kHybrid : runtime::DevicePath::kTransport;
}

RankGroups pairs_of(const std::vector<Rank>& members) {
  RankGroups groups;
  for (std::size_t m = 0; m < members.size(); ++m) {
    if (m == 0 || members[m].value() / 2 != members[m - 1].value() / 2) {
      groups.emplace_back();
    }
    groups.back().emplace_back(m);
  }
  return groups;
}

plan::Plan make_pair_plan(const SumOptions& options, const RankGroups& groups) {
  std::size_t ranks = 0;
  for (const auto& group : groups) {
    ranks += group.size();
  }
  plan::TransferGraph graph("pairs", plan::Collective::kAllReduce, ranks, {1, 1});
  const std::uint8_t codec_across = graph.add_codec(plan::parse_codec(options.codec));
  for (std::uint32_t shard = 0; shard < 2; ++shard) {
    ShardRoutes(graph, codec_across, groups, shard).add_all();
  }
  plan::Plan plan;
  plan.name = "pairs";
  for (std::size_t r = 0; r < ranks; ++r) {
    plan.rank_names.push_back(fmt::format("rank{}", r));
  }
  plan.schedules.push_back(std::move(graph));
  plan.buckets.push_back(
      {.tensors = {0}, .elements = options.elements, .slice_elements = std::int64_t{1} << 20U});
  return plan;
}

CheckedGradient::CheckedGradient(std::int64_t elements, Rank self)
    : self_(self),
      memory_(static_cast<std::size_t>(elements)),
      values_(static_cast<std::size_t>(elements)) {}

void CheckedGradient::fill() {
  for (std::size_t i = 0; i < values_.size(); ++i) {
    values_[i] = factor_of(self_) * pattern(i);
  }
  runtime::copy_to_device<float>(values_, memory_, stream_.get());
  stream_.synchronize();
}

std::uint64_t CheckedGradient::wrong(const std::vector<Rank>& members) {
  runtime::copy_to_host(memory_, std::span(values_), stream_.get());
  stream_.synchronize();
  const float total =
      std::transform_reduce(members.begin(), members.end(), 0.0F, std::plus<>(), factor_of);
  std::uint64_t count = 0;
  for (std::size_t i = 0; i < values_.size(); ++i) {
    count += values_[i] == total * pattern(i) ? 0U : 1U;
  }
  return count;
}

PairSums::PairSums(const SumOptions& options, Meeting& meeting, Shared& shared,
                   const CheckedGradient& gradient, std::uint32_t epoch)
    : plan_(make_pair_plan(options, pairs_of(meeting.members()))),
      transport_(join_transport(options, meeting)),
      executor_(make_device_plan_executor(
          plan_, meeting.self(), *transport_,
          {.stream = gradient.stream().get(),
           .path = options.path(),
           .groups = pairs_of(meeting.members()),
           .nccl = options.path() == runtime::DevicePath::kTransport
                       ? nullptr
                       : &runtime::nccl_library().functions,
           .exchange = [&meeting](const std::string& own) { return meeting.exchange(own); },
           .is_over = [&shared, epoch] { return epoch == 0 && shared.lost != Shared::kNobody; },
           .epoch = epoch})) {}

PairSums::~PairSums() {
  executor_.reset();
  transport_->close(kEndDeadline);
}

void PairSums::sum(const CheckedGradient& gradient) {
  executor_->begin_step(step_++);
  executor_->launch(BucketId(0), gradient.span());
  executor_->wait_all();
}

bool PairSums::is_staged() const {
  return runtime::is_staged(runtime::Staging::kWhereNeeded, *transport_);
}

}  // namespace rackrail::bench
