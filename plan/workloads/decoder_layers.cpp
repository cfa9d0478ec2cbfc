#include "plan/workloads/decoder_layers.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace rackrail::plan {
namespace {

/// Adds it and keeps its hidden values, for the share of tokens that pass it.
void add_perceptron(ModelBuilder& b, const std::string& prefix, const Perceptron& kind,
                    std::int64_t width, std::int64_t hidden, double uses) {
  if (kind.gated && kind.fused) {
    b.linear(prefix + "gate_up_proj", 2 * hidden, width, kind.bias, uses);
  } else {
    if (kind.gated) {
      b.linear(prefix + "gate_proj", hidden, width, kind.bias, uses);
    }
    b.linear(prefix + "up_proj", hidden, width, kind.bias, uses);
  }
  b.linear(prefix + "down_proj", width, hidden, kind.bias, uses);
  // Each product's result, and what goes into the last one.
  b.keep_values(uses * static_cast<double>((kind.gated ? 3 : 2) * hidden));
}

bool is_deepseek(const std::string& type) { return type.starts_with("deepseek"); }

std::vector<std::int64_t> layers_of(const ModelConfig& config, const char* key) {
  std::vector<std::int64_t> layers;
  const nlohmann::json* list = config.find(key);
  if (list == nullptr) {
    return layers;
  }
  if (!list->is_array() ||
      !std::ranges::all_of(*list, [](const auto& one) { return one.is_number_integer(); })) {
    config.fail(key, "no list of numbers", "a list of layers");
  }
  for (const auto& one : *list) {
    layers.push_back(one.get<std::int64_t>());
  }
  return layers;
}

}  // namespace

bool LayerExperts::has_experts(std::int64_t layer) const {
  if (count == 0 || layer < first || std::ranges::find(dense_layers, layer) != dense_layers.end()) {
    return false;
  }
  return (layer - first + 1) % every == 0;
}

LayerExperts experts_of(const ModelConfig& config, const std::string& type, std::int64_t width,
                        const Perceptron& perceptron) {
  LayerExperts all;
  all.perceptron = perceptron;
  all.width = width;
  all.dense_hidden =
      config.count_or({"intermediate_size", "n_inner", "ffn_dim", "ffn_hidden_size"}, 4 * width);
  all.count = config.count_or({"num_local_experts", "num_experts", "n_routed_experts"}, 0, 0);
  const bool is_known = type == "mixtral" || type == "qwen2_moe" || type == "qwen3_moe" ||
                        type == "olmoe" || type == "gpt_oss" || is_deepseek(type);
  if (!is_known) {
    if (all.count > 1) {
      config.fail("num_experts", fmt::format("{} of a {}", all.count, type),
                  "none: such a model is not known yet");
    }
    all.count = 0;
  }
  if (all.count == 0) {
    return all;
  }
  all.per_token = config.count({"num_experts_per_tok", "experts_per_token"});
  if (all.per_token > all.count) {
    config.fail("num_experts_per_tok", std::to_string(all.per_token),
                fmt::format("at most the {} experts", all.count));
  }
  all.hidden = config.count_or({"moe_intermediate_size"}, all.dense_hidden);
  all.shared_hidden = config.count_or({"shared_expert_intermediate_size"}, 0, 0) +
                      config.count_or({"n_shared_experts"}, 0, 0) * all.hidden;
  all.shared_gate = type == "qwen2_moe";
  all.router_bias = type == "gpt_oss";
  all.first = config.count_or({"first_k_dense_replace"}, 0, 0);
  all.every = config.count_or({"decoder_sparse_step", "moe_layer_freq"}, 1);
  all.dense_layers = layers_of(config, "mlp_only_layers");
  return all;
}

void add_attention(ModelBuilder& b, const std::string& prefix, const Attention& shape) {
  const std::int64_t queries = shape.heads * shape.dimension;
  const std::int64_t keys = shape.pairs * shape.dimension;
  if (shape.fused) {
    b.linear(prefix + "qkv_proj", queries + 2 * keys, shape.width, shape.qkv_bias);
  } else {
    b.linear(prefix + "q_proj", queries, shape.width, shape.qkv_bias);
    b.linear(prefix + "k_proj", keys, shape.width, shape.qkv_bias);
    b.linear(prefix + "v_proj", keys, shape.width, shape.qkv_bias);
  }
  if (shape.head_norm != HeadNorm::kNone) {
    const bool is_whole = shape.head_norm == HeadNorm::kWhole;
    b.norm(prefix + "q_norm", is_whole ? queries : shape.dimension, false);
    b.norm(prefix + "k_norm", is_whole ? keys : shape.dimension, false);
  }
  if (shape.sinks) {
    b.vector(prefix + "sinks", shape.heads);
  }
  b.scores(shape.heads, shape.dimension, shape.dimension);
  b.linear(prefix + "o_proj", shape.width, queries, shape.out_bias);
  // The input; query, key and value; the input of the output product.
  b.keep_values(static_cast<double>(shape.width + queries + 2 * keys + queries));
}

void add_latent_attention(ModelBuilder& b, const std::string& prefix, const Attention& shape) {
  const ModelConfig& config = b.config();
  const std::int64_t plain = config.count({"qk_nope_head_dim"});
  const std::int64_t turned = config.count({"qk_rope_head_dim"});
  const std::int64_t value = config.count({"v_head_dim"});
  const std::int64_t rank = config.count({"kv_lora_rank"});
  const std::int64_t query_rank = config.count_or({"q_lora_rank"}, 0, 0);
  const std::int64_t queries = shape.heads * (plain + turned);
  if (query_rank > 0) {
    b.linear(prefix + "q_a_proj", query_rank, shape.width, shape.qkv_bias);
    b.norm(prefix + "q_a_layernorm", query_rank, false);
    b.linear(prefix + "q_b_proj", queries, query_rank);
  } else {
    b.linear(prefix + "q_proj", queries, shape.width);
  }
  b.linear(prefix + "kv_a_proj_with_mqa", rank + turned, shape.width, shape.qkv_bias);
  b.norm(prefix + "kv_a_layernorm", rank, false);
  b.linear(prefix + "kv_b_proj", shape.heads * (plain + value), rank);
  b.scores(shape.heads, plain + turned, value);
  b.linear(prefix + "o_proj", shape.width, shape.heads * value, shape.out_bias);
  // The input, the narrow values, query, key, value, and the input of the output product.
  b.keep_values(
      static_cast<double>(shape.width + query_rank + rank + 2 * queries + 2 * shape.heads * value));
}

void add_feed_forward(ModelBuilder& b, const std::string& prefix, const LayerExperts& all,
                      std::int64_t layer) {
  const std::string mlp = prefix + "mlp.";
  b.keep_values(static_cast<double>(all.width));
  if (!all.has_experts(layer)) {
    add_perceptron(b, mlp, all.perceptron, all.width, all.dense_hidden, 1);
    return;
  }
  b.linear(mlp + "gate", all.count, all.width, all.router_bias);
  const double uses = static_cast<double>(all.per_token) / static_cast<double>(all.count);
  for (std::int64_t e = 0; e < all.count; ++e) {
    add_perceptron(b, fmt::format("{}experts.{}.", mlp, e), all.perceptron, all.width, all.hidden,
                   uses);
  }
  if (all.shared_hidden > 0) {
    add_perceptron(b, mlp + "shared_expert.", all.perceptron, all.width, all.shared_hidden, 1);
  }
  if (all.shared_gate) {
    b.linear(mlp + "shared_expert_gate", 1, all.width);
  }
}

}  // namespace rackrail::plan
