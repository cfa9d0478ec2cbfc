// What the codecs' inner loops share. They are written once, with the vectors of Highway
// (hwy/highway.h), and compiled for several instruction sets; which one runs is decided at run
// time, because one binary must run on every machine of a cluster.
//
// A .cpp file with such loops names itself as HWY_TARGET_INCLUDE and includes hwy/foreach_target.h
// before this header and others that are for each instruction set (*_loops.hpp): it is then
// compiled once for each, with another HWY_NAMESPACE, and once more with HWY_ONCE for all the rest.
//
// All instruction sets give the same bits: loops use only operations that IEEE 754 defines exactly,
// in an order that does not depend on the width of vectors, and nothing is contracted to a fused
// multiply-add.
//
// Between HWY_BEFORE_NAMESPACE and HWY_AFTER_NAMESPACE, use of the standard library is what is
// always inlined or constexpr: a function of it, compiled here for a newer processor, could be the
// one that all other code is linked to.

// Once for each instruction set.
#if defined(RACKRAIL_PLAN_CODECS_VECTORS_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef RACKRAIL_PLAN_CODECS_VECTORS_HPP
#undef RACKRAIL_PLAN_CODECS_VECTORS_HPP
#else
#define RACKRAIL_PLAN_CODECS_VECTORS_HPP
#endif

#include <hwy/highway.h>

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "plan/codecs/bytes.hpp"

HWY_BEFORE_NAMESPACE();
namespace rackrail::plan::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

/// The widest vectors there are.
using Floats = hn::ScalableTag<float>;
/// For loops that wait for memory, not for arithmetic: vectors of at most 32 bytes. Slices are
/// aligned to 16 bytes only, so that every vector of 64 would lie in two cache lines.
using StreamedFloats = hn::CappedTag<float, 8>;
/// One element, for what does not fill a vector.
using OneFloat = hn::CappedTag<float, 1>;

/// step(tag, i) for all elements below `count`: those of one vector from i on.
template <class D, class Step>
HWY_INLINE void each_vector(D d, std::size_t count, Step step) {
  std::size_t i = 0;
  for (; i + hn::Lanes(d) <= count; i += hn::Lanes(d)) {
    step(d, i);
  }
  for (; i < count; ++i) {
    step(OneFloat(), i);
  }
}

/// Whether D is a tag of one element, which Highway may read and write as what it is in C++: only
/// where it is aligned.
template <class D>
inline constexpr bool kIsOne = std::is_same_v<D, hn::CappedTag<hn::TFromD<D>, 1>>;

/// The vector whose bytes start at `from`, which needs no alignment.
template <class D>
HWY_INLINE hn::Vec<D> load_vector(D d, const std::byte* from) {
  if constexpr (kIsOne<D>) {
    return hn::Set(d, load<hn::TFromD<D>>(from));
  } else {
    return hn::LoadU(d, reinterpret_cast<const hn::TFromD<D>*>(from));
  }
}

template <class D>
HWY_INLINE void store_vector(hn::Vec<D> v, D d, std::byte* to) {
  if constexpr (kIsOne<D>) {
    store(to, hn::GetLane(v));
  } else {
    hn::StoreU(v, d, reinterpret_cast<hn::TFromD<D>*>(to));
  }
}

/// Bits of the largest |value(tag, i)| of the elements below `count`, as an integer: order of
/// magnitude, then infinity, then NaN.
template <class Value>
HWY_INLINE std::uint32_t largest_magnitude_of(std::size_t count, Value value) {
  const auto magnitude = [](auto d, auto v) HWY_ATTR {
    return hn::BitCast(hn::RebindToUnsigned<decltype(d)>(), hn::Abs(v));
  };
  const Floats d;
  const hn::RebindToUnsigned<Floats> bits;
  auto largest = hn::Zero(bits);
  std::size_t i = 0;
  for (; i + hn::Lanes(d) <= count; i += hn::Lanes(d)) {
    largest = hn::Max(largest, magnitude(d, value(d, i)));
  }
  std::uint32_t found = hn::GetLane(hn::MaxOfLanes(bits, largest));
  for (; i < count; ++i) {
    const std::uint32_t one = hn::GetLane(magnitude(OneFloat(), value(OneFloat(), i)));
    found = one > found ? one : found;
  }
  return found;
}

/// What is infinite or not a number becomes 0.
template <class V>
HWY_INLINE V finite_or_zero(V v) {
  const hn::DFromV<V> d;
  return hn::IfThenElseZero(hn::Eq(hn::Sub(v, v), hn::Zero(d)), v);
}

}  // namespace rackrail::plan::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
