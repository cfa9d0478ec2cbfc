// Encoders: BERT and its like, and the vision transformer. Heads for a task are left out, but for
// the classifier of the vision transformer.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "plan/workloads/model_builder.hpp"

namespace rackrail::plan {
namespace {

/// One encoder layer with biases everywhere; `before`: norms stand before what they are for.
struct EncoderNames {
  std::string query, key, value, output, first, second, norm_1, norm_2;
  bool before = false;
};

void add_layer(ModelBuilder& b, const std::string& prefix, const EncoderNames& names,
               std::int64_t width, std::int64_t hidden, std::int64_t heads, bool qkv_bias) {
  const auto name = [&](const std::string& part) { return prefix + part; };
  if (names.before) {
    b.norm(name(names.norm_1), width, true);
  }
  for (const std::string& part : {names.query, names.key, names.value}) {
    b.linear(name(part), width, width, qkv_bias);
  }
  b.scores(heads, width / heads, width / heads);
  b.linear(name(names.output), width, width, true);
  b.norm(name(names.before ? names.norm_2 : names.norm_1), width, true);
  b.linear(name(names.first), hidden, width, true);
  b.linear(name(names.second), width, hidden, true);
  if (!names.before) {
    b.norm(name(names.norm_2), width, true);
  }
  // Inputs of attention, output product, perceptron and two norms; query, key and value; the hidden
  // values before and after their function.
  b.keep_values(static_cast<double>(5 * width + 3 * width + 2 * hidden));
  b.keep_dropouts(width);
}

std::int64_t heads_of(const ModelConfig& config, std::int64_t width, ModelConfig::Keys keys) {
  const std::int64_t heads = config.count(keys);
  if (width % heads != 0) {
    config.fail(*keys.begin(), fmt::format("{} heads of a width of {}", heads, width),
                "a number that divides it");
  }
  return heads;
}

const EncoderNames kBert{"attention.self.query",       "attention.self.key", "attention.self.value",
                         "attention.output.dense",     "intermediate.dense", "output.dense",
                         "attention.output.LayerNorm", "output.LayerNorm"};
const EncoderNames kDistilBert{"attention.q_lin",   "attention.k_lin",  "attention.v_lin",
                               "attention.out_lin", "ffn.lin1",         "ffn.lin2",
                               "sa_layer_norm",     "output_layer_norm"};
const EncoderNames kVision{
    "attention.attention.query", "attention.attention.key", "attention.attention.value",
    "attention.output.dense",    "intermediate.dense",      "output.dense",
    "layernorm_before",          "layernorm_after",         true};

void build_bert(ModelBuilder& b) {
  const ModelConfig& config = b.config();
  const std::int64_t width = config.count({"hidden_size"});
  const std::int64_t hidden = config.count({"intermediate_size"});
  const std::int64_t heads = heads_of(config, width, {"num_attention_heads"});
  const std::int64_t positions = config.count({"max_position_embeddings"});
  b.embedding("embeddings.word_embeddings", config.count({"vocab_size"}), width);
  b.embedding("embeddings.position_embeddings", positions, width);
  b.embedding("embeddings.token_type_embeddings", config.count_or({"type_vocab_size"}, 2), width);
  b.norm("embeddings.LayerNorm", width, true);
  for (std::int64_t l = 0; l < config.count({"num_hidden_layers"}); ++l) {
    add_layer(b, fmt::format("encoder.layer.{}.", l), kBert, width, hidden, heads, true);
  }
  b.linear("pooler.dense", width, width, true, 0);  // of the first token alone
  // RoBERTa counts positions from behind the index of its padding.
  const bool is_roberta = b.model.type != "bert";
  b.model.positions = is_roberta ? std::max<std::int64_t>(positions - 2, 1) : positions;
  b.model.notes.push_back("the encoder with its pooler, without a head for a task");
}

void build_distilbert(ModelBuilder& b) {
  const ModelConfig& config = b.config();
  const std::int64_t width = config.count({"dim", "hidden_size"});
  const std::int64_t hidden = config.count({"hidden_dim", "intermediate_size"});
  const std::int64_t heads = heads_of(config, width, {"n_heads", "num_attention_heads"});
  b.model.positions = config.count({"max_position_embeddings"});
  b.embedding("embeddings.word_embeddings", config.count({"vocab_size"}), width);
  b.embedding("embeddings.position_embeddings", b.model.positions, width);
  b.norm("embeddings.LayerNorm", width, true);
  for (std::int64_t l = 0; l < config.count({"n_layers", "num_hidden_layers"}); ++l) {
    add_layer(b, fmt::format("transformer.layer.{}.", l), kDistilBert, width, hidden, heads, true);
  }
  b.model.notes.push_back("the encoder, without a head for a task");
}

void build_vit(ModelBuilder& b) {
  const ModelConfig& config = b.config();
  const std::int64_t width = config.count({"hidden_size"});
  const std::int64_t hidden = config.count({"intermediate_size"});
  const std::int64_t heads = heads_of(config, width, {"num_attention_heads"});
  const std::int64_t image = config.count({"image_size"});
  const std::int64_t patch = config.count({"patch_size"});
  if (patch > image) {
    config.fail("patch_size", fmt::format("{} of an image of {}", patch, image), "a smaller one");
  }
  const std::int64_t pixels = config.count_or({"num_channels"}, 3) * patch * patch;
  const std::int64_t tokens = (image / patch) * (image / patch) + 1;
  b.model.fixed_sequence = tokens;
  b.vector("embeddings.cls_token", width);
  b.vector("embeddings.position_embeddings", tokens * width);
  b.linear("embeddings.patch_embeddings.projection", width, pixels, true);
  for (std::int64_t l = 0; l < config.count({"num_hidden_layers"}); ++l) {
    add_layer(b, fmt::format("encoder.layer.{}.", l), kVision, width, hidden, heads,
              config.flag_or({"qkv_bias"}, true));
  }
  b.norm("layernorm", width, true);
  const std::int64_t labels =
      config.size_of("id2label").value_or(config.count_or({"num_labels"}, 0, 0));
  if (labels > 0) {
    b.linear("classifier", labels, width, true, 0);
    b.model.notes.push_back(fmt::format("with a classifier of {} labels", labels));
  } else {
    b.linear("pooler.dense", width, width, true, 0);
    b.model.notes.push_back("the encoder with its pooler, without a head for a task");
  }
}

struct Encoder {
  const char* type;
  void (*build)(ModelBuilder&);
};
constexpr std::array kEncoders{Encoder{"bert", build_bert},
                               Encoder{"camembert", build_bert},
                               Encoder{"distilbert", build_distilbert},
                               Encoder{"roberta", build_bert},
                               Encoder{"vit", build_vit},
                               Encoder{"xlm-roberta", build_bert}};

}  // namespace

bool build_encoder(const std::string& type, ModelBuilder& builder) {
  const auto found =
      std::ranges::find_if(kEncoders, [&](const Encoder& one) { return one.type == type; });
  if (found == kEncoders.end()) {
    return false;
  }
  found->build(builder);
  return true;
}

std::vector<std::string> encoder_types() {
  std::vector<std::string> types;
  for (const Encoder& one : kEncoders) {
    types.emplace_back(one.type);
  }
  return types;
}

}  // namespace rackrail::plan
