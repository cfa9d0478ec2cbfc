// Decoders: the GPT and Llama families with what they differ in as a table.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <string_view>

#include "plan/workloads/decoder_layers.hpp"
#include "plan/workloads/model_builder.hpp"

namespace rackrail::plan {
namespace {

/// In what a family differs from Llama; flags are the defaults of its configuration's keys.
struct Style {
  std::string_view type;
  bool tied = false;  ///< the output layer is the embedding
  bool qkv_bias = false;
  bool out_bias = false;
  bool mlp_bias = false;
  bool gated = true;
  bool fused = false;  ///< query, key and value, and gate and up, are one tensor each
  bool norm_bias = false;
  std::int64_t norms = 2;  ///< per layer
  HeadNorm head_norm = HeadNorm::kNone;
  std::int64_t position_rows = -1;  ///< of a table of positions, beyond the positions; -1: none
  bool embedding_norm = false;
  bool output_bias = false;
};

/// As GPT-2: each matrix and each norm has a bias, and the feed-forward network no gate.
constexpr Style gpt(Style style) {
  style.qkv_bias = style.out_bias = style.mlp_bias = style.norm_bias = true;
  style.gated = false;
  return style;
}

constexpr std::array kStyles{
    gpt({.type = "bloom", .tied = true, .fused = true, .embedding_norm = true}),
    Style{.type = "cohere", .tied = true, .norms = 1},
    Style{.type = "deepseek"},
    Style{.type = "deepseek_v2"},
    Style{.type = "deepseek_v3"},
    Style{.type = "falcon", .tied = true, .gated = false, .fused = true, .norm_bias = true},
    Style{.type = "gemma", .tied = true},
    Style{.type = "gemma2", .tied = true, .norms = 4},
    Style{.type = "gemma3_text", .tied = true, .norms = 4, .head_norm = HeadNorm::kPerHead},
    gpt({.type = "gpt2", .tied = true, .fused = true, .position_rows = 0}),
    gpt({.type = "gpt_bigcode", .tied = true, .fused = true, .position_rows = 0}),
    Style{.type = "gpt_neo",
          .tied = true,
          .out_bias = true,
          .mlp_bias = true,
          .gated = false,
          .norm_bias = true,
          .position_rows = 0},
    gpt({.type = "gpt_neox", .fused = true}),
    Style{.type = "gpt_oss", .qkv_bias = true, .out_bias = true, .mlp_bias = true},
    Style{.type = "gptj",
          .mlp_bias = true,
          .gated = false,
          .norm_bias = true,
          .norms = 1,
          .output_bias = true},
    Style{.type = "granite"},
    Style{.type = "llama"},
    Style{.type = "mistral"},
    Style{.type = "mixtral"},
    Style{.type = "olmo", .norms = 0},
    Style{.type = "olmo2", .head_norm = HeadNorm::kWhole},
    Style{.type = "olmoe", .head_norm = HeadNorm::kWhole},
    gpt({.type = "opt", .tied = true, .position_rows = 2}),
    gpt({.type = "phi", .norms = 1, .output_bias = true}),
    Style{.type = "phi3", .fused = true},
    Style{.type = "qwen2", .qkv_bias = true},
    Style{.type = "qwen2_moe", .qkv_bias = true},
    Style{.type = "qwen3", .head_norm = HeadNorm::kPerHead},
    Style{.type = "qwen3_moe", .head_norm = HeadNorm::kPerHead},
    Style{.type = "stablelm", .norm_bias = true},
    gpt({.type = "starcoder2", .tied = true}),
};

Attention attention_of(const ModelConfig& config, const Style& style, std::int64_t width) {
  Attention shape;
  shape.width = width;
  shape.heads = config.count({"num_attention_heads", "n_head", "num_heads"});
  shape.pairs = config.count_or({"num_key_value_heads", "num_kv_heads"}, shape.heads);
  if (style.type == "falcon" && !config.flag_or({"new_decoder_architecture"}, false)) {
    shape.pairs = config.flag_or({"multi_query"}, true) ? 1 : shape.heads;
  }
  if (style.type == "gpt_bigcode" && config.flag_or({"multi_query"}, true)) {
    shape.pairs = 1;
  }
  if (!config.has("head_dim") && width % shape.heads != 0) {
    config.fail("num_attention_heads", fmt::format("{} heads of a width of {}", shape.heads, width),
                "a number that divides it, or head_dim");
  }
  shape.dimension = config.count_or({"head_dim"}, std::max(width / shape.heads, std::int64_t{1}));
  shape.qkv_bias = config.flag_or(
      {"attention_bias", "qkv_bias", "use_qkv_bias", "use_bias", "bias"}, style.qkv_bias);
  shape.out_bias = config.flag_or({"attention_bias", "use_bias", "bias"}, style.out_bias);
  shape.sinks = style.type == "gpt_oss";
  shape.fused = style.fused;
  shape.head_norm = style.head_norm;
  if (style.type == "stablelm" && config.flag_or({"qk_layernorm"}, false)) {
    config.fail("qk_layernorm", "true", "false: such a model is not known yet");
  }
  return shape;
}

std::int64_t norms_of(const ModelConfig& config, const Style& style) {
  if (style.type == "falcon") {
    const bool is_new = config.flag_or({"new_decoder_architecture"}, false);
    const std::int64_t of_new = config.count_or({"num_ln_in_parallel_attn"}, 2);
    return is_new ? of_new : config.flag_or({"parallel_attn"}, true) ? 1 : 2;
  }
  if (style.type == "stablelm" && config.flag_or({"use_parallel_residual"}, false)) {
    return 1;
  }
  return style.norms;
}

void add_embeddings(ModelBuilder& b, const Style& style, std::int64_t vocabulary,
                    std::int64_t width) {
  const ModelConfig& config = b.config();
  b.model.positions =
      config.count_or({"max_position_embeddings", "n_positions", "n_ctx", "seq_length"}, 0);
  b.embedding("embed_tokens", vocabulary, width);
  if (style.position_rows >= 0) {
    if (b.model.positions == 0) {
      config.fail("max_position_embeddings or n_positions", "nothing", "the number of positions");
    }
    b.embedding("embed_positions", b.model.positions + style.position_rows, width);
  }
  if (style.embedding_norm) {
    b.norm("embed_norm", width, style.norm_bias);
  }
  if (config.count_or({"word_embed_proj_dim"}, width) != width) {
    config.fail("word_embed_proj_dim", "another width than hidden_size", "the same width");
  }
}

void add_layer(ModelBuilder& b, const Style& style, const Attention& attention,
               const LayerExperts& experts, std::int64_t layer, std::int64_t norms) {
  const std::string prefix = fmt::format("layers.{}.", layer);
  const std::int64_t width = attention.width;
  static constexpr std::array kNorms{"input_layernorm", "post_attention_layernorm",
                                     "pre_feedforward_layernorm", "post_feedforward_layernorm"};
  const auto norm = [&](std::size_t which) {
    b.norm(prefix + kNorms.at(which), width, style.norm_bias);
  };
  if (norms > 0) norm(0);
  const bool is_latent = style.type == "deepseek_v2" || style.type == "deepseek_v3";
  if (is_latent) {
    add_latent_attention(b, prefix + "self_attn.", attention);
  } else {
    add_attention(b, prefix + "self_attn.", attention);
  }
  if (norms > 1) norm(1);
  if (norms > 3) norm(2);
  add_feed_forward(b, prefix, experts, layer);
  if (norms > 3) norm(3);
  b.keep_values(static_cast<double>(2 * width));  // inputs of the norms
  b.keep_dropouts(width);
}

}  // namespace

bool build_decoder(const std::string& type, ModelBuilder& b) {
  const auto* style =
      std::ranges::find_if(kStyles, [&](const Style& one) { return one.type == type; });
  if (style == kStyles.end()) {
    return false;
  }
  const ModelConfig& config = b.config();
  const std::int64_t vocabulary = config.count({"vocab_size"});
  const std::int64_t width = config.count({"hidden_size", "n_embd", "n_embed", "d_model"});
  const std::int64_t layers = config.count({"num_hidden_layers", "n_layer", "num_layers"});
  const Attention attention = attention_of(config, *style, width);
  const LayerExperts experts =
      experts_of(config, type, width,
                 {.gated = style->gated,
                  .fused = style->fused,
                  .bias = config.flag_or({"mlp_bias", "use_bias", "bias"}, style->mlp_bias)});
  const std::int64_t norms = norms_of(config, *style);
  add_embeddings(b, *style, vocabulary, width);
  for (std::int64_t layer = 0; layer < layers; ++layer) {
    add_layer(b, *style, attention, experts, layer, norms);
  }
  if (style->norms > 0) {
    b.norm("norm", width, style->norm_bias);
  }
  b.output("lm_head", vocabulary, width, config.flag_or({"tie_word_embeddings"}, style->tied),
           style->output_bias);
  b.model.experts = experts.count;
  b.model.experts_per_token = experts.per_token;
  return true;
}

std::vector<std::string> decoder_types() {
  std::vector<std::string> types;
  for (const Style& style : kStyles) {
    types.emplace_back(style.type);
  }
  return types;
}

}  // namespace rackrail::plan
