// A matrix M as the product P·Qᵀ of two thin factors, of which only the factors travel (PowerSGD:
// Vogels, Karimireddy, Jaggi, "PowerSGD: practical low-rank gradient compression for distributed
// optimization", NeurIPS 2019, arXiv 1905.13727). Planned and simulated only: factors need whole
// matrices where plans move slices of buckets, and each of the two is summed in a collective of its
// own before the other can be computed. There is no arithmetic here, and no executor takes it.
//
// Size. A matrix of m × n at rank r is r·(m + n) floats, or m·n where that is less; a tensor whose
// shape is not known, and a vector, is sent in full. What that makes of a model is `density`, the
// share of the floats that is sent: plan/shaped_codec.hpp works it out from the shapes in a
// workload. A bucket, and a slice of it, is taken to be made of such matrices in the model's
// proportions.
//
// Cost. One step of the power iteration: P = M·Q and Q = Mᵀ·P read M twice and cost 2·r operations
// per element each, M̂ = P·Qᵀ as many again. Where the operations bound it and not the memory, they
// count as the bytes that memory moves in their time, at kOperationsPerByte. (Orthogonalising P, 2·
// m·r² operations, is left out: r/n of one of those products.) The simulator takes partial sums to
// be decoded and encoded where ranks meet, as for other codecs that are not exact; PowerSGD adds
// factors there, which is less work.
//
// Error. Of an m × n matrix of independent normal elements the r largest singular values hold at
// most r·(√m + √n)²/(m·n) of the energy (their edge is √m + √n: Marchenko, Pastur, 1967), which
// lies between one and two times density = r·(m + n)/(m·n). So √(1 − density) is what is left out
// at most, as for random-k. Gradients are closer to low rank than noise is: a workload's
// `codec_errors` says by how much where somebody measured it.
#include <algorithm>
#include <cmath>

#include "base/error.hpp"
#include "plan/codecs/format.hpp"
#include "plan/codecs/registry.hpp"

namespace rackrail::plan {
namespace {

// FP32 operations in the time of a byte of memory traffic: an A100's 19.5 TFLOP/s over its 1.56
// TB/s (NVIDIA, "A100 Tensor Core GPU architecture", 2020).
constexpr double kOperationsPerByte = 12.5;
constexpr double kMostRank = 1024;

class LowRankFormat final : public CodecFormat {
 public:
  using CodecFormat::CodecFormat;

  Bytes encoded_size(const Codec& codec, std::int64_t elements) const override {
    return Bytes(kept_elements(codec, elements)) * 4;
  }
  double relative_error(const Codec& codec) const override { return std::sqrt(1 - codec.density); }
  /// Two products read the matrix; a decoded one is added to what is there.
  CodecTraffic traffic(const Codec& codec) const override {
    const double product = 2.0 * codec.rank / kOperationsPerByte;
    return {.encode = kFeedbackTraffic + 2 * std::max(4.0, product),
            .decode_add = std::max(4.0 + 4.0, product)};
  }
  std::unique_ptr<CodecArithmetic> arithmetic(const Codec& codec) const override {
    throw RuntimeFailure(not_executable(codec));
  }
};

}  // namespace

const CodecFormat& low_rank_format() {
  static const LowRankFormat kFormat(
      {.name = "lowrank",
       .parameters = {{.name = "rank", .field = &Codec::rank, .above = 0, .most = kMostRank},
                      {.name = "density", .field = &Codec::density, .above = 0, .most = 1}},
       .has_error_feedback = true,
       .depends_on_shapes = true,
       .is_executable = false});
  return kFormat;
}

}  // namespace rackrail::plan
