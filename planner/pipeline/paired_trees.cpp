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
  const auto number = static_cast<std::uint32_t>(moves_.size());
  Move& move = moves_.emplace_back();
  move.weight = weight_ * range.count;
  move.route = &route(src, dst);
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
  messages_.push_back({src, dst, op, range});
}

const topology::Route& PairedTrees::route(Rank src, Rank dst) {
  const auto [known, is_new] = routes_.try_emplace(std::pair(src, dst));
  if (is_new) {
    known->second = request_.router.route(src, dst);
  }
  return known->second;
}

plan::TransferGraph PairedTrees::take() {
  GraphBuilder builder(name_, request_, weights_);
  std::vector<std::size_t> first_id = {0};  // of each move
  for (const Move& move : moves_) {
    first_id.push_back(first_id.back() + cuts_.sizes[move.part].size());
  }
  std::vector<TransferId> ids(first_id.back());
  std::vector<TransferId> after;
  for (const auto& [number, piece] :
       paced(moves_, cuts_, request_.topology, kPacedBytesOfPairs / static_cast<double>(whole_))) {
    const Move& move = moves_[number];
    after.clear();
    for (const std::uint32_t before : move.predecessors) {
      after.push_back(ids[first_id[before] + piece]);
    }
    const auto pieces = static_cast<std::uint32_t>(cuts_.sizes[move.part].size());
    const std::uint32_t smaller = chunks_of(move.part) / pieces;
    const auto& [src, dst, op, of_piece] = messages_[number];
    const GraphBuilder::Range range{first_chunk_[move.part] + piece * smaller + of_piece.begin,
                                    of_piece.count};
    ids[first_id[number] + piece] = op == plan::TransferOp::kCopy
                                        ? builder.copy(src, dst, range, after)
                                        : builder.reduce(src, dst, range, after);
  }
  return builder.take();
}

std::uint32_t PairedTrees::chunks_of(std::uint32_t tree) const {
  const auto all = static_cast<std::uint32_t>(weights_.size());
  return (tree + 1 < first_chunk_.size() ? first_chunk_[tree + 1] : all) - first_chunk_[tree];
}

}  // namespace rackrail::planner
