#pragma once

// An independent judge of transfer graphs: it executes one with numbers, slice by slice, in an
// order that is legal by the rules of plan/transfer_graph.hpp and otherwise random.

#include <cstdint>
#include <map>
#include <optional>
#include <random>
#include <tuple>
#include <vector>

#include "plan/transfer_graph.hpp"

namespace rackrail::plan::examples {

/// Numbers that stand for floats: arithmetic modulo a prime is exact, so a wrong sum is wrong
/// beyond doubt; a "codec" is an affine map that changes what it encodes, each time.
using Number = std::uint64_t;
inline constexpr Number kPrime = 2'147'483'647;

class RandomExecution {
 public:
  RandomExecution(const TransferGraph& graph, std::int64_t elements, std::int64_t slice_elements,
                  std::uint64_t seed)
      : graph_(graph), elements_(elements), slice_elements_(slice_elements), random_(seed) {
    for (std::size_t rank = 0; rank < graph.rank_count(); ++rank) {
      for (std::int64_t i = 0; i < elements; ++i) {
        buffers_.push_back({input(rank, i), std::nullopt, {}});
      }
    }
    for (std::size_t id = 0; id < graph.transfers().size(); ++id) {
      const ElementRange range = graph.range(graph.transfers()[id], elements);
      const auto slices = static_cast<std::size_t>(slice_count(range, slice_elements));
      progress_.push_back(std::vector<State>(slices));
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
        sum = (sum + input(rank, i)) % kPrime;
      }
      for (std::size_t rank = 0; rank < graph_.rank_count(); ++rank) {
        if (at(rank, i).value != sum) {
          return false;
        }
      }
    }
    return true;
  }

  /// Whether it ends, and all ranks hold the same numbers; what they are is in `result`.
  bool ends_alike(std::vector<Number>& result) {
    if (!run()) {
      return false;
    }
    result.clear();
    for (std::int64_t i = 0; i < elements_; ++i) {
      result.push_back(at(0, i).value);
      for (std::size_t rank = 1; rank < graph_.rank_count(); ++rank) {
        if (at(rank, i).value != result.back()) {
          return false;
        }
      }
    }
    return true;
  }

 private:
  struct Element {
    Number value = 0;
    /// Codec and content of the encoded form that came with the value.
    std::optional<std::pair<std::uint8_t, Number>> arrived;
    /// What this version was encoded to, by codec: a version is encoded once.
    std::map<std::uint8_t, Number> encoded;
  };
  struct Sent {
    Number code = 0;
    std::uint8_t codec = 0;
  };
  struct State {
    bool read = false;
    bool applied = false;
    std::vector<Sent> wire;
  };
  /// Something that may happen next: slice `slice` of `transfer` is read, or is applied.
  struct Action {
    std::size_t transfer;
    std::size_t slice;
    bool apply;
  };

  static Number input(std::size_t rank, std::int64_t element) {
    return (1 + rank * 1'000'003 + static_cast<Number>(element) * 7'919) * 48'271 % kPrime;
  }
  static Number encode(std::uint8_t codec, Number x) { return (x * (codec + 2) + 17) % kPrime; }
  static Number decode(std::uint8_t codec, Number code) { return (code * 31 + codec) % kPrime; }

  Element& at(std::size_t rank, std::int64_t element) {
    return buffers_[rank * static_cast<std::size_t>(elements_) + static_cast<std::size_t>(element)];
  }

  /// Rule 2 and rule 3, for one dependency of one slice.
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

  bool may_read(std::size_t id, std::size_t index) const {
    const Transfer& t = graph_.transfers()[id];
    // Rule 5: a pair's transfers leave in id order, slice by slice.
    if (index > 0 && !progress_[id][index - 1].read) {
      return false;
    }
    for (std::size_t earlier = 0; earlier < id; ++earlier) {
      const Transfer& e = graph_.transfers()[earlier];
      const auto& slices = progress_[earlier];
      if (e.src == t.src && e.dst == t.dst && !slices.empty() && !slices.back().read) {
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
    if (!progress_[id][index].read) {
      return false;
    }
    if (t.op == TransferOp::kCopy) {
      return true;
    }
    // Rule 4: additions to the same elements in id order.
    const ElementRange mine =
        slice(graph_.range(t, elements_), slice_elements_, static_cast<std::int64_t>(index));
    for (std::size_t earlier = 0; earlier < id; ++earlier) {
      const Transfer& e = graph_.transfers()[earlier];
      if (e.dst != t.dst || e.op != TransferOp::kReduce) {
        continue;
      }
      for (std::size_t k = 0; k < progress_[earlier].size(); ++k) {
        const ElementRange other =
            slice(graph_.range(e, elements_), slice_elements_, static_cast<std::int64_t>(k));
        if (other.begin < mine.end && mine.begin < other.end && !progress_[earlier][k].applied) {
          return false;
        }
      }
    }
    return true;
  }

  void read(std::size_t id, std::size_t index) {
    const Transfer& t = graph_.transfers()[id];
    const ElementRange range =
        slice(graph_.range(t, elements_), slice_elements_, static_cast<std::int64_t>(index));
    State& state = progress_[id][index];
    state.read = true;
    for (std::int64_t i = range.begin; i < range.end; ++i) {
      Element& element = at(t.src.index(), i);
      if (t.codec == 0) {
        state.wire.push_back({element.value, 0});
        continue;
      }
      // Rule 6.
      Number code = 0;
      if (element.arrived && element.arrived->first == t.codec) {
        code = element.arrived->second;
      } else {
        code = element.encoded.try_emplace(t.codec, encode(t.codec, element.value)).first->second;
        if (t.op == TransferOp::kCopy) {
          element = {decode(t.codec, code), std::pair{t.codec, code}, {}};
        }
      }
      state.wire.push_back({code, t.codec});
    }
  }

  void apply(std::size_t id, std::size_t index) {
    const Transfer& t = graph_.transfers()[id];
    const ElementRange range =
        slice(graph_.range(t, elements_), slice_elements_, static_cast<std::int64_t>(index));
    State& state = progress_[id][index];
    state.applied = true;
    for (std::int64_t i = range.begin; i < range.end; ++i) {
      const Sent& sent = state.wire[static_cast<std::size_t>(i - range.begin)];
      const Number value = sent.codec == 0 ? sent.code : decode(sent.codec, sent.code);
      Element& element = at(t.dst.index(), i);
      if (t.op == TransferOp::kReduce) {
        element = {(element.value + value) % kPrime, std::nullopt, {}};
      } else if (sent.codec == 0) {
        element = {value, std::nullopt, {}};
      } else {
        element = {value, std::pair{sent.codec, sent.code}, {}};
      }
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
  std::int64_t elements_;
  std::int64_t slice_elements_;
  std::mt19937_64 random_;
  std::vector<Element> buffers_;
  std::vector<std::vector<State>> progress_;
};

}  // namespace rackrail::plan::examples
