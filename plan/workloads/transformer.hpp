// A transformer as its config.json describes it, and what one training step of it costs.
//
// The model is a list of parts in the order of forward. A part is a parameter tensor, or work that
// has no parameters of its own: attention scores, and an output layer that shares the embedding.
//
// FLOPs: a matrix of p elements costs 2·p per token in forward and 4·p in backward (the gradients
// of its input and of itself), scores of one token against another 2 per element of their head
// dimensions, and twice that in backward (Kaplan et al., arXiv 2001.08361; Korthikanti et al.,
// arXiv 2205.05198, appendix A). Masked scores count as computed, softmax and norms as nothing.
//
// Activations: what Korthikanti et al. (section 4.1) count as kept per token and layer, in values
// of 2 bytes and dropout masks of 1, with the widths of this model: input, query, key, value and
// output of attention; input and hidden values of each multilayer perceptron; inputs of the two
// norms. For a GPT that is their 34·h. Scores are computed again in backward (their section 5, as
// FlashAttention does). Embeddings, the output layer's logits and the inputs of routers are left
// out, as in the paper.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "plan/workload.hpp"

namespace rackrail::plan {

struct ModelPart {
  std::string name{};
  std::int64_t rows = 0;
  std::int64_t columns = 0;      ///< 0: a vector of `rows` elements; no tensor if both are 0
  double uses = 0;               ///< share of the tokens that are multiplied by the matrix
  bool is_shared = false;        ///< its gradient is that of another part
  std::int64_t score_width = 0;  ///< of scores: all heads' dimensions of keys and values together

  bool has_gradient() const { return rows > 0 && !is_shared; }
  std::int64_t elements() const { return columns > 0 ? rows * columns : rows; }
};

struct Transformer {
  std::string type;                 ///< as in `model_type`
  std::vector<ModelPart> parts;     ///< in the order of forward
  std::int64_t positions = 0;       ///< longest sequence; 0: not limited or not known
  std::int64_t fixed_sequence = 0;  ///< of models whose sequence follows from their input; else 0
  double activation_bytes_per_token = 0;
  std::int64_t experts = 0;  ///< per layer; 0: dense
  std::int64_t experts_per_token = 0;
  std::vector<std::string> notes{};  ///< of what is not read, without the file's name
};

/// From the text of a config.json. Throws ConfigError (file, key, found, expected), also for types
/// that are not known.
Transformer read_transformer(const std::string& file, const std::string& content);

/// The `model_type`s that are known, in alphabetical order.
std::vector<std::string> known_transformers();

/// One step of one sequence. Throws ConfigError for a sequence that the model cannot have, an
/// unknown dtype, and steps of over an hour.
Workload workload_of(const Transformer& model, const std::string& file, const std::string& name,
                     const WorkloadOptions& options);

}  // namespace rackrail::plan
