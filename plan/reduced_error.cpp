#include "plan/reduced_error.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace rackrail::plan {

namespace {

constexpr std::size_t kMostCells = std::size_t{1} << 22U;

/// A chunk at a rank, in units of g²: what is left of what it sums up, and what encodings made of
/// the rest.
struct Cell {
  float energy = 1;
  float error = 0;
  /// The transfer whose codes it is the decoded form of, as long as nothing was added since.
  std::optional<std::uint32_t> decoded_from;
};

class Walk {
 public:
  Walk(const TransferGraph& graph, const std::function<double(const Codec&)>& error_of)
      : graph_(graph) {
    for (const Codec& codec : graph.codecs()) {
      const double error = codec.is_lossy() ? std::min(1.0, error_of(codec)) : 0;
      squares_.push_back(static_cast<float>(error * error));
    }
    const std::size_t most = std::max<std::size_t>(1, kMostCells / graph.rank_count());
    stride_ = (graph.chunk_count() + most - 1) / most;
    cells_.resize(graph.rank_count() * ((graph.chunk_count() + stride_ - 1) / stride_));
  }

  double run() {
    for (std::uint32_t id = 0; id < graph_.transfers().size(); ++id) {
      const Transfer& t = graph_.transfers()[id];
      const std::size_t end = t.chunk_begin + t.chunk_count;
      for (std::size_t chunk = (t.chunk_begin + stride_ - 1) / stride_ * stride_; chunk < end;
           chunk += stride_) {
        move(id, t, cell(t.src, chunk), cell(t.dst, chunk));
      }
    }
    double worst = 0;
    for (std::size_t r = 0; r < graph_.rank_count(); ++r) {
      worst = std::max(worst, mean_square(Rank(r)));
    }
    return std::sqrt(worst / static_cast<double>(graph_.rank_count()));
  }

 private:
  Cell& cell(Rank rank, std::size_t chunk) {
    return cells_[chunk / stride_ * graph_.rank_count() + rank.index()];
  }

  void move(std::uint32_t id, const Transfer& t, Cell& from, Cell& to) {
    const bool is_lossy = graph_.codecs()[t.codec].is_lossy();
    const bool is_encoded = is_lossy && !is_known(t, from);
    const float lost = is_encoded ? squares_[t.codec] * from.energy : 0;
    if (t.op == TransferOp::kReduce) {
      to.error += from.error + lost;
      to.energy += from.energy - lost;
      to.decoded_from.reset();
      return;
    }
    if (is_encoded) {  // the sender goes on with what the receiver decodes
      from.error += lost;
      from.energy -= lost;
      from.decoded_from = id;
    }
    to = from;
  }

  /// Whether a range is what codes of the same codec were decoded to: encoded again it gives them.
  bool is_known(const Transfer& t, const Cell& from) const {
    if (!from.decoded_from) {
      return false;
    }
    const Transfer& source = graph_.transfers()[*from.decoded_from];
    return source.codec == t.codec &&
           (graph_.codecs()[t.codec].is_elementwise() ||
            (source.chunk_begin == t.chunk_begin && source.chunk_count == t.chunk_count));
  }

  double mean_square(Rank rank) {
    double sum = 0;
    double weight = 0;
    for (std::size_t chunk = 0; chunk < graph_.chunk_count(); chunk += stride_) {
      const double of_chunk = graph_.chunk_weights()[chunk];
      sum += of_chunk * static_cast<double>(cell(rank, chunk).error);
      weight += of_chunk;
    }
    return weight > 0 ? sum / weight : 0;
  }

  const TransferGraph& graph_;
  std::vector<float> squares_;  ///< ω² by codec
  std::size_t stride_ = 1;      ///< of the chunks that are looked at
  std::vector<Cell> cells_;     ///< by chunk that is looked at, and rank
};

}  // namespace

double reduced_error(const TransferGraph& graph,
                     const std::function<double(const Codec&)>& error_of) {
  if (std::none_of(graph.transfers().begin(), graph.transfers().end(),
                   [&](const Transfer& t) { return graph.codecs()[t.codec].is_lossy(); })) {
    return 0;
  }
  return Walk(graph, error_of).run();
}

double reduced_error(const Plan& plan, const Workload& workload) {
  std::vector<double> by_schedule;
  for (const TransferGraph& graph : plan.schedules) {
    by_schedule.push_back(
        reduced_error(graph, [&](const Codec& codec) { return workload.codec_error(codec); }));
  }
  double sum = 0;
  double elements = 0;
  for (const Bucket& bucket : plan.buckets) {
    const double error = by_schedule[bucket.schedule];
    sum += static_cast<double>(bucket.elements) * error * error;
    elements += static_cast<double>(bucket.elements);
  }
  return elements > 0 ? std::sqrt(sum / elements) : 0;
}

}  // namespace rackrail::plan
