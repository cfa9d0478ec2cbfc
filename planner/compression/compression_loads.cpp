#include "planner/compression/compression_loads.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <tuple>

#include "plan/encoding_source.hpp"
#include "plan/in_network.hpp"
#include "topology/queries.hpp"

namespace rackrail::planner {

namespace {

constexpr double kEnoughCores = 2;  // one for backward, one for codecs

/// How many streams of a rank run at once at full speed: all, unless it shares a processor.
double cores_per_rank(const topology::Topology& topology, Rank rank) {
  const auto processor = topology.processor_of(rank);
  if (!processor.has_value()) {
    return kEnoughCores;
  }
  std::int64_t ranks = 0;
  for (std::size_t r = 0; r < topology.rank_count(); ++r) {
    ranks += topology.processor_of(Rank(r)) == processor ? 1 : 0;
  }
  const double share = topology.link(*processor).cpu_share;
  const double cores = share > 0 ? 1 / share : 1;
  return cores / static_cast<double>(ranks);
}

}  // namespace

/// Of one call: most find their stream idle and wait for the device to start, too.
Duration launch_of(const plan::DeviceRates& rates) { return rates.launch + rates.wake; }

/// Counts one schedule's transfers by resource.
class LoadCounter {
 public:
  using Term = ScheduleLoads::Term;
  using Counted = ScheduleLoads::Counted;

  explicit LoadCounter(const topology::Topology& topology) : topology_(topology) {
    for (std::size_t r = 0; r < topology.rank_count(); ++r) {
      rates_.push_back(plan::device_rates(topology, Rank(r)));
    }
  }

  /// By resource: links, of each rank the streams of codecs, of additions, of copies to host memory
  /// and of those from there, channels in the order in which they were met.
  std::vector<Counted> count(const plan::TransferGraph& graph) {
    counted_.assign(first_channel() + channels_.size(), {});
    find_times(graph);
    number_routes(graph);
    const auto sources = plan::encoding_sources(graph);
    const auto weights = graph.chunk_weights();
    const plan::InNetwork in_network(graph, topology_);
    for (std::size_t i = 0; i < graph.transfers().size(); ++i) {
      const plan::Transfer& transfer = graph.transfers()[i];
      const auto begin = weights.begin() + transfer.chunk_begin;
      const auto weight = std::accumulate(begin, begin + transfer.chunk_count, 0U);
      if (weight > 0) {
        add(graph, i, weight, sources[i].kind == plan::EncodingKind::kOwn, in_network);
      }
    }
    return std::move(counted_);
  }

 private:
  std::size_t codec_stream(Rank rank) const { return topology_.link_count() + rank.index(); }
  std::size_t reduce_stream(Rank rank) const {
    return topology_.link_count() + topology_.rank_count() + rank.index();
  }
  std::size_t copy_stream(Rank rank, bool out) const {
    return topology_.link_count() + (out ? 2 : 3) * topology_.rank_count() + rank.index();
  }
  std::size_t first_channel() const { return topology_.link_count() + 4 * topology_.rank_count(); }
  void number_routes(const plan::TransferGraph& graph) {
    route_numbers_.clear();
    for (const topology::Route& route : graph.routes()) {
      route_numbers_.push_back(known_routes_.emplace(route, known_routes_.size()).first->second);
    }
  }
  std::size_t channel(const plan::Transfer& transfer) {
    const std::uint64_t pair = (std::uint64_t{transfer.src.value()} << 32U) | transfer.dst.value();
    const std::size_t number = channels_
                                   .emplace(std::pair(pair, route_numbers_[transfer.route.index()]),
                                            first_channel() + channels_.size())
                                   .first->second;
    if (number >= counted_.size()) {
      counted_.resize(number + 1);
    }
    return number;
  }

  void add_term(std::size_t resource, std::size_t transfer, const Term& term) {
    Counted& counted = counted_[resource];
    counted.first = std::min(counted.first, start_[transfer]);
    counted.last = std::min(counted.last, rest_[transfer]);
    for (Term& other : counted.terms) {
      if (other.weight == term.weight && other.rate == term.rate && other.fixed == term.fixed &&
          other.codec == term.codec) {
        other.count += term.count;
        return;
      }
    }
    counted.terms.push_back(term);
  }

