#include "planner/pipeline/forest_schedule.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <tuple>
#include <utility>

#include "base/error.hpp"
#include "plan/cost_model.hpp"
#include "planner/pipeline/builder.hpp"

namespace rackrail::planner {

namespace {

constexpr double kPacedBytes = 1U << 30U;  // of the buffer that the order of moves is made for
// Pieces that are in the order of urgency have this size; the last ones, so many, ever less, which
// empties the pipeline sooner. The first ones too would start more additions than they fill it.
constexpr std::int64_t kPieceSize = 4;
constexpr std::size_t kLastPieces = 3;
// Of routes in turns that need not be quick, times what they need.
constexpr double kMostOfRatedTurns = 1.1;

/// A chunk and the trees it takes.
struct Part {
  Rank root;
  std::int64_t weight = 0;
  const Tree* reduction = nullptr;
  const Tree* broadcast = nullptr;
};

std::map<Rank, std::vector<const Tree*>> trees_by_root(const Forest& forest) {
  std::map<Rank, std::vector<const Tree*>> by_root;
  for (const Tree& tree : forest.trees) {
    by_root[tree.root].push_back(&tree);
  }
  return by_root;
}

/// Every root's data, divided wherever the trees of either forest end. Either may be null.
std::vector<Part> parts_of(const Forest* reduction, const Forest* broadcast) {
  const std::int64_t reduction_k = reduction != nullptr ? reduction->trees_per_rank : 1;
  const std::int64_t broadcast_k = broadcast != nullptr ? broadcast->trees_per_rank : 1;
  const std::int64_t whole = std::lcm(reduction_k, broadcast_k);
  std::map<Rank, std::vector<Part>> parts;
  const auto divide = [&](const Forest* forest, std::int64_t k, const Tree* Part::*tree_of) {
    if (forest == nullptr) {
      return;
    }
    for (const auto& [root, trees] : trees_by_root(*forest)) {
      std::int64_t weight = 0;
      for (const Tree* tree : trees) {
        weight += tree->units * (whole / k);
      }
      auto& of_root = parts.try_emplace(root, std::vector<Part>{{root, weight}}).first->second;
      std::size_t next = 0;
      for (const Tree* tree : trees) {
        for (std::int64_t left = tree->units * (whole / k); left > 0; ++next) {
          if (of_root[next].weight > left) {
            Part rest = of_root[next];
            rest.weight -= left;
            of_root[next].weight = left;
            of_root.insert(of_root.begin() + static_cast<std::ptrdiff_t>(next) + 1, rest);
          }
          of_root[next].*tree_of = tree;
          left -= of_root[next].weight;
        }
      }
    }
  };
  divide(reduction, reduction_k, &Part::reduction);
  divide(broadcast, broadcast_k, &Part::broadcast);
  std::vector<Part> all;
  for (const auto& [root, of_root] : parts) {
    all.insert(all.end(), of_root.begin(), of_root.end());
  }
  return all;
}

/// What one part does along one arc.
struct Step {
  std::uint32_t part;
  plan::TransferOp op;
  TreeArc arc;
  Rank src() const { return op == plan::TransferOp::kCopy ? arc.from : arc.to; }
  Rank dst() const { return op == plan::TransferOp::kCopy ? arc.to : arc.from; }
};

/// The steps of all parts, those before which others have to wait first, and the same as moves.
struct Steps {
  std::vector<Step> steps;
  std::vector<Move> moves;
};

Steps steps_of(const std::vector<Part>& parts, const Forest* reduction, const Forest* broadcast,
               const topology::Topology& topology) {
  Steps all;
  std::vector<plan::DeviceRates> rates;  // by rank
  for (std::size_t r = 0; r < topology.rank_count(); ++r) {
    rates.push_back(plan::device_rates(topology, Rank(r)));
  }
  std::vector<std::vector<std::uint32_t>> arrivals(rates.size());  // at each rank, that count
  const auto add = [&](const Part& part, const Step& step, const Forest& forest) {
    const auto id = static_cast<std::uint32_t>(all.steps.size());
    Move move{part.weight, &forest.routes[step.arc.route], arrivals[step.src().index()]};
    move.part = step.part;
    move.latency = topology::route_latency(topology, *move.route).seconds();
    if (step.op == plan::TransferOp::kReduce) {
      const plan::DeviceRates& device = rates[step.dst().index()];
      move.latency += (device.wake + device.launch).seconds();
      move.seconds_per_byte = 1 / static_cast<double>(device.reduce.bytes_per_second());
    }
    all.moves.push_back(std::move(move));
    all.steps.push_back(step);
    auto& at = arrivals[step.dst().index()];
    if (step.op == plan::TransferOp::kCopy) {
      at.clear();  // the copy replaces what was added
    }
    at.push_back(id);
  };
  for (std::uint32_t i = 0; i < parts.size(); ++i) {
    std::fill(arrivals.begin(), arrivals.end(), std::vector<std::uint32_t>{});
    if (const Tree* tree = parts[i].reduction) {
      for (auto arc = tree->arcs.rbegin(); arc != tree->arcs.rend(); ++arc) {
        add(parts[i], {i, plan::TransferOp::kReduce, *arc}, *reduction);
      }
    }
    if (const Tree* tree = parts[i].broadcast) {
      for (const TreeArc& arc : tree->arcs) {
        add(parts[i], {i, plan::TransferOp::kCopy, arc}, *broadcast);
      }
    }
  }
  return all;
}

/// The same shares of the buffer in the smallest integers: small buffers can be divided by them
/// too.
std::vector<Part> in_lowest_terms(std::vector<Part> parts) {
  std::int64_t common = 0;
  for (const Part& part : parts) {
    common = std::gcd(common, part.weight);
  }
  for (Part& part : parts) {
    part.weight /= std::max<std::int64_t>(common, 1);
  }
  return parts;
}

/// Of a part in so many pieces, in any unit: alike, or the last ones smaller.
std::vector<std::int64_t> piece_sizes(std::size_t pieces, bool are_alike) {
  if (are_alike || pieces <= 2 * kLastPieces) {
    return std::vector<std::int64_t>(pieces, 1);
  }
  std::vector<std::int64_t> sizes(pieces, kPieceSize);
  for (std::size_t i = 0; i < kLastPieces; ++i) {
    sizes[pieces - 1 - i] = kPieceSize * static_cast<std::int64_t>(i + 1) / (kLastPieces + 1);
  }
  return sizes;
}

/// So many rounds of all parts. Where they take turns, as many pieces in all, but of about one
/// size, so that what follows a large part need not wait for longer.
Cuts cuts_of(const std::vector<std::int64_t>& weights, std::size_t rounds, Pace pace) {
  const auto whole = std::accumulate(weights.begin(), weights.end(), 0.0);
  const auto pieces = static_cast<double>(rounds * weights.size());
  Cuts cuts;
  cuts.take_turns = pace == Pace::kEvenTurns || pace == Pace::kRatedTurns;
  const bool are_alike =
      pace == Pace::kStages || pace == Pace::kEvenTurns ||
      *std::max_element(weights.begin(), weights.end()) > UINT32_MAX / kPieceSize;
  for (const std::int64_t weight : weights) {
    const double alike = std::max(1.0, static_cast<double>(weight) / whole * pieces);
    const std::size_t count =
        cuts.take_turns ? static_cast<std::size_t>(std::llround(alike)) : rounds;
    cuts.sizes.push_back(piece_sizes(count, are_alike));
  }
  return cuts;
}

/// The weights of all pieces, part by part, those of parts in proportion to theirs. Within a part
/// they are in proportion to the pieces' sizes: exactly where all parts are cut alike, else as far
/// as integers of 20 bits can be.
std::vector<std::uint32_t> chunk_weights(const std::vector<std::int64_t>& weights,
                                         const std::vector<std::vector<std::int64_t>>& sizes) {
  constexpr double kFine = 1U << 20U;
  const bool are_alike = std::all_of(sizes.begin(), sizes.end(),
                                     [&](const auto& of_part) { return of_part == sizes.front(); });
  double largest = 0;  // piece
  for (std::size_t part = 0; part < sizes.size(); ++part) {
    largest = std::max(
        largest, static_cast<double>(weights[part]) / static_cast<double>(sizes[part].size()));
  }
  const std::int64_t scale =
      are_alike ? std::accumulate(sizes[0].begin(), sizes[0].end(), std::int64_t{0})
                : std::max<std::int64_t>(1, static_cast<std::int64_t>(kFine / largest));
  std::vector<std::uint32_t> chunks;
  for (std::size_t part = 0; part < sizes.size(); ++part) {
    const auto all = std::accumulate(sizes[part].begin(), sizes[part].end(), std::int64_t{0});
    std::int64_t before = 0;
    for (const std::int64_t size : sizes[part]) {
      const std::int64_t begin = weights[part] * scale * before / all;
      before += size;
      chunks.push_back(static_cast<std::uint32_t>(weights[part] * scale * before / all - begin));
    }
  }
  return chunks;
}

std::vector<std::int64_t> weights_of(const std::vector<Part>& parts) {
  std::vector<std::int64_t> weights;
  for (const Part& part : parts) {
    weights.push_back(part.weight);
  }
  return weights;
}

/// The first so many. When the last ones come links empty, and what is left may use them as it can;
/// but buckets of a step, in few rounds, are followed by others.
std::size_t rated_rounds(std::size_t rounds) {
  return rounds > kRoundsOfBuckets ? rounds - kLastPieces : rounds;
}

plan::TransferGraph make_graph(plan::Collective collective, const Forest* reduction,
                               const Forest* broadcast, const ScheduleRequest& request,
                               std::size_t rounds, Pace pace, std::string_view name) {
  const std::vector<Part> parts = in_lowest_terms(parts_of(reduction, broadcast));
  const std::vector<std::int64_t> weights = weights_of(parts);
  const Cuts cuts = cuts_of(weights, rounds, pace);
  std::vector<Rank> owners;
  std::vector<std::size_t> first_chunk;  // of each part
  for (std::size_t part = 0; part < parts.size(); ++part) {
    first_chunk.push_back(owners.size());
    owners.insert(owners.end(), cuts.sizes[part].size(), parts[part].root);
  }
  const auto [steps, moves] = steps_of(parts, reduction, broadcast, request.topology);
  GraphBuilder builder(std::string(name), request, chunk_weights(weights, cuts.sizes), collective);
  const std::int64_t whole = std::accumulate(weights.begin(), weights.end(), std::int64_t{0});
  const std::vector<Bandwidth> rates =
      has_rates(pace) ? proportional_rates(moves, request.topology,
                                           pace == Pace::kRatedTurns ? kMostOfRatedTurns : 0)
                      : std::vector<Bandwidth>{};
  const std::vector<Turn> turns =
      pace == Pace::kStages
          ? in_stages(moves, rounds)
          : paced(moves, cuts, request.topology, kPacedBytes / static_cast<double>(whole), rates);
  std::vector<std::vector<TransferId>> ids(moves.size());  // of each move, by piece
  for (std::size_t move = 0; move < moves.size(); ++move) {
    ids[move].resize(cuts.sizes[moves[move].part].size());
  }
  std::vector<TransferId> after;
  for (const auto& [move, piece] : turns) {
    const Step& step = steps[move];
    after.clear();
    for (const std::uint32_t before : moves[move].predecessors) {
      after.push_back(ids[before][piece]);
    }
    const bool is_rated = !rates.empty() && piece < rated_rounds(cuts.sizes[step.part].size());
    ids[move][piece] = builder.add(step.op, step.src(), step.dst(),
                                   {static_cast<std::uint32_t>(first_chunk[step.part] + piece), 1},
                                   after, *moves[move].route, is_rated ? rates[move] : Bandwidth{});
  }
  const Forest& counted = reduction != nullptr ? *reduction : *broadcast;
  return with_mechanism(builder.take(std::move(owners)),
                        fmt::format("{} tree{} per rank, {}{}", counted.trees_per_rank,
                                    counted.trees_per_rank == 1 ? "" : "s", in_rounds_text(rounds),
                                    has_rates(pace) ? " at fixed rates" : ""));
}

}  // namespace

plan::TransferGraph all_gather_along(const Forest& broadcast, const ScheduleRequest& request,
                                     std::size_t rounds, Pace pace, std::string_view name) {
  return make_graph(plan::Collective::kAllGather, nullptr, &broadcast, request, rounds, pace, name);
}

plan::TransferGraph reduce_scatter_along(const Forest& reduction, const ScheduleRequest& request,
                                         std::size_t rounds, Pace pace, std::string_view name) {
  return make_graph(plan::Collective::kReduceScatter, &reduction, nullptr, request, rounds, pace,
                    name);
}

plan::TransferGraph all_reduce_along(const Forest& reduction, const Forest& broadcast,
                                     const ScheduleRequest& request, std::size_t rounds, Pace pace,
                                     std::string_view name) {
  return make_graph(plan::Collective::kAllReduce, &reduction, &broadcast, request, rounds, pace,
                    name);
}

FormShape in_rounds(const FormShape& one, const Forest* reduction, const Forest* broadcast,
                    std::size_t rounds, Pace pace) {
  const std::vector<std::int64_t> weights =
      weights_of(in_lowest_terms(parts_of(reduction, broadcast)));
  const auto whole = std::accumulate(weights.begin(), weights.end(), 0.0);
  std::size_t pieces = 0;
  std::size_t most_of_a_part = 0;
  double smallest = 1;
  FormShape shape = one;
  shape.largest_share = 0;
  const Cuts cuts = cuts_of(weights, rounds, pace);
  for (std::size_t part = 0; part < weights.size(); ++part) {
    const std::vector<std::int64_t>& sizes = cuts.sizes[part];
    const double of_unit = static_cast<double>(weights[part]) / whole /
                           std::accumulate(sizes.begin(), sizes.end(), 0.0);
    const auto [least, most] = std::minmax_element(sizes.begin(), sizes.end());
    smallest = std::min(smallest, static_cast<double>(*least) * of_unit);
    shape.largest_share = std::max(shape.largest_share, static_cast<double>(*most) * of_unit);
    pieces += sizes.size();
    most_of_a_part = std::max(most_of_a_part, sizes.size());
  }
  shape.transfers =
      one.transfers / static_cast<std::int64_t>(weights.size()) * static_cast<std::int64_t>(pieces);
  if (shape.bound) {
    // Chains of dependencies are as long, links carry as much. More pieces are rounded, and none is
    // empty once the smallest has an element.
    shape.bound->rounding = shape.bound->rounding * static_cast<std::int64_t>(most_of_a_part);
    shape.bound->fewest_elements = static_cast<std::int64_t>(std::ceil(1.001 / smallest)) + 1;
  }
  return shape;
}

}  // namespace rackrail::planner
