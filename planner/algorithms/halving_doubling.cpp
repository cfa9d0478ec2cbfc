// Recursive halving and doubling (Rabenseifner): 2·log₂ n messages per rank, each with half of what
// the one before it had, then twice.
//
// In step s, ranks whose numbers differ in bit s halve the range that they share: each sends the
// half that it gives up and keeps the other; afterwards rank i holds the sum of 1/n of the buffer,
// and the steps run backwards to copy. Bit 0 is the first step, so the largest messages go to the
// nearest rank. Ranks beyond the largest power of two hand their data to a partner first and get
// the result from it last ("folding").
#include <bit>

#include "planner/algorithms/families.hpp"
#include "planner/groups/rank_groups.hpp"
#include "planner/pipeline/move_writer.hpp"

namespace rackrail::planner {

namespace {

class HalvingDoubling final : public ScheduleFamily {
 public:
  std::string_view name() const override { return "halving-doubling"; }

  std::optional<std::string> refusal(const topology::Topology& topology,
                                     const TierCodecs& codecs) const override {
    return refuse_exchange(topology, codecs, Ranges::kJoined);
  }

  GraphSize graph_size(const topology::Topology& topology) const override {
    const std::uint64_t ranks = topology.rank_count();
    const std::uint64_t core = std::bit_floor(ranks);
    const std::uint64_t folded = 2 * (ranks - core);
    return {2 * core * static_cast<std::uint64_t>(std::countr_zero(core)) + folded,
            exchange_size(core).movements + folded * core};
  }

  bool depends_on_codecs() const override { return true; }

  plan::TransferGraph all_reduce(const ScheduleRequest& request) const override {
    const std::vector<Rank> order = near_order(request.topology);
    const std::size_t n = order.size();
    const std::size_t core = std::bit_floor(n);
    const auto steps = static_cast<std::size_t>(std::countr_zero(core));
    const auto chunks = static_cast<std::uint32_t>(core);
    MoveWriter writer("halving-doubling", request);
    writer.begin_chunks(std::vector<std::uint32_t>(core, 1));
    for (std::size_t extra = core; extra < n; ++extra) {
      writer.reduce(order[extra], order[extra - core], {0, chunks}, 0);
    }
    std::vector<MoveWriter::Range> held(core, {0, chunks});
    std::vector<std::vector<MoveWriter::Range>> history(core);
    const auto half = [](const MoveWriter::Range& range, bool upper) {
      const std::uint32_t size = range.count / 2;
      return MoveWriter::Range{range.begin + (upper ? size : 0), size};
    };
    for (std::size_t s = 0; s < steps; ++s) {
      for (std::size_t i = 0; i < core; ++i) {
        const bool upper = ((i >> s) & 1U) != 0;
        writer.reduce(order[i], order[i ^ (std::size_t{1} << s)], half(held[i], !upper), 0);
      }
      for (std::size_t i = 0; i < core; ++i) {
        history[i].push_back(held[i]);
        held[i] = half(held[i], ((i >> s) & 1U) != 0);
      }
    }
    for (std::size_t s = steps; s-- > 0;) {
      for (std::size_t i = 0; i < core; ++i) {
        writer.copy(order[i], order[i ^ (std::size_t{1} << s)], held[i], 0);
      }
      for (std::size_t i = 0; i < core; ++i) {
        held[i] = history[i][s];
      }
    }
    for (std::size_t extra = core; extra < n; ++extra) {
      writer.copy(order[extra - core], order[extra], {0, chunks}, 0);
    }
    return writer.take();
  }
};

}  // namespace

std::unique_ptr<ScheduleFamily> make_halving_doubling() {
  return std::make_unique<HalvingDoubling>();
}

}  // namespace rackrail::planner