  void add(const plan::TransferGraph& graph, std::size_t i, std::uint32_t weight, bool encodes,
           const plan::InNetwork& in_network) {
    const plan::Transfer& transfer = graph.transfers()[i];
    const plan::Codec& codec = graph.codecs()[transfer.codec];
    const auto route = in_network.links(TransferId(i));
    Duration overhead;
    Bandwidth narrowest(INT64_MAX);
    for (const LinkId id : route) {
      const topology::Link& link = topology_.link(id);
      narrowest = std::min(narrowest, link.bandwidth);
      overhead = std::max(overhead, link.overhead);
      add_term(id.index(), i, {weight, codec, Duration(), link.bandwidth, 1});
    }
    if (!route.empty()) {
      add_term(channel(transfer), i, {weight, codec, overhead, narrowest, 1});
    }
    const plan::DeviceRates& sender = rates_[transfer.src.index()];
    const plan::DeviceRates& receiver = rates_[transfer.dst.index()];
    if (!in_network.is_counted_elsewhere(TransferId(i))) {
      const auto staging = topology::staging_between(topology_, transfer.src, transfer.dst, route);
      if (staging.out > Bandwidth()) {
        add_term(copy_stream(transfer.src, true), i,
                 {weight, codec, sender.launch, staging.out, 1});
      }
      if (staging.in > Bandwidth()) {
        add_term(copy_stream(transfer.dst, false), i,
                 {weight, codec, receiver.launch, staging.in, 1});
      }
    }
    if (!codec.is_lossy()) {
      if (transfer.op == plan::TransferOp::kReduce &&
          !in_network.is_counted_elsewhere(TransferId(i))) {
        add_term(reduce_stream(transfer.dst), i,
                 {weight, {}, launch_of(receiver), receiver.reduce, 1});
      }
      return;
    }
    const auto kind = static_cast<std::size_t>(codec.kind);
    const plan::CodecEffort effort = plan::codec_effort(codec);
    const auto rate_for = [](Bandwidth rate, double more) {
      return more == 1 ? rate : scaled(rate, 1 / more);
    };
    if (encodes) {
      add_term(
          codec_stream(transfer.src), i,
          {weight, {}, launch_of(sender), rate_for(sender.codecs[kind].encode, effort.encode), 1});
      if (transfer.op == plan::TransferOp::kCopy) {
        add_term(codec_stream(transfer.src), i,
                 {weight,
                  {},
                  launch_of(sender),
                  rate_for(sender.codecs[kind].decode, effort.decode),
                  1});
      }
    }
    add_term(codec_stream(transfer.dst), i,
             {weight,
              {},
              launch_of(receiver),
              rate_for(receiver.codecs[kind].decode, effort.decode),
              1});
  }

  /// When each transfer could start, and how long from then to the end, if none waited for a link.
  void find_times(const plan::TransferGraph& graph) {
    constexpr std::int64_t kTypicalElements = 1 << 20;
    const std::size_t count = graph.transfers().size();
    start_.assign(count, Duration());
    rest_.assign(count, Duration());
    std::vector<Duration> takes(count);
    for (std::size_t i = 0; i < count; ++i) {
      const plan::Transfer& transfer = graph.transfers()[i];
      const auto& route = graph.routes()[transfer.route.index()];
      const Bytes bytes = plan::encoded_size(graph.codecs()[transfer.codec],
                                             graph.range(transfer, kTypicalElements).size());
      takes[i] = topology::route_latency(topology_, route);
      Duration moving;
      for (const LinkId link : route) {
        moving = std::max(moving, bytes / topology_.link(link).bandwidth);
      }
      takes[i] += moving;
      for (const TransferId dependency : graph.dependencies(TransferId(i))) {
        const std::size_t d = dependency.index();
        start_[i] = std::max(start_[i], start_[d] + (arrives(graph, d, i) ? takes[d] : Duration()));
      }
    }
    for (std::size_t i = count; i-- > 0;) {
      rest_[i] = std::max(rest_[i], takes[i]);
      for (const TransferId dependency : graph.dependencies(TransferId(i))) {
        const std::size_t d = dependency.index();
        rest_[d] = std::max(rest_[d], rest_[i] + (arrives(graph, d, i) ? takes[d] : Duration()));
      }
    }
    for (std::size_t i = 0; i < count; ++i) {
      rest_[i] -= takes[i];
    }
  }

  static bool arrives(const plan::TransferGraph& graph, std::size_t dependency, std::size_t i) {
    return graph.transfers()[dependency].dst == graph.transfers()[i].src;
  }

