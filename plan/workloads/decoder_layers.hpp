// The two halves of a decoder's layer: attention, and a perceptron or a choice among experts.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "plan/workloads/model_builder.hpp"

namespace rackrail::plan {

/// Norms of queries and keys: of each head with one weight, or over all heads.
enum class HeadNorm : std::uint8_t { kNone, kPerHead, kWhole };

struct Attention {
  std::int64_t width = 0;
  std::int64_t heads = 0;
  std::int64_t pairs = 0;      ///< heads of keys and values (grouped queries)
  std::int64_t dimension = 0;  ///< of a head
  bool qkv_bias = false;
  bool out_bias = false;
  bool fused = false;  ///< query, key and value are one tensor
  bool sinks = false;  ///< one more parameter per head
  HeadNorm head_norm = HeadNorm::kNone;
};

struct Perceptron {
  bool gated = false;  ///< two products side by side, multiplied with each other
  bool fused = false;  ///< and they are one tensor
  bool bias = false;
};

/// What follows attention in each layer.
struct LayerExperts {
  Perceptron perceptron;
  std::int64_t width = 0;
  std::int64_t dense_hidden = 0;  ///< of layers without experts
  std::int64_t count = 0;         ///< of experts; 0: no layer has any
  std::int64_t per_token = 0;
  std::int64_t hidden = 0;         ///< of one expert
  std::int64_t shared_hidden = 0;  ///< of what every token passes beside them; 0: nothing
  bool shared_gate = false;
  bool router_bias = false;
  std::int64_t first = 0;  ///< layers before this one are dense
  std::int64_t every = 1;  ///< one in so many layers has experts
  std::vector<std::int64_t> dense_layers{};

  bool has_experts(std::int64_t layer) const;
};

/// Throws ConfigError.
LayerExperts experts_of(const ModelConfig& config, const std::string& type, std::int64_t width,
                        const Perceptron& perceptron);

void add_attention(ModelBuilder& builder, const std::string& prefix, const Attention& shape);
/// Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434): keys and values, and mostly
/// queries, are products of two narrow matrices. Reads the ranks from the configuration.
void add_latent_attention(ModelBuilder& builder, const std::string& prefix, const Attention& shape);
void add_feed_forward(ModelBuilder& builder, const std::string& prefix, const LayerExperts& experts,
                      std::int64_t layer);

}  // namespace rackrail::plan
