#pragma once

// An independent judge of transfer graphs: it executes one with numbers, slice by slice, in an
// order that is legal by the rules of plan/transfer_graph.hpp and otherwise random.

#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

#include "plan/encoding_source.hpp"
#include "plan/transfer_graph.hpp"

namespace rackrail::plan::examples {

/// Numbers that stand for floats: arithmetic modulo a prime is exact, so a wrong sum is wrong
/// beyond doubt. An elementwise codec drops low bits; any other is a map that changes what it
/// encodes each time and depends on all of the slice, on the op and, for reductions, on the rank.
using Number = std::uint64_t;
inline constexpr Number kPrime = 2'147'483'647;

class RandomExecution {
 public:
  /// Keeps a reference to the graph.
  RandomExecution(const TransferGraph& graph, std::int64_t elements, std::int64_t slice_elements,
                  std::uint64_t seed)
      : graph_(graph),
        sources_(encoding_sources(graph)),
        elements_(elements),
        slice_elements_(slice_elements),
        random_(seed) {
    for (std::size_t rank = 0; rank < graph.rank_count(); ++rank) {
      for (std::int64_t i = 0; i < elements; ++i) {
        buffers_.push_back(input(rank, i));
      }
    }
    for (const Transfer& transfer : graph.transfers()) {
      const std::int64_t slices = slice_count(graph.range(transfer, elements), slice_elements);
      progress_.emplace_back(static_cast<std::size_t>(slices));
    }
  }

  /// Whether it ends, and every element of every rank is the sum of all inputs.
  bool sums_exactly() {
    if (!run()) {
      return false;
    }
    for (std::int64_t i = 0; i < elements_; ++i) {
      Number sum = 0;
      for (std::size_t rank = 0; rank < graph_.rank_count(); ++rank) {
        sum = remainder(sum + input(rank, i));
      }
      for (std::size_t rank = 0; rank < graph_.rank_count(); ++rank) {
        if (at(rank, i) != sum) {
          return false;
        }
      }
    }
    return true;
  }

  /// Whether it ends, and all ranks hold the same numbers, which are left in `result`.
  bool ends_alike(std::vector<Number>& result) {
    if (!run()) {
      return false;
    }
    result.clear();
    for (std::int64_t i = 0; i < elements_; ++i) {
      result.push_back(at(0, i));
      for (std::size_t rank = 1; rank < graph_.rank_count(); ++rank) {
        if (at(rank, i) != result.back()) {
          return false;
        }
      }
    }
    return true;
  }

 private:
  /// One slice of one transfer.
  struct State {
    bool read = false;
    bool applied = false;
    std::vector<Number> wire;  ///< what is sent, element by element
  };
  /// Something that may happen next: a slice is read, or is applied.
  struct Action {
    std::size_t transfer;
    std::size_t slice;
    bool apply;
  };

