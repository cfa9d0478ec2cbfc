#include "planner/pipeline/pipeline_writer.hpp"

#include <algorithm>

namespace rackrail::planner {

namespace {

constexpr double kPacedBytes = 1U << 30U;  // of the buffer that the order of moves is made for
// Of routes in turns that need not be quick, times what they need.
constexpr double kMostOfRatedTurns = 1.1;

/// How many pieces of a part have rates.
std::size_t rated_pieces(std::size_t pieces) {
  return pieces > kRoundsOfBuckets ? pieces - kLastPieces : pieces;
}

}  // namespace

PipelineWriter::PipelineWriter(std::string name, const ScheduleRequest& request,
                               plan::Collective what)
    : name_(std::move(name)), request_(request), what_(what) {
  for (std::size_t r = 0; r < request.topology.rank_count(); ++r) {
    devices_.push_back(plan::device_rates(request.topology, Rank(r)));
  }
}

void PipelineWriter::begin_part(Rank owner, std::int64_t weight, std::vector<std::int64_t> sizes,
                                std::span<const std::uint32_t> chunk_weights) {
  const auto chunks = static_cast<std::uint32_t>(chunk_weights.size() / sizes.size());
  parts_.push_back({static_cast<std::uint32_t>(weights_.size()), chunks});
  weights_.insert(weights_.end(), chunk_weights.begin(), chunk_weights.end());
  owners_.insert(owners_.end(), chunk_weights.size(), owner);
  cuts_.sizes.push_back(std::move(sizes));
  weight_ = weight;
  whole_ += weight * chunks;
  here_.assign(devices_.size() * chunks, {});
}

void PipelineWriter::move(plan::TransferOp op, Rank src, Rank dst, Range of_piece,
                          const topology::Route* route) {
  const Message message{src, dst, route, {}};
  add(op, of_piece, {&message, 1}, route != nullptr ? *route : usual_route(src, dst));
}

void PipelineWriter::operation(plan::TransferOp op, Rank root, std::span<const Rank> leaves,
                               std::span<const topology::Route> routes,
                               const topology::Route& links) {
  std::vector<Message> messages;
  for (std::size_t i = 0; i < leaves.size(); ++i) {
    const auto [src, dst] =
        op == plan::TransferOp::kCopy ? std::pair(root, leaves[i]) : std::pair(leaves[i], root);
    messages.push_back({src, dst, &routes[i], {}});
  }
  add(op, {}, messages, links);
}

void PipelineWriter::add(plan::TransferOp op, Range of_piece, std::span<const Message> messages,
                         const topology::Route& links) {
  const auto number = static_cast<std::uint32_t>(moves_.size());
  const auto first = static_cast<std::uint32_t>(messages_.size());
  Move& move = moves_.emplace_back();
  move.weight = weight_ * of_piece.count;
  move.route = &links;
  move.part = part();
  move.chunk = of_piece.count < parts_.back().chunks ? 1 + of_piece.begin : 0;
  move.latency = topology::route_latency(request_.topology, links).seconds();
  if (op == plan::TransferOp::kReduce) {
    const plan::DeviceRates& device = devices_[messages.front().dst.index()];
    move.latency += (device.wake + device.launch).seconds();
    move.seconds_per_byte = 1 / static_cast<double>(device.reduce.bytes_per_second());
  }
  for (const Message& message : messages) {
    Message& added = messages_.emplace_back(message);
    for (std::uint32_t i = 0; i < of_piece.count; ++i) {
      const Numbers& before = here(message.src, of_piece.begin + i);
      added.after.insert(added.after.end(), before.begin(), before.end());
    }
    std::ranges::sort(added.after);
    added.after.erase(std::ranges::unique(added.after).begin(), added.after.end());
    for (const std::uint32_t before : added.after) {
      move.predecessors.push_back(step_of_[before]);
    }
  }
  for (auto message = first; message < messages_.size(); ++message) {
    for (std::uint32_t i = 0; i < of_piece.count; ++i) {
      Numbers& there = here(messages_[message].dst, of_piece.begin + i);
      if (op == plan::TransferOp::kCopy) {
        there.clear();  // it replaces what was added
      }
      there.push_back(message);
    }
  }
  step_of_.resize(messages_.size(), number);
  steps_.push_back({op, of_piece, first, static_cast<std::uint32_t>(messages.size())});
}

const topology::Route& PipelineWriter::usual_route(Rank src, Rank dst) {
  const auto [known, is_new] = usual_routes_.try_emplace(std::pair(src, dst));
  if (is_new) {
    known->second = request_.router.route(src, dst);
  }
  return known->second;
}

std::vector<Bandwidth> PipelineWriter::rates_of_moves(Pace pace) const {
  if (!has_rates(pace)) {
    return {};
  }
  return proportional_rates(moves_, request_.topology,
                            pace == Pace::kRatedTurns ? kMostOfRatedTurns : 0);
}

plan::TransferGraph PipelineWriter::take(Pace pace, std::uint32_t slices) {
  cuts_.take_turns = take_turns(pace);
  cuts_.slices = slices;
  const std::vector<Bandwidth> rates = rates_of_moves(pace);
  const std::vector<Turn> turns = are_in_stages(pace)
                                      ? in_stages(moves_, cuts_.sizes.front().size())
                                      : paced(moves_, cuts_, request_.topology,
                                              kPacedBytes / static_cast<double>(whole_), rates);
  std::vector<std::size_t> first_id = {0};  // of each message
  for (const std::uint32_t step : step_of_) {
    first_id.push_back(first_id.back() + cuts_.sizes[moves_[step].part].size());
  }
  std::vector<TransferId> ids(first_id.back());
  std::vector<TransferId> after;
  GraphBuilder builder(name_, request_, weights_, what_);
  for (const auto& [number, piece] : turns) {
    const Step& step = steps_[number];
    const Part& part = parts_[moves_[number].part];
    const Range range{part.first_chunk + piece * part.chunks + step.of_piece.begin,
                      step.of_piece.count};
    const bool is_rated =
        !rates.empty() && piece < rated_pieces(cuts_.sizes[moves_[number].part].size());
    for (auto m = step.first; m < step.first + step.count; ++m) {
      const Message& message = messages_[m];
      after.clear();
      for (const std::uint32_t before : message.after) {
        after.push_back(ids[first_id[before] + piece]);
      }
      TransferId& id = ids[first_id[m] + piece];
      if (message.route != nullptr) {
        id = builder.add(step.op, message.src, message.dst, range, after, *message.route,
                         is_rated ? rates[number] : Bandwidth{});
      } else {
        id = step.op == plan::TransferOp::kCopy
                 ? builder.copy(message.src, message.dst, range, after)
                 : builder.reduce(message.src, message.dst, range, after);
      }
    }
    if (step.count > 1) {
      builder.group(ids[first_id[step.first] + piece], step.count);
    }
  }
  return builder.take(std::move(owners_));
}

}  // namespace rackrail::planner
