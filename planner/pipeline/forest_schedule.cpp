#include "planner/pipeline/forest_schedule.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <span>
#include <utility>

#include "planner/pipeline/pipeline_writer.hpp"

namespace rackrail::planner {

namespace {

// Pieces that are in the order of urgency have this size; the last ones, so many, ever less, which
// empties the pipeline sooner. The first ones too would start more additions than they fill it.
constexpr std::int64_t kPieceSize = 4;

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

/// Of each part, so many rounds of all of them. Where they take turns, as many pieces in all, but
/// of about one size, so that what follows a large part need not wait for longer.
std::vector<std::vector<std::int64_t>> sizes_of(const std::vector<std::int64_t>& weights,
                                                std::size_t rounds, Pace pace) {
  const auto whole = std::accumulate(weights.begin(), weights.end(), 0.0);
  const auto pieces = static_cast<double>(rounds * weights.size());
  const bool are_alike =
      are_in_stages(pace) || pace == Pace::kEvenTurns ||
      *std::max_element(weights.begin(), weights.end()) > UINT32_MAX / kPieceSize;
  std::vector<std::vector<std::int64_t>> sizes;
  for (const std::int64_t weight : weights) {
    const double alike = std::max(1.0, static_cast<double>(weight) / whole * pieces);
    sizes.push_back(piece_sizes(
        take_turns(pace) ? static_cast<std::size_t>(std::llround(alike)) : rounds, are_alike));
  }
  return sizes;
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

plan::TransferGraph make_graph(plan::Collective collective, const Forest* reduction,
                               const Forest* broadcast, const ScheduleRequest& request,
                               std::size_t rounds, Pace pace, std::string_view name) {
  const std::vector<Part> parts = in_lowest_terms(parts_of(reduction, broadcast));
  const std::vector<std::int64_t> weights = weights_of(parts);
  std::vector<std::vector<std::int64_t>> sizes = sizes_of(weights, rounds, pace);
  const std::vector<std::uint32_t> chunks = chunk_weights(weights, sizes);
  std::span<const std::uint32_t> left = chunks;
  PipelineWriter writer(std::string(name), request, collective);
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const auto& [root, weight, up, down] = parts[i];
    const std::size_t pieces = sizes[i].size();
    writer.begin_part(root, weight, std::move(sizes[i]), left.first(pieces));
    left = left.subspan(pieces);
    if (up != nullptr) {
      for (auto arc = up->arcs.rbegin(); arc != up->arcs.rend(); ++arc) {
        writer.move(plan::TransferOp::kReduce, arc->to, arc->from, {},
                    &reduction->routes[arc->route]);
      }
    }
    if (down != nullptr) {
      for (const TreeArc& arc : down->arcs) {
        writer.move(plan::TransferOp::kCopy, arc.from, arc.to, {}, &broadcast->routes[arc.route]);
      }
    }
  }
  const Forest& counted = reduction != nullptr ? *reduction : *broadcast;
  return with_mechanism(writer.take(pace),
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
  PieceShares shares;
  std::size_t pieces = 0;
  const std::vector<std::vector<std::int64_t>> all = sizes_of(weights, rounds, pace);
  for (std::size_t part = 0; part < weights.size(); ++part) {
    const std::vector<std::int64_t>& sizes = all[part];
    const double of_unit = static_cast<double>(weights[part]) / whole /
                           std::accumulate(sizes.begin(), sizes.end(), 0.0);
    const auto [least, most] = std::minmax_element(sizes.begin(), sizes.end());
    shares.smallest = std::min(shares.smallest, static_cast<double>(*least) * of_unit);
    shares.largest = std::max(shares.largest, static_cast<double>(*most) * of_unit);
    shares.times = std::max(shares.times, static_cast<std::int64_t>(sizes.size()));
    pieces += sizes.size();
  }
  return in_pieces(one, shares,
                   one.transfers / static_cast<std::int64_t>(weights.size()) *
                       static_cast<std::int64_t>(pieces));
}

}  // namespace rackrail::planner