  static Number remainder(Number x) { return x % kPrime; }
  static Number input(std::size_t rank, std::int64_t element) {
    return remainder((1 + rank * 1'000'003 + static_cast<Number>(element) * 7'919) * 48'271);
  }

  Number& at(std::size_t rank, std::int64_t element) {
    return buffers_[rank * static_cast<std::size_t>(elements_) + static_cast<std::size_t>(element)];
  }
  ElementRange slice_of(std::size_t id, std::size_t index) const {
    return slice(graph_.range(graph_.transfers()[id], elements_), slice_elements_,
                 static_cast<std::int64_t>(index));
  }

  std::vector<Number> encode(const Transfer& t, ElementRange range) {
    std::vector<Number> code;
    auto all = static_cast<Number>(range.size());
    for (std::int64_t i = range.begin; i < range.end; ++i) {
      code.push_back(at(t.src.index(), i));
      all += code.back();
    }
    if (graph_.codecs()[t.codec].is_elementwise()) {
      for (Number& x : code) {
        x -= x % 8;
      }
      return code;
    }
    const Number who = t.op == TransferOp::kReduce ? 1 + t.src.value() : 0;
    for (Number& x : code) {
      x = remainder(x * 5 + remainder(all) * 3 + who * 1009 + t.codec);
    }
    return code;
  }
  Number decode(std::uint8_t codec, Number code) const {
    return graph_.codecs()[codec].is_elementwise() ? code : remainder(code * 31 + codec);
  }

  /// Rules 2 and 3, for one dependency of one slice.
  bool is_done(std::size_t dependency, std::size_t dependent, std::size_t index) const {
    const Transfer& d = graph_.transfers()[dependency];
    const Transfer& t = graph_.transfers()[dependent];
    const auto done = [&](const State& s) { return d.dst == t.src ? s.applied : s.read; };
    const auto& slices = progress_[dependency];
    if (d.chunk_begin == t.chunk_begin && d.chunk_count == t.chunk_count) {
      return done(slices[index]);
    }
    return std::all_of(slices.begin(), slices.end(), done);
  }

  bool has_route_of(const Transfer& a, const Transfer& b) const {
    return graph_.routes()[a.route.index()] == graph_.routes()[b.route.index()];
  }

  bool may_read(std::size_t id, std::size_t index) const {
    const Transfer& t = graph_.transfers()[id];
    // Rule 5: a pair's transfers over one route leave in id order, slice by slice.
    if (index > 0 && !progress_[id][index - 1].read) {
      return false;
    }
    for (std::size_t earlier = 0; earlier < id; ++earlier) {
      const Transfer& e = graph_.transfers()[earlier];
      const auto& slices = progress_[earlier];
      if (e.src == t.src && e.dst == t.dst && has_route_of(e, t) && !slices.empty() &&
          !slices.back().read) {
        return false;
      }
    }
    // Rule 6: what another transfer encodes, or brings, has to be there.
    if (const EncodingSource& source = sources_[id]; source.kind != EncodingKind::kOwn) {
      const State& from = progress_[source.from.index()][index];
      if (source.kind == EncodingKind::kShared ? !from.read : !from.applied) {
        return false;
      }
    }
    const auto dependencies = graph_.dependencies(TransferId(id));
    return std::all_of(dependencies.begin(), dependencies.end(), [&](TransferId dependency) {
      return is_done(dependency.index(), id, index);
    });
  }

  bool may_apply(std::size_t id, std::size_t index) const {
    const Transfer& t = graph_.transfers()[id];
    if (t.op == TransferOp::kCopy) {
      return true;
    }
    // Rule 4: additions to the same elements in id order.
    const ElementRange mine = slice_of(id, index);
    for (std::size_t earlier = 0; earlier < id; ++earlier) {
      const Transfer& e = graph_.transfers()[earlier];
      if (e.dst != t.dst || e.op != TransferOp::kReduce) {
        continue;
      }
      for (std::size_t k = 0; k < progress_[earlier].size(); ++k) {
        const ElementRange other = slice_of(earlier, k);
        if (other.begin < mine.end && mine.begin < other.end && !progress_[earlier][k].applied) {
          return false;
        }
      }
    }
    return true;
  }

  void read(std::size_t id, std::size_t index) {
    const Transfer& t = graph_.transfers()[id];
    const ElementRange range = slice_of(id, index);
    State& state = progress_[id][index];
    state.read = true;
    if (sources_[id].kind != EncodingKind::kOwn) {
      state.wire = progress_[sources_[id].from.index()][index].wire;
      return;
    }
    const bool is_lossy = graph_.codecs()[t.codec].is_lossy();
    if (is_lossy) {
      state.wire = encode(t, range);
    }
    for (std::int64_t i = range.begin; i < range.end; ++i) {
      Number& element = at(t.src.index(), i);
      if (!is_lossy) {
        state.wire.push_back(element);
      } else if (t.op == TransferOp::kCopy) {
        element = decode(t.codec, state.wire[static_cast<std::size_t>(i - range.begin)]);
      }
    }
  }

  void apply(std::size_t id, std::size_t index) {
    const Transfer& t = graph_.transfers()[id];
    const ElementRange range = slice_of(id, index);
    State& state = progress_[id][index];
    state.applied = true;
    for (std::int64_t i = range.begin; i < range.end; ++i) {
      const Number value = decode(t.codec, state.wire[static_cast<std::size_t>(i - range.begin)]);
      Number& element = at(t.dst.index(), i);
      element = t.op == TransferOp::kReduce ? remainder(element + value) : value;
    }
  }

  /// False when nothing may happen and not everything has.
  bool run() {
    // Some transfers are slow, so that orders far from that of the ids come up.
    std::vector<bool> is_slow(progress_.size());
    for (std::size_t id = 0; id < is_slow.size(); ++id) {
      is_slow[id] = random_() % 3 == 0;
    }
    while (true) {
      std::vector<Action> fast;
      std::vector<Action> slow;
      bool everything = true;
      for (std::size_t id = 0; id < progress_.size(); ++id) {
        for (std::size_t k = 0; k < progress_[id].size(); ++k) {
          const State& state = progress_[id][k];
          if (state.applied) {
            continue;
          }
          everything = false;
          if (state.read ? may_apply(id, k) : may_read(id, k)) {
            (is_slow[id] ? slow : fast).push_back({id, k, state.read});
          }
        }
      }
      if (everything) {
        return true;
      }
      const std::vector<Action>& possible = fast.empty() ? slow : fast;
      if (possible.empty()) {
        return false;
      }
      const Action& action = possible[random_() % possible.size()];
      if (action.apply) {
        apply(action.transfer, action.slice);
      } else {
        read(action.transfer, action.slice);
      }
    }
  }

  const TransferGraph& graph_;
  std::vector<EncodingSource> sources_;
  std::int64_t elements_;
  std::int64_t slice_elements_;
  std::mt19937_64 random_;
  std::vector<Number> buffers_;
  std::vector<std::vector<State>> progress_;
};

}  // namespace rackrail::plan::examples
