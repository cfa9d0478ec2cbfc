#include "planner/pipeline/paired_trees.hpp"

#include <algorithm>

namespace rackrail::planner {

namespace {

constexpr double kPacedBytesOfPairs = 1U << 30U;  // of the buffer that the order is made for

}  // namespace

PairedTrees::PairedTrees(std::string name, const ScheduleRequest& request, std::uint32_t slices)
    : name_(std::move(name)), request_(request), cuts_{.take_turns = true, .slices = slices} {
  for (std::size_t r = 0; r < request.topology.rank_count(); ++r) {
    devices_.push_back(plan::device_rates(request.topology, Rank(r)));
  }
}

void PairedTrees::add(const PairedTree& tree) {
  smaller_ = tree.smaller;
  first_chunk_.push_back(static_cast<std::uint32_t>(weights_.size()));
  weights_.insert(weights_.end(), tree.pieces * smaller_, tree.weight);
  weight_ = static_cast<std::int64_t>(tree.pieces) * tree.weight;
  whole_ += weight_ * smaller_;
  cuts_.sizes.emplace_back(tree.pieces, 1);
  here_.assign(devices_.size() * smaller_, {});
  for (auto arc = tree.arcs.rbegin(); arc != tree.arcs.rend(); ++arc) {
    add_messages(plan::TransferOp::kReduce, *arc);
  }
  for (const PairedArc& arc : tree.arcs) {
    add_messages(plan::TransferOp::kCopy, arc);
  }
}

void PairedTrees::add_messages(plan::TransferOp op, const PairedArc& arc) {
  const std::uint32_t count = arc.is_whole ? smaller_ : 1;
  for (std::uint32_t begin = 0; begin < smaller_; begin += count) {
    add_message(op, arc, {begin, count});
  }
}

void PairedTrees::add_message(plan::TransferOp op, const PairedArc& arc,
                              GraphBuilder::Range range) {
  const bool is_copy = op == plan::TransferOp::kCopy;
  const Rank src = is_copy ? arc.from : arc.to;
  const Rank dst = is_copy ? arc.to : arc.from;
  const topology::Route* own = is_copy ? arc.down : arc.up;
  const auto number = static_cast<std::uint32_t>(moves_.size());
  Move& move = moves_.emplace_back();
  move.weight = weight_ * range.count;
  move.route = own != nullptr ? own : &route(src, dst);
  move.part = static_cast<std::uint32_t>(first_chunk_.size() - 1);
  move.chunk = range.count < smaller_ ? 1 + range.begin : 0;
  move.latency = topology::route_latency(request_.topology, *move.route).seconds();
  if (!is_copy) {
    const plan::DeviceRates& device = devices_[dst.index()];
    move.latency += (device.wake + device.launch).seconds();
    move.seconds_per_byte = 1 / static_cast<double>(device.reduce.bytes_per_second());
  }
  for (std::uint32_t chunk = range.begin; chunk < range.begin + range.count; ++chunk) {
    const Numbers& before = here(src, chunk);
    move.predecessors.insert(move.predecessors.end(), before.begin(), before.end());
    Numbers& there = here(dst, chunk);
    if (is_copy) {
      there.clear();  // it replaces what was added
    }
    there.push_back(number);
  }
  std::ranges::sort(move.predecessors);
  move.predecessors.erase(std::unique(move.predecessors.begin(), move.predecessors.end()),
                          move.predecessors.end());
  messages_.push_back({src, dst, op, range, own != nullptr});
}

const topology::Route& PairedTrees::route(Rank src, Rank dst) {
  const auto [known, is_new] = routes_.try_emplace(std::pair(src, dst));
  if (is_new) {
    known->second = request_.router.route(src, dst);
  }
  return known->second;
}

plan::TransferGraph PairedTrees::take() {
  return in_order(
      paced(moves_, cuts_, request_.topology, kPacedBytesOfPairs / static_cast<double>(whole_)));
}

plan::TransferGraph PairedTrees::take_in_stages() { return in_order(in_stages(moves_, 1)); }

plan::TransferGraph PairedTrees::in_order(const std::vector<Turn>& turns) {
  GraphBuilder builder(name_, request_, weights_);
  std::vector<std::size_t> first_id = {0};  // of each move
  for (const Move& move : moves_) {
    first_id.push_back(first_id.back() + cuts_.sizes[move.part].size());
  }
  std::vector<TransferId> ids(first_id.back());
  std::vector<TransferId> after;
  for (const auto& [number, piece] : turns) {
    const Move& move = moves_[number];
    after.clear();
    for (const std::uint32_t before : move.predecessors) {
      after.push_back(ids[first_id[before] + piece]);
    }
    const auto pieces = static_cast<std::uint32_t>(cuts_.sizes[move.part].size());
    const std::uint32_t smaller = chunks_of(move.part) / pieces;
    const GraphBuilder::Range range = messages_[number].range;
    ids[first_id[number] + piece] =
        send(builder, number,
             {first_chunk_[move.part] + piece * smaller + range.begin, range.count}, after);
  }
  return builder.take();
}

TransferId PairedTrees::send(GraphBuilder& builder, std::uint32_t message,
                             GraphBuilder::Range range, std::span<const TransferId> after) const {
  const auto& [src, dst, op, of_piece, has_own_route] = messages_[message];
  if (has_own_route) {
    return builder.add(op, src, dst, range, after, *moves_[message].route);
  }
  return op == plan::TransferOp::kCopy ? builder.copy(src, dst, range, after)
                                       : builder.reduce(src, dst, range, after);
}

std::uint32_t PairedTrees::chunks_of(std::uint32_t tree) const {
  const auto all = static_cast<std::uint32_t>(weights_.size());
  return (tree + 1 < first_chunk_.size() ? first_chunk_[tree + 1] : all) - first_chunk_[tree];
}

}  // namespace rackrail::planner