  const topology::Topology& topology_;
  std::map<topology::Route, std::size_t> known_routes_;  ///< of all schedules, numbered
  std::vector<std::size_t> route_numbers_;               ///< by route of this one
  std::map<std::pair<std::uint64_t, std::size_t>, std::size_t> channels_;  ///< by pair and route
  std::vector<plan::DeviceRates> rates_;
  std::vector<Counted> counted_;
  std::vector<Duration> start_;
  std::vector<Duration> rest_;
};

ScheduleLoads::ScheduleLoads(std::span<const Candidate> candidates,
                             const topology::Topology& topology, const std::vector<bool>& counts) {
  LoadCounter counter(topology);
  std::vector<std::vector<Counted>> counted;
  std::size_t all = 0;
  for (std::size_t c = 0; c < candidates.size(); ++c) {
    if (!counts.empty() && !counts[c]) {
      schedules_.emplace_back();
      counted.emplace_back();
      continue;
    }
    const Candidate& candidate = candidates[c];
    const auto weights = candidate.graph.chunk_weights();
    schedules_.push_back({.all = std::accumulate(weights.begin(), weights.end(), std::int64_t{0})});
    counted.push_back(counter.count(candidate.graph));
    all = std::max(all, counted.back().size());
  }
  find_processors(topology, counted);
  // Resources that carry the same in all schedules are one.
  using Key = std::vector<std::tuple<std::size_t, std::uint32_t, std::size_t, std::int64_t,
                                     std::int64_t, std::int64_t>>;
  std::map<Key, std::size_t> classes;
  std::vector<plan::Codec> codecs;
  const auto number_of = [&codecs](const plan::Codec& codec) {
    const auto known = std::find(codecs.begin(), codecs.end(), codec);
    const auto number = static_cast<std::size_t>(known - codecs.begin());
    if (known == codecs.end()) {
      codecs.push_back(codec);
    }
    return number;
  };
  for (std::size_t resource = 0; resource < all; ++resource) {
    Key key;
    for (std::size_t c = 0; c < counted.size(); ++c) {
      if (resource >= counted[c].size()) {
        continue;
      }
      for (const Term& term : counted[c][resource].terms) {
        key.emplace_back(c, term.weight, number_of(term.codec), term.fixed.picoseconds(),
                         term.rate.bytes_per_second(), term.count);
      }
    }
    std::sort(key.begin(), key.end());
    if (key.empty() || !classes.emplace(std::move(key), resources_).second) {
      continue;
    }
    ++resources_;
    for (std::size_t c = 0; c < counted.size(); ++c) {
      Load& load = schedules_[c].loads.emplace_back();
      if (resource >= counted[c].size() || counted[c][resource].terms.empty()) {
        continue;
      }
      Counted& own = counted[c][resource];
      const double idle = (own.first + own.last).seconds();
      const double share = idle > 0 ? own.first.seconds() / idle : 0.5;
      constexpr double kSteps = 8;  // as coarse as a buffer of another size makes it
      load.lead_share = std::round(share * kSteps) / kSteps;
      load.terms = std::move(own.terms);
    }
  }
}

void ScheduleLoads::find_processors(const topology::Topology& topology,
                                    const std::vector<std::vector<Counted>>& counted) {
  double fewest = kEnoughCores;
  std::size_t crowded = 0;
  for (std::size_t r = 0; r < topology.rank_count(); ++r) {
    const double cores = cores_per_rank(topology, Rank(r));
    if (cores < fewest) {
      fewest = cores;
      crowded = r;
    }
  }
  if (fewest >= kEnoughCores) {
    return;
  }
  const double alone = std::min(1.0, fewest);
  const double beside = std::min(1.0, fewest / 2);
  compute_stretch_ = 1 / alone;
  delay_per_work_ = 1 / beside - 1 / alone;
  for (std::size_t c = 0; c < counted.size(); ++c) {
    if (!counted[c].empty()) {
      schedules_[c].codec_work = counted[c][topology.link_count() + crowded].terms;
    }
  }
}

Duration ScheduleLoads::busy(const Schedule& schedule, const std::vector<Term>& terms,
                             std::int64_t elements, std::int64_t slice_elements) const {
  Duration sum;
  for (const Term& term : terms) {
    const auto range =
        static_cast<std::int64_t>(static_cast<double>(elements) * static_cast<double>(term.weight) /
                                  static_cast<double>(schedule.all));
    const std::int64_t whole = range / slice_elements;
    const std::int64_t rest = range % slice_elements;
    const std::int64_t slices = std::max<std::int64_t>(1, whole + (rest > 0 ? 1 : 0));
    const Bytes bytes = plan::encoded_size(term.codec, slice_elements) * whole +
                        plan::encoded_size(term.codec, rest);
    sum += (term.fixed * slices + bytes / term.rate) * term.count;
  }
  return sum;
}

TimelineOption ScheduleLoads::option(std::size_t candidate, std::int64_t elements,
                                     std::int64_t slice_elements, Duration alone) const {
  const Schedule& schedule = schedules_[candidate];
  TimelineOption option;
  option.alone = alone;
  for (const Load& load : schedule.loads) {
    const Duration time = std::min(alone, busy(schedule, load.terms, elements, slice_elements));
    option.busy.push_back(time);
    option.lead.push_back(scaled(alone - time, load.lead_share));
  }
  option.delay =
      scaled(busy(schedule, schedule.codec_work, elements, slice_elements), delay_per_work_);
  return option;
}

}  // namespace rackrail::planner
